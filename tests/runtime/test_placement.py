"""Stored tensors taken apart: joined rows, rows by turns, stacks of experts turned our way round."""

from __future__ import annotations

import pytest
import torch

from day0.errors import InputError
from day0.profile.tensor_spec import TensorSpec
from day0.runtime.placement import parameter_paths, pieces, wanted_here


def spec(shape: tuple[int, ...], **changes: object) -> TensorSpec:
    return TensorSpec("x", "layers.0.ffn.gate_up.weight", shape, "F32", "dense_mlp", 0, **changes)


PARTS = (("layers.0.ffn.gate", 3), ("layers.0.ffn.up", 3))


def test_one_tensor_is_one_parameter() -> None:
    stored = torch.randn(6, 4)
    ((path, piece),) = pieces(spec((6, 4)), stored, "here")
    assert path == "layers.0.ffn.gate_up.weight"
    assert piece is stored


def test_joined_rows_are_split() -> None:
    stored = torch.randn(8, 4)
    parts = (("a.q", 5), ("a.k", 2), ("a.v", 1))
    found = dict(pieces(spec((8, 4), parts=parts), stored, "here"))
    assert list(found) == ["a.q.weight", "a.k.weight", "a.v.weight"]
    assert torch.equal(torch.cat(tuple(found.values())), stored)


def test_rows_by_turns_of_a_stack_stored_input_first() -> None:
    stored = torch.randn(2, 4, 6)  # [experts, in, out]
    found = dict(pieces(spec((2, 4, 6), parts=PARTS, by_turns=3, stacked=2, input_first=True), stored, "here"))
    assert torch.equal(found["layers.0.ffn.gate.weight"], stored[:, :, ::2].transpose(1, 2))
    assert torch.equal(found["layers.0.ffn.up.weight"], stored[:, :, 1::2].transpose(1, 2))


def test_heads_by_turns() -> None:
    """Two key heads, each with 1 row of q, 1 of k and 2 of v: that of the first, then that of the second."""
    stored = torch.arange(8.0)[:, None]
    parts = (("a.q", 2), ("a.k", 2), ("a.v", 4))
    found = dict(pieces(spec((8, 1), parts=parts, by_turns=2), stored, "here"))
    assert {path: piece[:, 0].tolist() for path, piece in found.items()} == {
        "a.q.weight": [0, 4],
        "a.k.weight": [1, 5],
        "a.v.weight": [2, 3, 6, 7],
    }


def test_biases_of_a_stack_are_split_behind_the_experts() -> None:
    stored = torch.randn(2, 6)
    found = tuple(piece for _, piece in pieces(spec((2, 6), parts=PARTS, stacked=2), stored, "here"))
    assert torch.equal(torch.cat(found, dim=1), stored)


def test_another_shape_is_an_error() -> None:
    with pytest.raises(InputError, match=r"has shape \[5, 4\]"):
        tuple(pieces(spec((6, 4), parts=PARTS), torch.randn(5, 4), "here"))


def test_what_no_module_has_is_left_out_only_beside_the_decoder() -> None:
    inside, beside = spec((6, 4)), TensorSpec("y", "mtp.layers.9.norm.weight", (4,), "F32", "mtp", 0)
    assert wanted_here((inside, beside), set()) == (inside,)
    assert wanted_here((inside, beside), {*parameter_paths(beside)}) == (inside, beside)
