"""A model larger than the machine: one forward with weights read layer by layer, its time, memory and bytes read.

    python benchmarks/stream.py recipe:kimi-k3                       # writes results/stream.md
    python benchmarks/stream.py models/smollm2-135m-instruct --tokens 16 --output -

A recipe is written as a full-size skeleton first (sparse files: every name, shape and offset, the data holes that read
as zeros); a folder is taken as it is. The forward runs in a process of its own; its largest resident size is what the
kernel says of that process, mapped pages of the files among it. `--compare` runs the model resident as well and wants
the same logits to the last bit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from time import gmtime, perf_counter, strftime

RESULTS = Path(__file__).resolve().parent / "results" / "stream.md"


def forward(folder: str, tokens: int, dtype: str, offload: str) -> dict[str, object]:
    """Load and run one forward here; the engine checks a forward of 8 tokens when it starts, timed apart."""
    import hashlib
    import resource

    import torch

    from day0.coverage import load_whitelist
    from day0.plan.settings import EngineSettings
    from day0.profile.read import read_profile
    from day0.runtime.engine.load import load_engine
    from day0.source.resolve import resolve

    files = resolve(folder)
    phases: dict[str, float] = {}
    settings = EngineSettings(
        device="cpu", dtype=dtype, max_num_seqs=1, max_model_len=max(64, tokens), offload=offload, prefix_caching=False
    )
    started = perf_counter()
    profile = read_profile(files)
    engine = load_engine(files, profile, settings, phases.__setitem__, verified_on=load_whitelist().verified_on)
    ready, before = perf_counter() - started, read_so_far(engine)
    started = perf_counter()
    logits = engine.forward([(31 * place + 7) % profile.vocab_size for place in range(tokens)])
    seconds = perf_counter() - started
    return {
        "layers": profile.num_layers,
        "parameters_bytes": files.weight_bytes,
        "tensors": len(files.tensors or ()),
        "start_s": ready,
        "warmup_s": phases["warmup"],
        "forward_s": seconds,
        "bytes_read": read_so_far(engine) - before,
        "held_bytes": engine.memory.weight_bytes,
        "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "finite": bool(torch.isfinite(logits).all()),
        "digest": hashlib.sha256(logits.numpy().tobytes()).hexdigest()[:16],
    }


def read_so_far(engine: object) -> int:
    return getattr(engine.model.store, "bytes_read", 0)  # type: ignore[attr-defined]


def in_its_own_process(folder: str, tokens: int, dtype: str, offload: str) -> dict[str, object]:
    command = [sys.executable, __file__, "--inside", folder, str(tokens), dtype, offload]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def main() -> None:
    if sys.argv[1:2] == ["--inside"]:
        folder, tokens, dtype, offload = sys.argv[2:]
        print(json.dumps(forward(folder, int(tokens), dtype, offload)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="recipe:NAME or a folder with weights")
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--compare", action="store_true", help="run it resident as well")
    parser.add_argument("--scratch", help="where the skeleton is written")
    parser.add_argument("--output", default=str(RESULTS), help="a file, or - for standard output")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        folder = options.model
        if folder.startswith("recipe:"):
            folder = f"{scratch}/full"
            day0 = Path(sys.executable).parent / "day0"
            subprocess.run([day0, "skeleton", options.model, folder, "--scale", "full"], check=True, stdout=sys.stderr)
        streamed = in_its_own_process(folder, options.tokens, options.dtype, "disk")
        resident = in_its_own_process(folder, options.tokens, options.dtype, "none") if options.compare else None
    text = "\n".join(report(options, streamed, resident))
    if options.output == "-":
        print(text)
    else:
        Path(options.output).write_text(text + "\n", encoding="utf-8")


def report(options: argparse.Namespace, streamed: dict, resident: dict | None) -> list[str]:
    name = options.model if options.model.startswith("recipe:") else Path(options.model).name
    lines = [
        "# A model larger than the machine",
        "",
        f"- command: `python benchmarks/stream.py {name} --tokens {options.tokens} --dtype {options.dtype}`",
        f"- date: {strftime('%Y-%m-%d', gmtime())}",
        f"- machine: {os.cpu_count()} cores, {platform.machine()}, {platform.system()}; "
        f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB of memory",
        f"- versions: Python {platform.python_version()}, day0 {version('day0')}, torch {version('torch')}",
        f"- model: {name}, {streamed['layers']} layers, {streamed['tensors']:,} tensors, "
        f"{streamed['parameters_bytes']:,} bytes of weights",
        "",
        "| | start | of which a forward of 8 tokens | forward | bytes read | largest resident size |",
        "|---|---|---|---|---|---|",
    ]
    for title, run in (("streamed", streamed), ("resident", resident)):
        if run is not None:
            lines.append(
                f"| {title}, {options.tokens} tokens | {run['start_s']:.1f} s | {run['warmup_s']:.1f} s | "
                f"{run['forward_s']:.1f} s | {run['bytes_read']:,} | {run['peak_rss'] / 1e9:.2f} GB |"
            )
    if resident is not None:
        same = streamed["digest"] == resident["digest"]
        lines += ["", f"Logits {'are the same to the last bit' if same else 'DIFFER'} ({streamed['digest']})."]
    return lines


if __name__ == "__main__":
    main()
