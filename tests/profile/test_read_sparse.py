"""DeepSeek sparse attention as configs spell it."""

from __future__ import annotations

from typing import Any

import pytest

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import SparseLatentAttention
from day0.profile.read_latent import LatentDefaults
from day0.profile.read_sparse import (
    IndexDefaults,
    every_fourth_indexer,
    read_sparse_everywhere,
    scheduled_indexers,
)

CONFIG: dict[str, Any] = {
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
    "index_n_heads": 3,
    "index_head_dim": 8,
    "index_topk": 16,
}


def reader(**edits: Any) -> ConfigReader:
    return ConfigReader(CONFIG | edits, "config.json")


def read(index: int = 0, defaults: IndexDefaults = IndexDefaults(), **edits: Any) -> SparseLatentAttention:
    return read_sparse_everywhere(reader(**edits), index, latent=LatentDefaults(), defaults=defaults)


def runs(rule, **edits: Any) -> str:
    config = reader(**edits)
    return "".join("F" if rule(config, layer) else "S" for layer in range(7))


class TestSchedule:
    @pytest.mark.parametrize(
        ("edits", "wanted"),
        [
            ({}, "FFFFFFF"),
            ({"index_topk_freq": 4}, "FFSSSFS"),
            ({"index_topk_freq": 3, "index_skip_topk_offset": 1}, "FSSFSSF"),
            ({"index_topk_freq": 0}, "FFFFFFF"),
            ({"index_topk_pattern": "FSFSFSS"}, "FSFSFSS"),
            ({"index_topk_pattern": ["full", *["shared"] * 6]}, "FSSSSSS"),
            ({"indexer_types": ["full", *["shared"] * 6], "index_topk_pattern": "FFFFFFF"}, "FSSSSSS"),
        ],
    )
    def test_by_list_pattern_or_period(self, edits: dict[str, Any], wanted: str) -> None:
        assert runs(scheduled_indexers, **edits) == wanted

    def test_hunyuan_runs_one_in_four_where_nothing_is_listed(self) -> None:
        assert runs(every_fourth_indexer) == "FFSSSFS"
        assert runs(every_fourth_indexer, indexer_types=["full"] * 7) == "FFFFFFF"

    @pytest.mark.parametrize("rule", [scheduled_indexers, every_fourth_indexer])
    def test_a_predictor_has_its_own(self, rule) -> None:
        assert rule(reader(indexer_types=["full", *["shared"] * 6]), 7)

    def test_a_listed_schedule_leaves_no_key_unread(self) -> None:
        config = reader(indexer_types=["full"] * 7, index_topk_freq=4, index_skip_topk_offset=3)
        assert scheduled_indexers(config, 1)
        assert not {key for key in config.unused() if key.startswith("index_")} & {
            "index_topk_freq",
            "index_skip_topk_offset",
        }

    @pytest.mark.parametrize("words", [["full"] * 6, ["full"] * 6 + ["half"]])
    def test_a_wrong_list_is_refused(self, words: list[str]) -> None:
        with pytest.raises(InputError) as caught:
            scheduled_indexers(reader(indexer_types=words), 0)
        assert caught.value.where == "config.json: indexer_types"

    def test_a_choice_must_have_been_made_before_it_is_reused(self) -> None:
        defaults = IndexDefaults(runs=scheduled_indexers)
        with pytest.raises(InputError, match="layer 0 reuses"):
            read(0, defaults, indexer_types=["shared"] * 7)
        assert read(1, defaults, index_topk_pattern="FSSSSSS").indexer is None


def test_the_indexer_and_its_keys() -> None:
    spec = read()
    assert spec.indexer is not None and spec.top_k == 16
    latent, index = spec.cache_planes()
    assert (latent.shape, latent.index) == ((24,), False)
    assert (index.shape, index.index, index.stride) == ((8,), True, 1)


def test_the_indexer_turns_in_its_own_layout() -> None:
    assert read().indexer.rope.layout == "neox"
    assert read().attention.rope.layout == "interleaved"
    assert read(indexer_rope_interleave=True).indexer.rope.layout == "interleaved"


def test_pooled_keys() -> None:
    spec = read(defaults=IndexDefaults(pool=16), index_kpool=4).indexer
    assert (spec.pool, spec.pool_tail, spec.cache_plane().stride) == (4, True, 4)
    assert read(defaults=IndexDefaults(pool=16)).indexer.pool == 16
    with pytest.raises(InputError, match="whole pools"):
        read(defaults=IndexDefaults(pool=16), index_kpool=5)


def test_more_rotated_channels_than_the_indexer_has_are_refused() -> None:
    with pytest.raises(InputError, match="rotates 4 of its 2"):
        read(index_head_dim=2)


def test_another_kind_of_layer_is_refused() -> None:
    assert read(layer_types=["indexed_attention"] * 7).indexer is not None
    with pytest.raises(InputError, match="sliding_attention"):
        read(layer_types=["sliding_attention"] * 7)
