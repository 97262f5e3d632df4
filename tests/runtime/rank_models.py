"""Small models, and what one rank makes of them, for tests of several ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from block_sparse_configs import TEXT as MINIMAX_M3
from linear_models import config_of, write_model
from packed_checkpoints import write_pair

from day0.plan.settings import EngineSettings
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.lead import LeadingEngine
from day0.runtime.engine.load import load_engine
from day0.runtime.skeleton import write_tiny
from day0.source.model_files import ModelFiles
from day0.source.resolve import resolve

LIMIT = 1e-5
"""Of float32 logits, over the largest of them."""
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "vocab_size": 263,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "sliding_window": 9,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "attention_bias": True,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "swiglu_limit": 7.0,
    "torch_dtype": "float32",
}
"""Biases on everything, sinks and windows; an uneven vocabulary and number of experts."""

MIXTURE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "vocab_size": 260,
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
"""Its experts are two groups of MXFP4 wide."""
MXFP4 = {
    "quant_method": "compressed-tensors",
    "format": "mxfp4-pack-quantized",
    "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 32}}
    },
    "ignore": ["re:.*self_attn.*", "re:.*lm_head.*", "re:.*gate$"],
}


def prompt(length: int, start: int = 0) -> list[int]:
    return [(91 * (start + place) + 7) % 250 for place in range(length)]


def requests() -> list[Request]:
    """Greedy and random ones, of several chunks and of one token."""
    return [
        Request(
            f"r{number}",
            tuple(prompt(length, number)),
            SamplingParams(6, 0.8 * (number % 2), seed=number, ignore_eos=True),
        )
        for number, length in enumerate((1, 17, 33))
    ]


@dataclass(frozen=True)
class Model:
    """A model, and what one rank makes of it: logits of a whole forward and of one in chunks, tokens of a batch."""

    files: ModelFiles
    profile: ArchitectureProfile
    engine: Engine
    logits: torch.Tensor
    chunked: torch.Tensor
    tokens: list[tuple[int, ...]]


def settings(**layout: Any) -> EngineSettings:
    return EngineSettings(
        device="cpu", dtype="float32", max_num_seqs=4, kv_cache_bytes=4 << 20, max_model_len=128, debug=True, **layout
    )


def written(name: str, folder: Path) -> Path:
    """The folder of a model that is put somewhere into `folder`."""
    if name == "gpt_oss":
        write_model(GPT_OSS, folder)
    elif name == "mxfp4":
        return write_pair(MIXTURE, MXFP4, folder)[0]
    elif name == "minimax_m3":
        write_model(MINIMAX_M3 | {"architectures": ["MiniMaxM3VLForCausalLM"], "dtype": "float32"}, folder)
    elif name == "nemotron_h":
        write_model(config_of(name) | {"vocab_size": 256}, folder)
    elif name == "tp3":
        write_model(MIXTURE | {"num_attention_heads": 6, "num_key_value_heads": 3, "moe_intermediate_size": 96}, folder)
    else:
        write_tiny(resolve(f"recipe:{name}"), folder)
    return folder


def distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest difference over the largest number."""
    return float((found - wanted).abs().max() / wanted.abs().max())


def agrees(model: Model, engine: LeadingEngine) -> None:
    """Logits of a whole forward and of one in chunks, and the tokens of a batch, are those of one rank."""
    assert engine.forward(prompt(40)).shape == model.logits.shape
    assert distance(engine.forward(prompt(40)), model.logits) < LIMIT
    assert distance(engine.forward(prompt(40), chunk=16), model.chunked) < LIMIT
    assert [done.token_ids for done in engine.generate(requests())] == model.tokens
    assert not engine.has_work()
    assert engine.stats().pages_free == engine.stats().pages_total


def one_rank(name: str, folder: Path) -> Model:
    """A model put into `folder`, run by one rank."""
    files = resolve(str(written(name, folder)))
    profile = read_profile(files)
    engine = load_engine(files, profile, settings())
    tokens = [done.token_ids for done in engine.generate(requests())]
    logits = engine.forward(prompt(40))
    chunked = engine.forward(prompt(40), chunk=16)
    assert distance(chunked, logits) < 2 * LIMIT  # rounding alone moves some models by this much
    return Model(files, profile, engine, logits, chunked, tokens)
