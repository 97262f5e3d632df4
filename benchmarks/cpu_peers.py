"""One measurement of one engine in a process of its own: `python cpu_peers.py PEER TASK MODEL DTYPE BATCH`.

Runs in the interpreter of the peer (vLLM has its own environment) and so imports nothing of day0 but in `day0`'s own.
Prints one JSON object. Decoding is timed apart from prefill: by two runs of different length, whose difference is
pure decoding whatever an engine does before its first token.
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

PROMPT, SHORT, LONG = 128, 8, 72
"""Tokens of a prompt, and of the two answers; LONG - SHORT decoded tokens are what is timed."""

Generate = Callable[[list[list[int]], int], list[list[int]]]
"""From prompts and a number of new tokens to the answers, greedy and without an end token."""


def prompts_for(batch: int, vocab: int) -> list[list[int]]:
    """As many different prompts; ids spread over the vocabulary."""
    return [
        [(7919 * (place + 1) + 104729 * row) % (vocab - 64) + 32 for place in range(PROMPT)] for row in range(batch)
    ]


def timed(generate: Generate, prompts: list[list[int]]) -> dict[str, Any]:
    generate(prompts, SHORT)  # warm
    seconds, answers = {}, {}
    for length in (SHORT, LONG):
        started = time.perf_counter()
        answers[length] = generate(prompts, length)
        seconds[length] = time.perf_counter() - started
    assert all(len(answer) == LONG for answer in answers[LONG]), [len(answer) for answer in answers[LONG]]
    decoded = len(prompts) * (LONG - SHORT)
    return {
        "decode_tokens_per_s": decoded / (seconds[LONG] - seconds[SHORT]),
        "throughput_tokens_per_s": len(prompts) * LONG / seconds[LONG],
        "first": answers[LONG][0][:8],
    }


def day0(folder: str, dtype: str, batch: int) -> dict[str, Any]:
    from day0.coverage import load_whitelist
    from day0.plan.settings import EngineSettings
    from day0.profile.read import read_profile
    from day0.runtime.batch import Request, SamplingParams
    from day0.runtime.engine.load import load_engine
    from day0.source.resolve import resolve

    files = resolve(folder)
    # The same prompts come several times, and what is measured is computing them.
    settings = EngineSettings(device="cpu", dtype=dtype, max_num_seqs=batch, max_model_len=512, prefix_caching=False)
    engine = load_engine(files, read_profile(files), settings, verified_on=load_whitelist().verified_on)
    count = iter(range(1 << 30))

    def generate(prompts: list[list[int]], length: int) -> list[list[int]]:
        params = SamplingParams(max_tokens=length, ignore_eos=True)
        requests = [Request(str(next(count)), tuple(prompt), params) for prompt in prompts]
        return [list(completion.token_ids) for completion in engine.generate(requests)]

    return timed(generate, prompts_for(batch, engine.profile.vocab_size))


def transformers(folder: str, dtype: str, batch: int) -> dict[str, Any]:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()

    @torch.inference_mode()
    def generate(prompts: list[list[int]], length: int) -> list[list[int]]:
        ids = torch.tensor(prompts)
        options = {"max_new_tokens": length, "min_new_tokens": length, "do_sample": False, "pad_token_id": 0}
        return model.generate(ids, attention_mask=torch.ones_like(ids), **options)[:, PROMPT:].tolist()

    return timed(generate, prompts_for(batch, model.config.vocab_size))


def vllm(folder: str, dtype: str, batch: int) -> dict[str, Any]:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    from vllm import LLM, SamplingParams

    engine = LLM(folder, dtype=dtype, max_model_len=512, max_num_seqs=batch, enforce_eager=True, disable_log_stats=True)

    def generate(prompts: list[list[int]], length: int) -> list[list[int]]:
        params = SamplingParams(temperature=0.0, max_tokens=length, ignore_eos=True, detokenize=False)
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        return [list(output.outputs[0].token_ids) for output in engine.generate(given, params, use_tqdm=False)]

    return timed(generate, prompts_for(batch, engine.llm_engine.model_config.get_vocab_size()))


def load_day0(folder: str, dtype: str, batch: int) -> dict[str, Any]:
    """Seconds from headers to loaded parameters in the files' dtype, and of `load_file` on them before and after."""
    del dtype, batch
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

    def by_day0() -> float:
        phases: dict[str, float] = {}
        settings = EngineSettings(device="cpu", dtype=stored, max_num_seqs=1, max_model_len=64)
        load_engine(files, profile, settings, phases.__setitem__, verified_on=load_whitelist().verified_on)
        return phases["load"]

    by_library(), by_day0()  # files in the kernel's cache, allocator warm
    return {"load_file_s": by_library(), "day0_s": by_day0(), "load_file_again_s": by_library()}


TASKS: dict[tuple[str, str], Callable[[str, str, int], dict[str, Any]]] = {
    ("day0", "decode"): day0,
    ("transformers", "decode"): transformers,
    ("vllm", "decode"): vllm,
    ("day0", "load"): load_day0,
}

if __name__ == "__main__":
    peer, task, model, dtype, batch = sys.argv[1:6]
    print(json.dumps(TASKS[peer, task](model, dtype, int(batch))))
