"""One engine measured in a process of its own: `python cpu_peers.py PEER TASK MODEL DTYPE BATCHES [ANSWER]`.

Runs in the interpreter of the peer (vLLM has its own environment) and so imports nothing of day0 but in `day0`'s own.
Prints one JSON object; of decoding, by batch size. Decoding is timed apart from prefill: by two runs of different
length, whose difference is pure decoding whatever an engine does before its first token.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROMPT, SHORT = 128, 8
"""Tokens of a prompt, and of the shorter answer; what the longer one has more is what is timed."""

Generate = Callable[[list[list[int]], int], list[list[int]]]
"""From prompts and a number of new tokens to the answers, greedy and without an end token."""


def prompts_for(batch: int, vocab: int) -> list[list[int]]:
    """As many different prompts; ids spread over the vocabulary."""
    return [
        [(7919 * (place + 1) + 104729 * row) % (vocab - 64) + 32 for place in range(PROMPT)] for row in range(batch)
    ]


def timed(generate: Generate, vocab: int, batches: list[int], long: int) -> dict[str, Any]:
    found = {}
    for batch in batches:
        prompts = prompts_for(batch, vocab)
        generate(prompts, 2)  # warm
        seconds, answers = {}, {}
        for length in (SHORT, long):
            started = time.perf_counter()
            answers[length] = generate(prompts, length)
            seconds[length] = time.perf_counter() - started
        assert all(len(answer) == long for answer in answers[long]), [len(answer) for answer in answers[long]]
        found[str(batch)] = {
            "decode_tokens_per_s": batch * (long - SHORT) / (seconds[long] - seconds[SHORT]),
            "throughput_tokens_per_s": batch * long / seconds[long],
            "first": answers[long][0][:8],
        }
    return found


def day0(folder: str, dtype: str, batches: list[int], long: int) -> dict[str, Any]:
    from day0.coverage import load_whitelist
    from day0.plan.settings import EngineSettings
    from day0.profile.read import read_profile
    from day0.runtime.batch import Request, SamplingParams
    from day0.runtime.engine.load import load_engine
    from day0.source.resolve import resolve

    files = resolve(folder)
    # The same prompts come several times, and what is measured is computing them.
    settings = EngineSettings(
        device="cpu", dtype=dtype, max_num_seqs=max(batches), max_model_len=512, prefix_caching=False
    )
    engine = load_engine(files, read_profile(files), settings, verified_on=load_whitelist().verified_on)
    count = iter(range(1 << 30))

    def generate(prompts: list[list[int]], length: int) -> list[list[int]]:
        params = SamplingParams(max_tokens=length, ignore_eos=True)
        requests = [Request(str(next(count)), tuple(prompt), params) for prompt in prompts]
        return [list(completion.token_ids) for completion in engine.generate(requests)]

    return timed(generate, engine.profile.vocab_size, batches, long)


def transformers(folder: str, dtype: str, batches: list[int], long: int) -> dict[str, Any]:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()

    @torch.inference_mode()
    def generate(prompts: list[list[int]], length: int) -> list[list[int]]:
        ids = torch.tensor(prompts)
        options = {"max_new_tokens": length, "min_new_tokens": length, "do_sample": False, "pad_token_id": 0}
        return model.generate(ids, attention_mask=torch.ones_like(ids), **options)[:, PROMPT:].tolist()

    return timed(generate, model.config.vocab_size, batches, long)


def vllm(folder: str, dtype: str, batches: list[int], long: int) -> dict[str, Any]:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    from vllm import LLM, SamplingParams

    options = {"max_model_len": 512, "max_num_seqs": max(batches), "enforce_eager": True, "disable_log_stats": True}
    # The same prompts come several times here too.
    engine = LLM(folder, dtype=dtype, enable_prefix_caching=False, **options)

    def generate(prompts: list[list[int]], length: int) -> list[list[int]]:
        params = SamplingParams(temperature=0.0, max_tokens=length, ignore_eos=True, detokenize=False)
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        return [list(output.outputs[0].token_ids) for output in engine.generate(given, params, use_tqdm=False)]

    return timed(generate, engine.llm_engine.model_config.get_vocab_size(), batches, long)


def roofline(folder: str, dtype: str, batches: list[int], long: int) -> dict[str, Any]:
    """What the machine can do in `dtype`: bytes read and operations a second, and what a decoded step takes of each.

    Reading is the best of summing up and multiplying a vector by half a gigabyte, operations that of a square product.
    """
    del batches, long
    import torch
    from safetensors import safe_open

    kind = getattr(torch, dtype)
    numbers = 0
    for shard in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(shard, framework="pt") as stored:
            shapes = {name: stored.get_slice(name).get_shape() for name in stored.keys()}  # noqa: SIM118
        untied = "lm_head.weight" in shapes  # then a step reads a few rows of the input table
        counted = (shape for name, shape in shapes.items() if not (untied and "embed_tokens" in name))
        numbers += sum(torch.Size(shape).numel() for shape in counted)
    large, vector = torch.ones(1 << 15, 1 << 12), torch.ones(1 << 12)
    square = torch.ones(2048, 2048, dtype=kind)
    reading = min(_best(large.sum), _best(lambda: large @ vector))
    return {
        "read_bytes_per_s": large.nbytes / reading,
        "operations_per_s": 2 * 2048**3 / _best(lambda: square @ square),
        "step_bytes": numbers * kind.itemsize,
        "token_operations": 2 * numbers,
    }


def _best(run: Callable[[], object], times: int = 7) -> float:
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def load_day0(folder: str, dtype: str, batches: list[int], long: int) -> dict[str, Any]:
    """Seconds from headers to loaded parameters in the files' dtype, and of `load_file` on them before and after."""
    del dtype, batches, long
    from safetensors.torch import load_file

    from day0.coverage import load_whitelist
    from day0.plan.settings import EngineSettings
    from day0.profile.read import read_profile
    from day0.runtime.engine.load import load_engine
    from day0.source.resolve import resolve

    files = resolve(folder)
    profile = read_profile(files)
    assert files.tensors is not None
    stored = Counter(header.dtype for header in files.tensors.values()).most_common(1)[0][0]
    shards = sorted(Path(folder).glob("*.safetensors"))

    def by_library() -> float:
        started = time.perf_counter()
        held = [load_file(shard) for shard in shards]
        total = sum(
            float(tensor.flatten()[0]) + float(tensor.flatten()[-1]) for part in held for tensor in part.values()
        )
        assert total == total
        return time.perf_counter() - started

    def by_day0() -> dict[str, float]:
        phases: dict[str, float] = {}
        settings = EngineSettings(device="cpu", dtype=stored, max_num_seqs=1, max_model_len=64)
        load_engine(files, profile, settings, phases.__setitem__, verified_on=load_whitelist().verified_on)
        return phases

    by_library(), by_day0()  # files in the kernel's cache, allocator warm
    before, phases, after = by_library(), by_day0(), by_library()
    return {"load_file_s": min(before, after), "day0_s": phases["load"], "allocate_s": phases["allocate"]}


TASKS: dict[tuple[str, str], Callable[[str, str, list[int], int], dict[str, Any]]] = {
    ("day0", "decode"): day0,
    ("transformers", "decode"): transformers,
    ("vllm", "decode"): vllm,
    ("day0", "load"): load_day0,
    ("torch", "roofline"): roofline,
}

if __name__ == "__main__":
    peer, task, model, dtype, batches = sys.argv[1:6]
    answer = int(sys.argv[6]) if len(sys.argv) > 6 else 0
    print(json.dumps(TASKS[peer, task](model, dtype, [int(batch) for batch in batches.split(",")], answer)))
