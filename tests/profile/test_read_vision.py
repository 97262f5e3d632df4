from __future__ import annotations

from typing import Any

import pytest

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import VisionSpec
from day0.profile.read_vision import read_kimi_vision

VISION_CONFIG: dict[str, Any] = {
    "_attn_implementation": "flash_attention_2",
    "activation_func": "gelu_pytorch_tanh",
    "attn_bias": False,
    "init_pos_emb_height": 64,
    "init_pos_emb_time": 4,
    "init_pos_emb_width": 32,
    "linear_bias": False,
    "merge_kernel_size": [2, 2],
    "merge_type": "sd2_tpool",
    "mlp_type": "mlp2",
    "mm_hidden_size": 1024,
    "mm_projector_type": "patchmergerv2",
    "norm_type": "rmsnorm",
    "patch_embed_proj_bias": False,
    "patch_size": 14,
    "pos_emb_interpolation_mode": "bilinear",
    "pos_emb_type": "divided_fixed",
    "projector_hidden_act": "gelu",
    "projector_ln_eps": 1e-05,
    "qkv_hidden_size": 1536,
    "text_hidden_size": 7168,
    "vt_hidden_size": 1024,
    "vt_intermediate_size": 4096,
    "vt_num_attention_heads": 12,
    "vt_num_hidden_layers": 27,
}


def config(**changes: object) -> dict[str, Any]:
    """A config with some keys of its vision section changed; a key set to ... is left out."""
    section = {key: value for key, value in (VISION_CONFIG | changes).items() if value is not ...}
    return {
        "media_placeholder_token_id": 163605,
        "text_config": {"hidden_size": 7168},
        "vision_config": section,
    }


def test_every_field_comes_from_its_key() -> None:
    reader = ConfigReader(config(), "config.json")
    assert read_kimi_vision(reader) == VisionSpec(
        patch_size=14,
        hidden_size=1024,
        qkv_size=1536,
        num_layers=27,
        num_heads=12,
        mlp_width=4096,
        position_grid=(64, 32),
        position_frames=4,
        merge=(2, 2),
        text_hidden_size=7168,
        norm_eps=2.0**-23,
        projector_norm_eps=1e-5,
        placeholder_token_id=163605,
    )
    assert reader.unused() == ()
    assert reader.defaulted == ()


def test_derived_widths() -> None:
    spec = read_kimi_vision(ConfigReader(config(), "config.json"))
    assert spec is not None
    assert (spec.head_dim, spec.merged_size) == (128, 4096)


def test_a_text_model_has_no_tower() -> None:
    assert read_kimi_vision(ConfigReader({"text_config": {"hidden_size": 8}}, "config.json")) is None


def test_a_new_key_is_left_for_the_report() -> None:
    reader = ConfigReader(config(window_size=8), "config.json")
    read_kimi_vision(reader)
    assert reader.unused() == ("vision_config.window_size",)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("pos_emb_type", "learnable", "'learnable' is not known"),
        ("pos_emb_interpolation_mode", "bicubic", "'bicubic' is not known"),
        ("norm_type", "layernorm", "'layernorm' is not known"),
        ("mlp_type", "swiglu", "'swiglu' is not known"),
        ("merge_type", "concat", "'concat' is not known"),
        ("mm_projector_type", "patchmerger", "'patchmerger' is not known"),
        ("attn_bias", True, "biases"),
        ("linear_bias", True, "biases"),
        ("patch_embed_proj_bias", True, "biases"),
        ("patch_size", ..., "is missing"),
        ("merge_kernel_size", [2, 2, 2], "two positive integers"),
        ("merge_kernel_size", [0, 2], "two positive integers"),
        ("text_hidden_size", 4096, "is 4096, the text model's hidden size is 7168"),
        ("mm_hidden_size", 1152, "must equal vt_hidden_size, 1024"),
        ("qkv_hidden_size", 1530, "must divide into 12 heads"),
        ("qkv_hidden_size", 12 * 6, "multiple of 4"),
        ("vt_num_hidden_layers", 27.5, "an integer"),
    ],
)
def test_what_the_tower_cannot_be_is_an_error_that_names_the_key(key: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_kimi_vision(ConfigReader(config(**{key: value}), "config.json"))
    assert caught.value.where == f"config.json: vision_config.{key}"


def test_an_odd_width_cannot_hold_the_time_signal() -> None:
    with pytest.raises(InputError, match="must be even"):
        read_kimi_vision(ConfigReader(config(vt_hidden_size=1023, mm_hidden_size=1023), "config.json"))


def test_the_placeholder_id_is_required() -> None:
    document = config()
    del document["media_placeholder_token_id"]
    with pytest.raises(InputError, match="is missing") as caught:
        read_kimi_vision(ConfigReader(document, "config.json"))
    assert caught.value.where == "config.json: media_placeholder_token_id"
