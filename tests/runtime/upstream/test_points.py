"""Trace points of transformers models: which are found, and what hooks may not miss."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from day0.errors import CannotSay
from day0.runtime.upstream.points import Point, decoder_layers, find_points, recorded, replacing


def names(model) -> set[str]:
    return {point.name for point in find_points(model)}


def test_layers_and_parts_are_told_apart(made) -> None:
    for name, layers in (("gemma3_text", 3), ("gpt2", 2), ("jamba", 4)):
        model = made(name).model
        assert len(decoder_layers(model)) == layers
        parts = {f"layers.{at}.{part}" for at in range(layers) for part in ("mixer_out", "ffn_out", "output")}
        assert parts <= names(model)
        assert "embed" in names(model)
    assert {"layers.1.mixer_out", "norm"} <= names(made("mamba2").model)
    assert not any("ffn" in name for name in names(made("mamba2").model))


def test_what_ran_twice_or_has_no_row_per_token_stays_out() -> None:
    once, twice, pooled = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    x = torch.ones(1, 3, 4)
    with recorded(
        [Point("once", once), Point("in", once, True), Point("twice", twice), Point("pooled", pooled)], 3
    ) as found:
        twice(twice(once(x)))
        pooled(x[:, :1])
    assert set(found) == {"once", "in"}
    assert found["once"].shape == (3, 4) and torch.equal(found["in"], x[0])
    assert not once._forward_hooks and not once._forward_pre_hooks


def test_embeddings_take_the_place_of_rows() -> None:
    table = nn.Embedding(5, 2)
    with replacing(table, {1: torch.tensor([7.0, 8.0])}):
        found = table(torch.tensor([[0, 1, 2]]))
    assert found[0, 1].tolist() == [7.0, 8.0]
    assert torch.equal(found[0, [0, 2]], table.weight[[0, 2]])
    assert torch.equal(table(torch.tensor([[1]]))[0, 0], table.weight[1])


def test_a_table_that_is_not_called_is_not_passed_over() -> None:
    with pytest.raises(CannotSay, match="in place of tokens"), replacing(nn.Embedding(5, 2), {0: torch.ones(2)}):
        pass
