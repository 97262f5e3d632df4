"""Routed experts with shared ones beside them, as DeepSeek's line of configs spells them."""

from __future__ import annotations

from typing import Any

import pytest

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import DenseFeedForward, FeedForward, RoutedExperts
from day0.profile.read_shared_experts import ExpertDefaults, read_shared_experts

CONFIG: dict[str, Any] = {
    "num_hidden_layers": 6,
    "vocab_size": 99,
    "intermediate_size": 96,
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 3,
}


def read(index: int = 5, defaults: ExpertDefaults = ExpertDefaults(), **edits: Any) -> FeedForward:
    return read_shared_experts(ConfigReader(CONFIG | edits, "config.json"), index, defaults=defaults)


def routed(**edits: Any) -> str:
    return "".join("E" if isinstance(read(layer, **edits), RoutedExperts) else "d" for layer in range(7))


@pytest.mark.parametrize(
    ("edits", "wanted"),
    [
        ({}, "EEEEEEE"),
        ({"first_k_dense_replace": 2}, "ddEEEEE"),
        ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, "ddEdEdE"),
        ({"first_k_dense_replace": 1, "moe_layer_freq": [1, 1, 0, 1, 0, 1]}, "dEdEdEE"),
        ({"first_k_dense_replace": 4, "mlp_layer_types": ["dense", *["sparse"] * 5]}, "dEEEEEE"),
    ],
)
def test_which_layers_have_experts(edits: dict[str, Any], wanted: str) -> None:
    assert routed(**edits) == wanted


@pytest.mark.parametrize(
    ("edits", "where"),
    [
        ({"mlp_layer_types": ["dense"] * 5}, "mlp_layer_types"),
        ({"mlp_layer_types": ["dense"] * 5 + ["thick"]}, "mlp_layer_types"),
        ({"moe_layer_freq": [1] * 5}, "moe_layer_freq"),
        ({"topk_method": "bottom"}, "topk_method"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok"),
    ],
)
def test_contradictions_name_the_field(edits: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError) as caught:
        read(**edits)
    assert caught.value.where == f"config.json: {where}"


def test_shared_experts_are_one_mlp() -> None:
    assert read().shared_width == 48
    other = ExpertDefaults(shared_width_key="shared_width")
    assert read(defaults=other, shared_width=10).shared_width == 30
    assert read(n_shared_experts=0).shared_width == 0


def test_how_experts_are_chosen() -> None:
    biased = read(n_group=4, topk_group=2).router
    assert (biased.correction_bias, biased.num_groups, biased.topk_groups, biased.best_of_group) == (True, 4, 2, False)
    greedy = read(topk_method="greedy", n_group=4, topk_group=2).router
    assert (greedy.correction_bias, greedy.num_groups, greedy.topk_groups) == (False, 1, 1)
    limited = read(topk_method="group_limited_greedy", n_group=4, topk_group=2).router
    assert (limited.correction_bias, limited.num_groups, limited.best_of_group) == (False, 4, True)
    assert not read(defaults=ExpertDefaults(bias=False)).router.correction_bias
    assert read(n_group=None, topk_group=None).router.num_groups == 1


def test_the_first_layers_may_route_by_hash() -> None:
    hashing = ExpertDefaults(hash_layers=3, scoring="sqrtsoftplus")
    tables = [read(layer, hashing).router for layer in range(7)]
    assert [router.hash_rows for router in tables] == [99, 99, 99, 0, 0, 0, 0]
    assert [router.correction_bias for router in tables] == [False] * 3 + [True] * 4
    words = ["hash_moe", *["moe"] * 5]
    assert [read(layer, hashing, mlp_layer_types=words).router.hash_rows for layer in range(7)] == [99, *[0] * 6]
    assert read(0, hashing, num_hash_layers=0).router.hash_rows == 0


def test_clamped_activations() -> None:
    everywhere = ExpertDefaults(limit=7.0, first_dense=1)
    assert read(0, everywhere).activation.limit == 7.0
    assert read(1, everywhere).activation.limit == 7.0 and read(1, everywhere).shared_activation is None
    only_routed = ExpertDefaults(limit=7.0, limit_everywhere=False, first_dense=1)
    dense, experts = read(0, only_routed), read(1, only_routed, swiglu_limit=5.0)
    assert isinstance(dense, DenseFeedForward) and dense.activation.limit is None
    assert experts.activation.limit == 5.0 and experts.shared_activation.limit is None
    assert read(1, everywhere, swiglu_limit=0).activation.limit is None
    assert read(1, swiglu_limit=5.0).activation.limit is None
