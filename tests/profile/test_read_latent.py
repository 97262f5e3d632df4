"""Latent attention as configs spell it."""

from __future__ import annotations

from math import log, sqrt
from typing import Any

import pytest

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import LatentAttention, OutputGate, QueryTemperature
from day0.profile.read_latent import LATENT_NORM_EPS, LatentDefaults, read_latent

CONFIG: dict[str, Any] = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
    "rms_norm_eps": 1e-3,
}
YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 64}


def read(defaults: LatentDefaults = LatentDefaults(), window: int | None = None, **edits: Any) -> LatentAttention:
    values = {key: value for key, value in (CONFIG | edits).items() if value is not ...}
    return read_latent(ConfigReader(values, "config.json"), defaults, window)


def test_sizes_scale_and_cache() -> None:
    spec = read()
    assert spec.qk_head_dim == 16 and spec.value_width == 40
    assert spec.scale == 0.25
    assert spec.latent_norm_eps == LATENT_NORM_EPS
    (plane,) = spec.cache_planes()
    assert plane.shape == (24,) and plane.head_axis is None and plane.window is None


def test_a_window_is_one_of_the_cache_too() -> None:
    assert read(window=7).cache_planes()[0].window == 7


def test_queries_without_a_latent() -> None:
    assert read(q_lora_rank=None).q_lora_rank is None
    with pytest.raises(InputError, match="reads the query latent") as caught:
        read(LatentDefaults(needs_query_latent=True), q_lora_rank=None)
    assert "q_lora_rank" in caught.value.where


@pytest.mark.parametrize(
    ("factor", "mscale", "wanted"), [(40, 0.707, 0.707), (40, 1.0, 1.0), (1, 1.0, 0.0), (40, 0, 0.0)]
)
def test_yarn_corrects_the_softmax_scale(factor: float, mscale: float, wanted: float) -> None:
    spec = read(rope_scaling=YARN | {"factor": factor, "mscale": mscale, "mscale_all_dim": mscale})
    assert spec.scale == pytest.approx(0.25 * (0.1 * wanted * log(40) + 1) ** 2)


def test_yarn_without_the_correction_leaves_it() -> None:
    assert read(rope_scaling=YARN).scale == 0.25
    assert read(rope_scaling={"type": "linear", "factor": 4.0}).scale == 0.25


def test_the_slice_is_rotated_whole_whatever_share_of_the_head_it_is() -> None:
    section = {"rope_type": "default", "rope_theta": 5.0, "partial_rotary_factor": 0.25}
    rope = read(rope_parameters=section).rope
    assert rope is not None and (rope.dim, rope.theta, rope.layout) == (4, 5.0, "interleaved")
    assert read(rope_interleave=False).rope.layout == "neox"


def test_no_rotation_where_there_is_no_slice_or_no_position() -> None:
    assert read(qk_rope_head_dim=0).rope is None
    assert read(LatentDefaults(nope=True)).rope is None
    assert read(LatentDefaults(nope=True)).qk_rope_head_dim == 4


def test_what_families_add() -> None:
    gate = OutputGate(per="head")
    defaults = LatentDefaults(latent_eps=None, output_gate=gate, sinks=True, rope_key_norm=True, scaled_latents=True)
    spec = read(defaults, attention_bias=True)
    assert (spec.latent_norm_eps, spec.output_gate, spec.sinks, spec.bias) == (1e-3, gate, True, True)
    assert spec.rope_key_norm and spec.scaled_latents
    assert not read(LatentDefaults(bias=None), attention_bias=True).bias


def test_value_width_of_the_hidden_size_only_where_the_family_has_it() -> None:
    assert read(LatentDefaults(value_dim_of_hidden=True), v_head_dim=...).v_head_dim == 16
    with pytest.raises(InputError) as caught:
        read(v_head_dim=...)
    assert caught.value.where == "config.json: v_head_dim"


def test_queries_grow_with_the_position_where_the_config_says_how() -> None:
    section = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64, "rope_theta": 1e4}
    grown = read(LatentDefaults(temperature=True), rope_parameters=section | {"llama_4_scaling_beta": 0.1})
    assert grown.temperature == QueryTemperature(64.0, 0.1)
    assert read(LatentDefaults(temperature=True), rope_parameters=section).temperature is None


def test_fewer_key_value_heads_contradict_it() -> None:
    with pytest.raises(InputError, match="as many key/value heads") as caught:
        read(num_key_value_heads=2)
    assert caught.value.where == "config.json: num_key_value_heads"


def test_scale_is_that_of_one_head() -> None:
    assert read(qk_nope_head_dim=5).scale == pytest.approx(1 / sqrt(9))
