"""The server under load: streams that must not be lost or mixed up, its own cost per token, vLLM beside it, a soak.

python benchmarks/serve.py MODEL [--vllm-python PYTHON] [--soak-s 600] [--out benchmarks/results/serve.md]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from serve_client import Answered, Ask, all_at_once, one_by_one, running
from serve_soak import soaked

NAME = "bench"
SEATS = 64
PROMPT_TOKENS, ANSWER_TOKENS, CONCURRENT = 128, 64, 32
SHORT_ANSWER = 6
VLLM_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "2"}


def main() -> int:
    options = _options()
    lines = [
        "# The server under load",
        "",
        f"`python benchmarks/serve.py MODEL`, {options.streams} streams, soak of {options.soak_s:.0f} s",
        "",
    ]
    lines += [f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start.", ""]
    wrong = False
    for measure in (_streams, _throughput, _soak):
        said, failed = measure(options)
        print("\n".join(said), flush=True)
        lines += said
        wrong |= failed
    options.out.write_text("\n".join(lines) + "\n")
    return int(wrong)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model folder")
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--vllm-python", help="an interpreter that has vLLM's CPU build")
    parser.add_argument("--soak-s", type=float, default=0.0, help="seconds of the soak; 0 leaves it out")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/serve.md"))
    parser.add_argument("--engine-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine_only:
        print(_engine_seconds(options.model))
        raise SystemExit(0)
    return options


def _own(model: str, dtype: str) -> list[str]:
    argv = [sys.executable, "-m", "day0.cli.main", "serve", model, "--device", "cpu", "--dtype", dtype]
    return [*argv, "--max-num-seqs", str(SEATS), "--served-model-name", NAME, "--no-prefix-caching"]


def _streams(options: argparse.Namespace) -> tuple[list[str], bool]:
    """All streams at once, each held against its own prompt alone; float32, where batching moves no choice."""
    asks = [
        Ask(f"Item {number}: the square of {number} plus {number % 7} is", SHORT_ANSWER) for number in _numbers(options)
    ]
    with running(_own(options.model, "float32"), {}) as server:
        together, seconds = asyncio.run(all_at_once(server, NAME, asks))
        alone = asyncio.run(one_by_one(server, NAME, asks))
    lost = sum(not answer.whole or answer.tokens != SHORT_ANSWER for answer in together)
    other = sum(one.text != own.text for one, own in zip(together, alone, strict=True))
    distinct = len({answer.text for answer in alone})
    said = [
        "## Streams",
        "",
        f"{len(asks)} at once, {SHORT_ANSWER} tokens each, {SEATS} seats: {lost} lost, {other} other than "
        f"their prompt's answer alone ({distinct} different answers), {seconds:.1f} s.",
        "",
    ]
    return said, lost > 0 or other > 0 or distinct < len(asks) // 4


def _numbers(options: argparse.Namespace) -> range:
    return range(11, 11 + options.streams)


def _asks() -> list[Ask]:
    """The same token ids for every engine; each prompt its own."""
    prompts = (
        [1000 + (number * 131 + place * 17) % 20_000 for place in range(PROMPT_TOKENS)] for number in range(CONCURRENT)
    )
    return [Ask(prompt, ANSWER_TOKENS) for prompt in prompts]


def _throughput(options: argparse.Namespace) -> tuple[list[str], bool]:
    """Answer tokens per second of us, of our engine without a server, and of vLLM; bfloat16, best of two."""
    own = _served_seconds(_own(options.model, "bfloat16"), {})
    argv = [sys.executable, __file__, options.model, "--engine-only"]
    bare = float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()[-1])
    tokens = CONCURRENT * ANSWER_TOKENS
    rows = {"day0 serve": own, "the same engine without a server": bare}
    if options.vllm_python is not None:
        argv = [options.vllm_python, "-m", "vllm.entrypoints.openai.api_server", "--model", options.model]
        argv += ["--served-model-name", NAME, "--dtype", "bfloat16", "--max-model-len", "2048", "--enforce-eager"]
        argv += ["--no-enable-prefix-caching"]
        rows["vLLM (CPU build)"] = _served_seconds(argv, VLLM_ENVIRONMENT)
    said = [
        f"## {CONCURRENT} at once, {PROMPT_TOKENS} + {ANSWER_TOKENS} tokens, bfloat16",
        "",
        "| | seconds | answer tokens/s |",
        "|---|---|---|",
        *(f"| {name} | {seconds:.2f} | {tokens / seconds:.0f} |" for name, seconds in rows.items()),
        "",
        f"The server adds {(own - bare) / bare:+.1%} of the engine's time, "
        f"{1000 * (own - bare) / tokens:+.2f} ms a token",
        *([] if options.vllm_python else ["vLLM was not measured: no --vllm-python."]),
        "",
    ]
    return said, own > 1.1 * bare


def _served_seconds(argv: Sequence[str], environment: dict[str, str]) -> float:
    with running(argv, environment) as server:
        asyncio.run(one_by_one(server, NAME, _asks()[:1]))
        runs = [asyncio.run(all_at_once(server, NAME, _asks())) for _ in range(2)]
    for answers, _ in runs:
        _check(answers)
    return min(seconds for _, seconds in runs)


def _check(answers: Sequence[Answered]) -> None:
    short = [answer for answer in answers if not answer.whole or answer.tokens != ANSWER_TOKENS]
    if short:
        raise SystemExit(f"{len(short)} of {len(answers)} answers are not whole; times of these say nothing")


def _engine_seconds(model: str) -> float:
    """The same requests through the engine in this process: what is left when the server is taken away."""
    from day0.plan.settings import EngineSettings
    from day0.profile.read import read_profile
    from day0.runtime.batch import Request, SamplingParams
    from day0.runtime.engine.load import load_engine
    from day0.source.resolve import resolve

    files = resolve(model)
    settings = EngineSettings(device="cpu", dtype="bfloat16", max_num_seqs=SEATS, prefix_caching=False)
    engine = load_engine(files, read_profile(files), settings)
    params = SamplingParams(max_tokens=ANSWER_TOKENS, temperature=0.0, ignore_eos=True)

    def seconds(asks: Sequence[Ask], number: int) -> float:
        requests = [Request(f"{number}-{i}", tuple(map(int, ask.prompt)), params) for i, ask in enumerate(asks)]
        begun = time.monotonic()
        engine.generate(requests)
        return time.monotonic() - begun

    seconds(_asks()[:1], 0)
    return min(seconds(_asks(), number) for number in (1, 2))


def _soak(options: argparse.Namespace) -> tuple[list[str], bool]:
    if not options.soak_s:
        return ["## Soak", "", "Not run: no --soak-s.", ""], False
    with running(_own(options.model, "bfloat16"), {}) as server:
        seen = asyncio.run(soaked(server, NAME, options.soak_s))
    mebibytes = [value / 2**20 for value in seen.resident]
    said = [
        "## Soak",
        "",
        f"{options.soak_s:.0f} s: {seen.answered} answers, {seen.left} clients that left, {seen.garbage} of garbage; "
        f"{seen.wrong} answered wrongly. Memory {mebibytes[0]:.0f} MiB at first, at most {max(mebibytes):.0f}, "
        f"{mebibytes[-1]:.0f} at the end; the last third {seen.growth():+.2%} over the one before.",
        "",
    ]
    return said, seen.wrong > 0 or not seen.flat


if __name__ == "__main__":
    raise SystemExit(main())
