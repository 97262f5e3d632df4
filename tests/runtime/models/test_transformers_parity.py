"""Grouped-query decoders against transformers: float32 logits of tiny random models, config by config.

Weights are made and saved by transformers; the config beside them is the publisher's spelling, edited.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from closeness import relative_error, worst_error

from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors
from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.engine import Engine
from day0.runtime.ops.registry import choose_operators
from day0.runtime.skeleton import tiny_config
from day0.source.resolve import resolve

LIMIT = 1e-5
LENGTHS = (1, 15, 16, 17, 63, 100)
ABSENT = object()
"""Marks a key that is taken out of the config."""

RECIPES = {
    "llama": "llama-3.1-8b",
    "qwen3": "qwen3-0.6b",
    "mixtral": "mixtral-8x7b",
    "qwen3_moe": "qwen3-30b-a3b",
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama biases": {"attention_bias": True, "mlp_bias": True},
    "llama attention bias": {"attention_bias": True},
    "llama rope default": {"rope_scaling": None},
    "llama rope linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama rope yarn": {"rope_scaling": YARN},
    "llama rope yarn with betas": {"rope_scaling": YARN | {"beta_fast": 16.0, "beta_slow": 2.0}},
    "llama rope yarn not truncated": {"rope_scaling": YARN | {"truncate": False}},
    "llama rope yarn with magnitudes": {"rope_scaling": YARN | {"mscale": 1.0, "mscale_all_dim": 0.7}},
    "llama rope yarn with attention factor": {"rope_scaling": YARN | {"attention_factor": 1.3}},
    "llama rope parameters": {
        "rope_scaling": ABSENT,
        "rope_theta": ABSENT,
        "rope_parameters": YARN | {"rope_theta": 5000.0},
    },
    "llama rope theta absent": {"rope_theta": ABSENT, "rope_scaling": ABSENT},
    "llama tied": {"tie_word_embeddings": True},
    "llama one key/value head": {"num_key_value_heads": 1},
    "llama as many key/value heads": {"num_key_value_heads": 4},
    "llama key/value heads absent": {"num_key_value_heads": ABSENT},
    "llama head_dim absent": {"head_dim": ABSENT},
    "llama wide heads": {"head_dim": 24},
    "llama gelu": {"hidden_act": "gelu"},
    "llama gelu tanh": {"hidden_act": "gelu_pytorch_tanh"},
    "llama epsilon absent": {"rms_norm_eps": ABSENT},
    "llama has no window": {"sliding_window": 8},
    "qwen3": {},
    "qwen3 untied": {"tie_word_embeddings": False},
    "qwen3 attention bias": {"attention_bias": True},
    "qwen3 head_dim absent": {"head_dim": ABSENT},
    "qwen3 one key/value head": {"num_key_value_heads": 1},
    "qwen3 yarn": {"rope_scaling": YARN | {"type": "yarn"}},
    "qwen3 window not used": {"sliding_window": 8, "use_sliding_window": False, "max_window_layers": 0},
    "qwen3 window from layer 1": {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1},
    "qwen3 window by layer": {
        "sliding_window": 8,
        "use_sliding_window": True,
        "max_window_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "mixtral": {},
    "mixtral window": {"sliding_window": 8},
    "mixtral one expert": {"num_experts_per_tok": 1},
    "mixtral theta absent": {"rope_theta": ABSENT},
    "mixtral key/value heads absent": {"num_attention_heads": 8, "num_key_value_heads": ABSENT, "head_dim": 8},
    "mixtral tied": {"tie_word_embeddings": True},
    "qwen3_moe": {},
    "qwen3_moe weights not renormalised": {"norm_topk_prob": False},
    "qwen3_moe norm_topk_prob absent": {"norm_topk_prob": ABSENT},
    "qwen3_moe every second layer": {"decoder_sparse_step": 2, "mlp_only_layers": []},
    "qwen3_moe window": {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 2},
    "qwen3_moe attention bias": {"attention_bias": True},
    "qwen3_moe key/value heads absent": {"num_key_value_heads": ABSENT},
    "qwen3_moe head_dim absent": {"head_dim": ABSENT},
}


def prompt(length: int) -> list[int]:
    return [(91 * place + 7) % 256 for place in range(length)]


def edited_config(variant: str) -> dict[str, Any]:
    config = tiny_config(resolve(f"recipe:{RECIPES[variant.split()[0]]}")) | VARIANTS[variant]
    return {key: value for key, value in config.items() if value is not ABSENT}


def make_model(config: dict[str, Any], folder: Path) -> transformers.PreTrainedModel:
    """A random model of a config, saved into `folder` with that very config beside it."""
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(1)
    theirs = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(theirs, dtype=torch.float32, attn_implementation="eager")
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape)
        if "norm" in name:
            parameter.data = 1 + 0.2 * noise
        elif parameter.dim() == 1:
            parameter.data = 0.3 * noise
        else:
            parameter.data = noise / (1 if "embed" in name else parameter.shape[-1] ** 0.5)
    model.eval().save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    return model


@torch.no_grad()
def logits_of(model: transformers.PreTrainedModel, ids: list[int]) -> torch.Tensor:
    return model(torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_agree(variant: str, tmp_path: Path, make_engine) -> None:
    model = make_model(edited_config(variant), tmp_path)
    engine: Engine = make_engine(tmp_path)
    for length in LENGTHS:
        ids = prompt(length)
        wanted = logits_of(model, ids)
        found = engine.forward(ids)
        assert worst_error(found, wanted) < LIMIT, f"{length} tokens"
        if length in (17, 100):
            assert worst_error(engine.forward(ids, chunk=16), wanted) < LIMIT, f"{length} tokens in chunks"
    assert worst_error(engine.forward(prompt(17), chunk=1), logits_of(model, prompt(17))) < LIMIT


def test_a_variant_is_another_model() -> None:
    """Each edit changes the profile, else the case above shows nothing; those named `absent` fall back to the same."""
    profiles = {}
    for variant in VARIANTS:
        family = variant.split()[0]
        files = resolve(f"recipe:{RECIPES[family]}")
        config = edited_config(variant)
        profile = read_profile(type(files)("x", None, "config", None, config, "config.json", None, (), (), {}))
        profiles[variant] = profile.layers, profile.tie_word_embeddings, profile.norm_eps
    same = {
        variant for variant in VARIANTS if variant not in RECIPES and profiles[variant] == profiles[variant.split()[0]]
    }
    assert same == {
        "llama head_dim absent",
        "llama has no window",
        "qwen3 window not used",
        "mixtral theta absent",
    }


@pytest.fixture(scope="module", params=RECIPES)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, make_engine
) -> tuple[transformers.PreTrainedModel, Engine, Path]:
    folder = tmp_path_factory.mktemp("model")
    model = make_model(edited_config(request.param), folder)
    return model, make_engine(folder), folder


def test_chunks_and_decode(pair) -> None:
    _, engine, _ = pair
    whole = engine.forward(prompt(63))
    for chunk in (1, 7, 16, 31, 62):
        assert worst_error(engine.forward(prompt(63), chunk=chunk), whole) < LIMIT, f"chunks of {chunk}"


def test_the_fused_attention_kernel(pair, make_engine) -> None:
    model, _, folder = pair
    forced = {"paged_gqa_attention": "torch-sdpa"}
    fused = make_engine(folder, ops=choose_operators(torch.device("cpu"), torch.float32, forced=forced))
    assert worst_error(fused.forward(prompt(63)), logits_of(model, prompt(63))) < LIMIT
    assert worst_error(fused.forward(prompt(63), chunk=7), logits_of(model, prompt(63))) < LIMIT


def test_greedy_continuation(pair) -> None:
    model, engine, _ = pair
    ids = prompt(17)
    for _ in range(12):
        ids.append(int(logits_of(model, ids)[-1].argmax()))
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    assert list(engine.generate([Request("a", tuple(prompt(17)), params)])[0].token_ids) == ids[17:]


def test_a_batch_gives_what_each_gets_alone(pair) -> None:
    _, engine, _ = pair
    params = SamplingParams(max_tokens=9, ignore_eos=True, logprobs=5)
    requests = [Request(str(length), tuple(prompt(length)), params) for length in LENGTHS]
    together = engine.generate(requests)
    for request, beside in zip(requests, together, strict=True):
        alone = engine.generate([request])[0]
        assert beside.token_ids == alone.token_ids
        assert beside.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


def test_bfloat16(pair, make_engine) -> None:
    model, _, folder = pair
    logits = make_engine(folder, dtype="bfloat16").forward(prompt(17))
    assert logits.dtype == torch.float32
    assert 1e-4 < relative_error(logits, logits_of(model, prompt(17))) < 0.2


def test_what_transformers_saves_can_be_read(pair, tmp_path: Path, make_engine) -> None:
    model, engine, _ = pair
    model.save_pretrained(tmp_path)
    files = resolve(str(tmp_path))
    profile = read_profile(files)
    assert compare_tensors(profile, files).missing == ()
    assert profile.unused_config_keys == ()
    assert profile.layers == engine.profile.layers
    assert torch.equal(make_engine(tmp_path).forward(prompt(17)), engine.forward(prompt(17)))


def test_a_wrong_weight_is_noticed(pair, make_engine) -> None:
    model, _, folder = pair
    engine: Engine = make_engine(folder)
    weight = engine.model.layers[1].mixer.k_proj.weight
    weight.copy_(weight.roll(1, dims=0))
    assert worst_error(engine.forward(prompt(17)), logits_of(model, prompt(17))) > 100 * LIMIT
