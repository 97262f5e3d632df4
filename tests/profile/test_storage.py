"""How checkpoints lay tensors out: joined, stacked, turned."""

from __future__ import annotations

from day0.profile.draft import Draft
from day0.profile.storage import Storage, as_stored

GATE = Draft("ffn.experts.gate.weight", (6, 4), "routed_experts", 0, 6, experts=3)
UP = Draft("ffn.experts.up.weight", (6, 4), "routed_experts", 0, 6, experts=3)
DOWN = Draft("ffn.experts.down.weight", (4, 6), "routed_experts", 1, 6, experts=3)
JOINED = {"ffn.experts.gate_up": ("ffn.experts.gate", "ffn.experts.up")}


def stored(storage: Storage, *drafts: Draft) -> dict[str, Draft]:
    return {draft.path: draft for draft in as_stored(drafts, storage)}


def test_a_plain_storage_changes_nothing() -> None:
    assert list(as_stored((GATE, UP, DOWN), Storage())) == [GATE, UP, DOWN]


def test_experts_in_one_tensor() -> None:
    found = stored(Storage(JOINED, stacked_experts=True), GATE, UP, DOWN)
    joined, down = found["ffn.experts.gate_up.weight"], found["ffn.experts.down.weight"]
    assert (joined.shape, joined.shard_axis, joined.shard_units) == ((3, 12, 4), 1, 6)
    assert (down.shape, down.shard_axis, down.shard_units) == ((3, 4, 6), 2, 6)
    assert (joined.experts, joined.stacked, joined.num_parameters) == (0, 3, 3 * 12 * 4)


def test_matrices_that_begin_with_their_input() -> None:
    found = stored(Storage(JOINED, stacked_experts=True, input_first=True), GATE, UP, DOWN)
    joined, down = found["ffn.experts.gate_up.weight"], found["ffn.experts.down.weight"]
    assert (joined.shape, joined.shard_axis) == ((3, 4, 12), 2)
    assert (down.shape, down.shard_axis) == ((3, 6, 4), 1)


def test_biases_are_joined_and_stacked_but_not_turned() -> None:
    biases = [Draft(f"ffn.experts.{name}.bias", (6,), "routed_experts", 0, 6, experts=3) for name in ("gate", "up")]
    (joined,) = as_stored(biases, Storage(JOINED, stacked_experts=True, input_first=True))
    assert (joined.path, joined.shape, joined.shard_axis) == ("ffn.experts.gate_up.bias", (3, 12), 1)


def test_a_joined_tensor_is_cut_where_all_parts_can_be() -> None:
    parts = [
        Draft(f"mixer.{name}_proj.weight", (rows, 8), "attention", 0, units)
        for name, rows, units in (("q", 12, 6), ("k", 4, 2), ("v", 4, 2))
    ]
    rule = {"mixer.qkv_proj": ("mixer.q_proj", "mixer.k_proj", "mixer.v_proj")}
    (joined,) = as_stored(parts, Storage(rule))
    assert (joined.shape, joined.shard_units) == ((20, 8), 2)


def test_parts_stay_apart_where_one_is_missing() -> None:
    assert list(as_stored((GATE, DOWN), Storage(JOINED))) == [DOWN, GATE]


def test_a_leading_axis_of_one() -> None:
    bias = Draft("ffn.router.correction_bias", (3,), "router")
    (found,) = as_stored((bias,), Storage(unit_axis=(bias.path,)))
    assert found.shape == (1, 3) and found.num_parameters == 3
