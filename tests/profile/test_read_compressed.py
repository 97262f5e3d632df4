"""DeepSeek-V4's attention as configs spell it."""

from __future__ import annotations

from typing import Any

import pytest

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import (
    CompressedSparseAttention,
    HeavilyCompressedAttention,
    Mixer,
    SharedKeyValueAttention,
)
from day0.profile.read_compressed import read_compressed_attention

CONFIG: dict[str, Any] = {
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "qk_rope_head_dim": 8,
    "q_lora_rank": 24,
    "o_groups": 2,
    "o_lora_rank": 12,
    "sliding_window": 16,
    "index_n_heads": 3,
    "index_head_dim": 8,
    "index_topk": 16,
    "rope_theta": 10000,
    "compress_rope_theta": 160000,
    "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 64},
}
LISTED = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"] + [
    "compressed_sparse_attention"
] * 2


def read(index: int, **edits: Any) -> Mixer:
    values = {key: value for key, value in (CONFIG | edits).items() if value is not ...}
    return read_compressed_attention(ConfigReader(values, "config.json"), index)


def kinds(layers: int = 5, **edits: Any) -> list[str]:
    return [read(layer, **edits).kind for layer in range(layers)]


class TestKinds:
    def test_by_ratio_by_word_and_by_turns(self) -> None:
        assert kinds(compress_ratios=[0, 4, 128, 4, 64]) == ["shared_kv", "csa", "hca", "csa", "hca"]
        assert kinds(layer_types=LISTED) == ["shared_kv", "csa", "hca", "csa", "csa"]
        assert kinds() == ["hca", "hca", "hca", "csa", "hca"]

    def test_predictors_use_the_window_unless_the_ratios_go_on(self) -> None:
        assert read(5, layer_types=LISTED).kind == read(5).kind == "shared_kv"
        assert read(5, compress_ratios=[0] * 5).kind == "shared_kv"
        assert read(5, compress_ratios=[0] * 5 + [4]).kind == "csa"

    def test_ratios(self) -> None:
        assert read(4, compress_ratios=[0, 4, 128, 4, 64]).ratio == 64
        assert read(2, layer_types=LISTED).ratio == 128
        assert read(2, layer_types=LISTED, compress_rates={"heavily_compressed_attention": 32}).ratio == 32
        assert read(1, layer_types=LISTED, compress_rate_csa=8).ratio == 8

    @pytest.mark.parametrize(
        ("edits", "where"),
        [
            ({"compress_ratios": [0] * 4}, "compress_ratios"),
            ({"compress_ratios": [-4] * 5}, "compress_ratios"),
            ({"layer_types": LISTED[:4]}, "layer_types"),
            ({"layer_types": ["full_attention"] * 5}, "layer_types"),
            ({"num_key_value_heads": 4}, "num_key_value_heads"),
            ({"o_groups": 3}, "o_groups"),
            ({"qk_rope_head_dim": 34}, "qk_rope_head_dim"),
        ],
    )
    def test_contradictions_name_the_field(self, edits: dict[str, Any], where: str) -> None:
        with pytest.raises(InputError) as caught:
            read(0, **edits)
        assert caught.value.where == f"config.json: {where}"


class TestRotation:
    def test_windowed_layers_turn_plainly_and_compressed_ones_by_their_own_base(self) -> None:
        window, sparse = read(0, layer_types=LISTED), read(1, layer_types=LISTED)
        assert isinstance(window, SharedKeyValueAttention) and isinstance(sparse, CompressedSparseAttention)
        assert (window.rope.theta, window.rope.scaling, window.rope.dim) == (10000.0, "none", 8)
        assert (sparse.attention.rope.theta, sparse.attention.rope.scaling) == (160000.0, "yarn")
        assert dict(sparse.attention.rope.parameters)["attention_factor"] == 1.0
        assert sparse.indexer.rope == sparse.attention.rope

    def test_sections_by_kind_say_the_same(self) -> None:
        nested = {
            "main": {"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.25},
            "compress": CONFIG["rope_scaling"] | {"rope_theta": 160000, "partial_rotary_factor": 0.25},
        }
        edits = {"rope_scaling": ..., "rope_theta": ..., "qk_rope_head_dim": ..., "partial_rotary_factor": 0.25}
        for layer in range(5):
            assert read(layer, layer_types=LISTED, rope_parameters=nested, **edits) == read(layer, layer_types=LISTED)


def test_what_each_kind_keeps() -> None:
    window, sparse, heavy = (read(layer, layer_types=LISTED) for layer in range(3))
    assert isinstance(heavy, HeavilyCompressedAttention)
    assert [(p.name, p.window, p.stride, p.index) for p in window.cache_planes()] == [("shared_kv", 16, 1, False)]
    assert [(p.name, p.window, p.stride, p.index) for p in sparse.cache_planes()] == [
        ("shared_kv", 16, 1, False),
        ("compressed_kv", None, 4, False),
        ("index", None, 4, True),
    ]
    assert [p.stride for p in heavy.cache_planes()] == [1, 128]
    dim, index_dim = sparse.attention.head_dim, sparse.indexer.head_dim
    tails = [plane.tail.shape for plane in sparse.cache_planes() if plane.tail is not None]
    assert tails == [(7, 4 * dim), (7, 4 * index_dim)], "two projections and their scores of all but the last token"
    assert [plane.tail.shape for plane in heavy.cache_planes() if plane.tail is not None] == [(127, 2 * dim)]
    assert not any(spec.state_shapes() for spec in (window, sparse, heavy))
