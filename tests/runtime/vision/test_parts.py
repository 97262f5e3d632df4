"""Single parts of towers: where their weights hang, and what no tower of a family shows."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from day0.profile.tower_blocks import BlockShape, block_parts
from day0.profile.tower_parts import (
    BranchEnd,
    EncoderAttention,
    GatedProduct,
    LearntTable,
    Nonlinearity,
    PatchEmbedding,
    PatchMerge,
    Projection,
    Stage,
    TowerNorm,
)
from day0.profile.tower_tensors import tower_tensors
from day0.profile.vision_tower import VisionTower
from day0.runtime.ops.registry import Operators
from day0.runtime.vision.grid import PatchGrid
from day0.runtime.vision.parts import Place
from day0.runtime.vision.tower_model import TowerModel

ITEMS = (PatchGrid(1, 4, 6), PatchGrid(1, 2, 2))


def model_of(*stages: Stage, ops: Operators, output: int = 8, positions: tuple[str, ...] = ()) -> TowerModel:
    tower = TowerModel(VisionTower("made", 1, 8, 2, 4, 1, (1, 1), positions, "none", output, stages), ops)
    generator = torch.Generator().manual_seed(0)
    for parameter in tower.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    return tower


def test_parameters_are_those_of_the_tensor_table(ops: Operators) -> None:
    """Names and shapes, of every part that stores something, flat and not."""
    shape = BlockShape(hidden=8, heads=2, kv_heads=1, mlp_width=12, norm="rms", eps=1e-6, activation="silu", gated=True)
    stages = (
        Stage(
            "vision.tower",
            (
                PatchEmbedding("patch_embed", 8, 3, (2, 4, 4), bias=True, flat=True),
                LearntTable("patch_embed.positions", (3, 5, 8), "grid", resampling="bicubic"),
                TowerNorm("stem_norm", 8, "layer_without_bias", 1e-6),
            ),
        ),
        Stage("vision.tower.blocks.{block}", block_parts(shape, window=2), (0, 1)),
        Stage("vision.deepstack.{block}", (TowerNorm("norm", 8, "layer", 1e-6),), (0,), taps=(1,)),
        Stage("vision.projector", (TowerNorm("norm", 8, "unit", 1e-6), Projection("proj", 8, 8, bias=True))),
    )
    tower = model_of(*stages, ops=ops)
    names: dict[str, str] = {path: path for path in _paths(stages)}
    table = {spec.path: spec.shape for spec in tower_tensors(stages, "vision", "F32", names)}
    assert {f"vision.{name}": tuple(value.shape) for name, value in tower.named_parameters()} == table
    assert tower.width == 16


def _paths(stages: tuple[Stage, ...]) -> set[str]:
    class Anything(dict[str, str]):
        def __missing__(self, key: str) -> str:
            self[key] = key
            return key

    found = Anything()
    tower_tensors(stages, "vision", "F32", found)
    return set(found)


def test_two_parts_at_one_path_are_a_defect(ops: Operators) -> None:
    place = Place(nn.Module(), "tower", ops)
    place.hang("norm", nn.Identity())
    with pytest.raises(AssertionError, match=r"two parts at tower\.norm"):
        place.hang("norm", nn.Identity())


def test_projections_in_a_row_read_what_they_are_for(ops: Operators) -> None:
    """One before a gated pair runs first; the pair reads what it gives; a branch's factor is the branch's alone."""
    parts = (
        Projection("first", 8, 8),
        Projection("gate", 8, 12),
        Projection("up", 8, 12),
        GatedProduct("gelu_tanh", 12),
        Projection("down", 12, 8),
        BranchEnd(8, factor=0.5),
        Nonlinearity("quick_gelu", 8),
    )
    tower = model_of(Stage("vision.tower", parts), ops=ops)
    weights = {name.split(".")[1]: value for name, value in tower.named_parameters()}
    x = torch.randn(28, 8, generator=torch.Generator().manual_seed(1))
    first = x @ weights["first"].T
    gate = functional.gelu(first @ weights["gate"].T, approximate="tanh")
    y = x + 0.5 * ((gate * (first @ weights["up"].T)) @ weights["down"].T)
    assert torch.allclose(tower.embed(x, ITEMS, None), y * torch.sigmoid(1.702 * y), rtol=1e-4, atol=1e-4)


def test_heads_of_keys_serve_several_of_queries(ops: Operators) -> None:
    shared = (Projection("q", 8, 16), Projection("k", 8, 8), Projection("v", 8, 8), EncoderAttention(4, 2, 4, 0.5))
    tower = model_of(Stage("vision.tower", shared), ops=ops, output=16)
    x = torch.randn(28, 8, generator=torch.Generator().manual_seed(1))
    q, k, v = (x @ weight.T for weight in tower.parameters())
    parts = []
    for rows in (slice(0, 24), slice(24, 28)):
        query = q[rows].unflatten(-1, (4, 4)).transpose(0, 1)
        key, value = (each[rows].unflatten(-1, (2, 4)).repeat_interleave(2, 1).transpose(0, 1) for each in (k, v))
        parts.append(functional.scaled_dot_product_attention(query, key, value, scale=0.5).transpose(0, 1).flatten(1))
    assert torch.allclose(tower.embed(x, ITEMS, None), torch.cat(parts), rtol=1e-4, atol=1e-4)


def test_what_follows_a_merge_sees_cells(ops: Operators) -> None:
    """A merge of merged patches is one merge of larger cells, and a side stretch leaves the road's items alone."""
    once = model_of(Stage("vision.tower", (PatchMerge(8, (4, 2)),)), ops=ops)
    twice = model_of(Stage("vision.tower", (PatchMerge(8, (2, 1)), PatchMerge(16, (2, 2)))), ops=ops)
    x, items = torch.arange(24 * 8.0).view(24, 8), (PatchGrid(1, 4, 6),)
    found = twice.embed(x, items, None)
    assert found.shape == once.embed(x, items, None).shape == (3, 64)
    assert torch.equal(found.sort(dim=1).values, once.embed(x, items, None).sort(dim=1).values)
    side = Stage("vision.deepstack.{block}", (PatchMerge(8, (2, 2)), Projection("down", 32, 8)), (0,), taps=(0,))
    road = (
        Stage("vision.tower.blocks.{block}", (BranchEnd(8),), (0,)),
        Stage("vision.projector", (PatchMerge(8, (2, 2)), Projection("down", 32, 8))),
    )
    both = model_of(*road, side, ops=ops)
    assert both.embed(x, items, None).shape == (6, 16)
