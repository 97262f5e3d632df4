"""Text of models that see or hear, whose decoders run here and whose towers do not: against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from closeness import worst_error
from family_variants import SIZES, VARIANTS
from latent_configs import DEEPSEEK_V32
from random_models import cached_logits, logits_of, make_model, text_prompt

from day0.profile.profile import VisionTower
from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors
from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.engine import Engine
from day0.source.resolve import resolve

LIMIT = 1e-5
LENGTHS = (1, 17, 40)
TOWER: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "patch_size": 4,
}
QWEN_TOWER = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "out_hidden_size": 48,
    "patch_size": 4,
}
YARN = VARIANTS["ministral3"]["rope_parameters"]
WINDOWS = {"sliding_window": 9, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
AXES = {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 2]}
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "gemma3": (VARIANTS["gemma3_text"], TOWER | {"image_size": 16}, {"mm_tokens_per_image": 4}),
    "gemma4": (VARIANTS["gemma4_text experts"], TOWER | {"head_dim": 16, "num_key_value_heads": 2}, {}),
    "mistral3": ({"model_type": "mistral", "sliding_window": None}, TOWER | {"image_size": 16, "head_dim": 16}, {}),
    "mistral3 of ministral3": (
        {"model_type": "ministral3", "rope_parameters": YARN},
        TOWER | {"image_size": 16, "head_dim": 16},
        {},
    ),
    "llama4": (
        VARIANTS["llama4_text"],
        TOWER | {"image_size": 16, "vision_output_dim": 32, "projector_input_dim": 32, "projector_output_dim": 32},
        {},
    ),
    "glm4v_moe": (VARIANTS["glm4_moe"] | {"rope_parameters": AXES}, QWEN_TOWER | {"image_size": 16}, {}),
    "exaone4_5": (
        {"model_type": "exaone4"} | WINDOWS,
        QWEN_TOWER | {"num_key_value_heads": 2, "fullatt_block_indexes": [0]},
        {},
    ),
    "muse_glimmer": (WINDOWS, TOWER | {"pos_emb_height": 4, "pos_emb_width": 4}, {"out_hidden_size": 128}),
}
"""By model: edits of the text section, the tower's section, and keys of the top level."""


def make_wrapped(name: str, folder: Path) -> transformers.PreTrainedModel:
    """A random model of a small config, in transformers' own spelling, saved into `folder`."""
    edits, tower, top = MODELS[name]
    text = SIZES | edits
    tied = text["tie_word_embeddings"]
    config = transformers.AutoConfig.for_model(
        name.split()[0], text_config=text, vision_config=tower, tie_word_embeddings=tied, **top
    )
    torch.manual_seed(1)
    classes = transformers.AutoModelForImageTextToText
    model = classes.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    for tensor_name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if any(word in tensor_name for word in ("inv_freq", "embed_scale", "_min", "_max")):
            continue
        noise = torch.randn(tensor.shape)
        if "scalar" in tensor_name or ("norm" in tensor_name and tensor_name.endswith("weight")):
            tensor.data = tensor.mean().round() + 0.2 * noise
        elif tensor.is_floating_point():
            tensor.data = noise * 0.3 if tensor.dim() < 2 else noise / tensor.shape[-1] ** 0.5
    model.save_pretrained(folder)
    return model


@torch.no_grad()
def text_logits(model: transformers.PreTrainedModel, ids: list[int]) -> torch.Tensor:
    # Llama 4's wrapper fails without an image; its text model is called by itself.
    decoder = model.language_model if model.config.model_type == "llama4" else model
    logits: torch.Tensor = decoder(torch.tensor([ids])).logits[0]
    return logits


@pytest.mark.parametrize("name", MODELS)
def test_text_runs_without_the_tower(name: str, tmp_path: Path, make_engine) -> None:
    model = make_wrapped(name, tmp_path)
    files = resolve(str(tmp_path))
    profile = read_profile(files)
    comparison = compare_tensors(profile, files)
    assert comparison.missing == () and comparison.unexpected == ()
    assert profile.native and isinstance(profile.vision, VisionTower)
    told = [finding.message for finding in profile.findings if finding.code == "tower-not-native"]
    assert profile.vision.native or (len(told) == 1 and "takes text alone" in told[0])
    engine: Engine = make_engine(tmp_path, runtime="native", max_model_len=64, debug=True)
    assert (engine.vision is None) == (not profile.vision.native)
    for length in LENGTHS:
        wanted = text_logits(model, text_prompt(length))
        for chunk in (length, 7, 1):
            assert worst_error(engine.forward(text_prompt(length), chunk=chunk), wanted) < LIMIT, f"{length} by {chunk}"
    _check_batch(engine)


def _check_batch(engine: Engine) -> None:
    params = SamplingParams(max_tokens=3, ignore_eos=True, logprobs=1)
    requests = [Request(str(length), tuple(text_prompt(length)), params) for length in LENGTHS]
    for request, beside in zip(requests, engine.generate(requests), strict=True):
        alone = engine.generate([request])[0]
        assert beside.token_ids == alone.token_ids
        assert beside.logprobs == pytest.approx(alone.logprobs, rel=1e-5, abs=1e-5)


DOTS3 = {
    key: value for key, value in DEEPSEEK_V32.items() if key not in ("n_group", "topk_group", "moe_layer_freq")
} | {
    "model_type": "dots3_note_text",
    "architectures": ["Dots3NoteForCausalLM"],
    "num_hidden_layers": 4,
    "pad_token_id": 0,
    "rope_theta": 80000000.0,
    "rope_scaling": None,
    "swa_rope_theta": 50000.0,
    "layer_types": ["indexed_attention", "sliding_attention", "sliding_attention", "indexed_attention"],
    "sliding_window": 16,
    "head_dim": 20,
    "shared_experts_intermediate_size": 40,
    "per_layer_config": {
        layer: {
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "q_lora_rank": 20,
            "kv_lora_rank": 28,
            "head_dim": 20,
            "qk_nope_head_dim": 12,
            "v_head_dim": 10,
        }
        for layer in ("1", "2")
    },
}


def test_dots3(tmp_path: Path, make_engine) -> None:
    """Windows of their own sizes beside sparse layers; lengths around page and window (16) and what is read (24)."""
    model = make_model(DOTS3, tmp_path)
    engine: Engine = make_engine(tmp_path, runtime="native", debug=True)
    for length in (1, 15, 16, 17, 23, 24, 25, 63):
        wanted = logits_of(model, text_prompt(length))
        for chunk in (length, 7):
            assert worst_error(engine.forward(text_prompt(length), chunk=chunk), wanted) < LIMIT, f"{length} by {chunk}"
    assert worst_error(engine.forward(text_prompt(41), chunk=1), cached_logits(model, text_prompt(41), 18)) < LIMIT
    _check_batch(engine)


def test_mimo_is_qwen2_with_predictors(tmp_path: Path, make_engine) -> None:
    """Its published code adds predictors to Qwen2 and nothing to its forward."""
    config = SIZES | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    model = make_model(config, tmp_path)
    own = config | {"model_type": "mimo", "architectures": ["MiMoForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(own))
    engine: Engine = make_engine(tmp_path, runtime="native", max_model_len=64)
    assert engine.profile.family == "mimo"
    assert worst_error(engine.forward(text_prompt(40)), logits_of(model, text_prompt(40))) < LIMIT
    assert worst_error(engine.forward(text_prompt(40), chunk=7), logits_of(model, text_prompt(40))) < LIMIT
