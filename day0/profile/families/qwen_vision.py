"""Vision towers of the Qwen line: Qwen2-VL, Qwen2.5-VL (windows; also in EXAONE 4.5), Qwen3-VL (also in Qwen3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import isqrt

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.tower_names import BLOCK, GATED, table_names, tower_names
from day0.profile.read_vision_tower import (
    read_blocks,
    read_blocks_listed,
    read_channels,
    read_head_dim,
    read_placeholders,
    read_side,
    read_theta,
    read_tower_activation,
    tower_section,
)
from day0.profile.tower_blocks import BlockShape, block_parts, mlp_parts
from day0.profile.tower_parts import LearntTable, Part, PatchEmbedding, PatchMerge, Stage, TowerNorm
from day0.profile.vision_tower import VisionTower

_EPS = 1e-6
"""Epsilon of every norm of these towers; no config names it."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What all configs of the line say in the same words."""

    depth: int
    heads: int
    patch: int
    frames: int
    merge: int
    channels: int
    theta: float


def _read_sizes(section: ConfigReader, *, depth: int, patch: int) -> _Sizes:
    # The first releases say `in_chans`; that a patch is so many pixels on either side they say twice. How many
    # positions a second of video takes is for the text model's positions.
    section.ignore("in_chans", "spatial_patch_size", "tokens_per_second")
    return _Sizes(
        depth=read_blocks(section, "depth", depth),
        heads=section.integer("num_heads", 16),
        patch=read_side(section, "patch_size", patch),
        frames=read_side(section, "temporal_patch_size", 2),
        merge=section.integer("spatial_merge_size", 2),
        channels=read_channels(section, "in_chans" if section.has("in_chans") else "in_channels"),
        theta=read_theta(section),
    )


def _patches(sizes: _Sizes, width: int, *, bias: bool) -> PatchEmbedding:
    return PatchEmbedding("patch_embed", width, sizes.channels, (sizes.frames, sizes.patch, sizes.patch), bias)


def _merger(norm: TowerNorm, width: int, merge: int, output: int, *, norm_first: bool = True) -> tuple[Part, ...]:
    """A norm before or after patches are joined, then an MLP as wide as a joined patch."""
    joined = width * merge**2
    cell = PatchMerge(width, (merge, merge))
    ends: tuple[Part, ...] = (norm, cell) if norm_first else (cell, norm)
    up, activation, down = mlp_parts("mlp", (joined, joined, output), "gelu", bias=True)
    return *ends, up, activation, down


def _block_groups(shape: BlockShape, depth: int, full: tuple[int, ...], window: int | None) -> tuple[Stage, ...]:
    """Blocks in order; neighbours that see alike are one stage."""
    stages: list[Stage] = []
    for block in range(depth):
        parts = block_parts(shape, window=None if block in full else window)
        if stages and stages[-1].parts == parts and stages[-1].blocks is not None:
            stages[-1] = Stage(BLOCK, parts, (*stages[-1].blocks, block))
        else:
            stages.append(Stage(BLOCK, parts, (block,)))
    return tuple(stages)


def read_windowed_tower(
    top: ConfigReader, *, full: tuple[int, ...] = (7, 15, 23, 31), kv_heads: int = 0, native: bool = True
) -> VisionTower:
    """Qwen2.5-VL's tower: RMS norms, gated MLPs, windows of `window_size` pixels in all blocks but the listed ones."""
    section = tower_section(top)
    sizes = _read_sizes(section, depth=32, patch=14)
    hidden, output = section.integer("hidden_size", 3584), section.integer("out_hidden_size", 3584)
    window = section.integer("window_size", 112)
    side = window // sizes.patch // sizes.merge * sizes.merge
    if not side:
        raise InputError(f"{window} pixels hold no merged patch", where=section.where("window_size"))
    head_dim = read_head_dim(section, hidden, sizes.heads, key="num_heads", multiple=4)
    groups = section.integer("num_key_value_heads", kv_heads) if kv_heads else sizes.heads
    if sizes.heads % groups:
        raise InputError(f"must divide {sizes.heads} heads", where=section.where("num_key_value_heads"))
    shape = BlockShape(
        hidden=hidden,
        heads=sizes.heads,
        kv_heads=groups,
        head_dim=head_dim,
        mlp_width=section.integer("intermediate_size", 3420),
        norm="rms",
        eps=_EPS,
        activation=read_tower_activation(section, "hidden_act", "silu"),
        gated=True,
        theta=sizes.theta,
    )
    full = read_blocks_listed(section, "fullatt_block_indexes", full, sizes.depth)
    norm = TowerNorm("norm", hidden, "rms", _EPS)
    return VisionTower(
        kind="qwen2_5_vl",
        num_layers=sizes.depth,
        hidden_size=hidden,
        num_heads=sizes.heads,
        patch_size=sizes.patch,
        temporal_patch_size=sizes.frames,
        merge=(sizes.merge, sizes.merge),
        positions=("rotary",),
        projector="merger",
        output_size=output,
        window=window,
        full_blocks=full,
        placeholders=_placeholders(top),
        native=native,
        stages=(
            Stage("vision.tower", (_patches(sizes, hidden, bias=False),)),
            *_block_groups(shape, sizes.depth, full, side),
            Stage("vision.projector", _merger(norm, hidden, sizes.merge, output)),
        ),
    )


def read_qwen2_tower(top: ConfigReader) -> VisionTower:
    """Qwen2-VL's tower, whose section calls the tower's width `embed_dim` and the text model's `hidden_size`."""
    section = tower_section(top)
    sizes = _read_sizes(section, depth=32, patch=14)
    hidden, output = section.integer("embed_dim", 1280), section.integer("hidden_size", 3584)
    shape = BlockShape(
        hidden=hidden,
        heads=sizes.heads,
        head_dim=read_head_dim(section, hidden, sizes.heads, key="num_heads", multiple=4),
        mlp_width=int(hidden * section.number("mlp_ratio", 4)),
        norm="layer",
        eps=_EPS,
        activation=read_tower_activation(section, "hidden_act", "quick_gelu"),
        theta=sizes.theta,
    )
    norm = TowerNorm("norm", hidden, "layer", _EPS)
    return VisionTower(
        kind="qwen2_vl",
        num_layers=sizes.depth,
        hidden_size=hidden,
        num_heads=sizes.heads,
        patch_size=sizes.patch,
        temporal_patch_size=sizes.frames,
        merge=(sizes.merge, sizes.merge),
        positions=("rotary",),
        projector="merger",
        output_size=output,
        placeholders=_placeholders(top),
        native=True,
        stages=(
            Stage("vision.tower", (_patches(sizes, hidden, bias=False),)),
            Stage(BLOCK, block_parts(shape), tuple(range(sizes.depth))),
            Stage("vision.projector", _merger(norm, hidden, sizes.merge, output)),
        ),
    )


def read_qwen3_tower(top: ConfigReader, *, deepstack: tuple[int, ...] = (8, 16, 24)) -> VisionTower:
    """Qwen3-VL's tower: a learnt grid besides the rotation; `deepstack` blocks reach the text model's first layers."""
    section = tower_section(top)
    sizes = _read_sizes(section, depth=27, patch=16)
    hidden, output = section.integer("hidden_size", 1152), section.integer("out_hidden_size", 3584)
    shape = BlockShape(
        hidden=hidden,
        heads=sizes.heads,
        head_dim=read_head_dim(section, hidden, sizes.heads, key="num_heads", multiple=4),
        mlp_width=section.integer("intermediate_size", 4304),
        norm="layer",
        eps=_EPS,
        activation=read_tower_activation(section, "hidden_act", "gelu_pytorch_tanh"),
        theta=sizes.theta,
    )
    places = section.integer("num_position_embeddings", 2304)
    if isqrt(places) ** 2 != places:
        raise InputError(f"{places} places are no square", where=section.where("num_position_embeddings"))
    grid = LearntTable("positions", (places, hidden), "grid", module=True, resampling="bilinear_corners")
    stack = read_blocks_listed(section, "deepstack_visual_indexes", deepstack, sizes.depth)
    joined = TowerNorm("norm", hidden * sizes.merge**2, "layer", _EPS)
    norm = TowerNorm("norm", hidden, "layer", _EPS)
    side = _merger(joined, hidden, sizes.merge, output, norm_first=False)
    return VisionTower(
        kind="qwen3_vl",
        num_layers=sizes.depth,
        hidden_size=hidden,
        num_heads=sizes.heads,
        patch_size=sizes.patch,
        temporal_patch_size=sizes.frames,
        merge=(sizes.merge, sizes.merge),
        positions=("grid", "rotary"),
        projector="merger",
        output_size=output,
        deepstack=stack,
        placeholders=_placeholders(top),
        native=True,
        stages=(
            Stage("vision.tower", (_patches(sizes, hidden, bias=True), grid)),
            Stage(BLOCK, block_parts(shape), tuple(range(sizes.depth))),
            Stage("vision.projector", _merger(norm, hidden, sizes.merge, output)),
            *((Stage("vision.deepstack.{block}", side, tuple(range(len(stack))), taps=stack),) if stack else ()),
        ),
    )


read_qwen3_5_tower = partial(read_qwen3_tower, deepstack=())
read_exaone_tower = partial(read_windowed_tower, kv_heads=8, native=False)


TINY_IMAGES: Mapping[str, Mapping[str, int]] = {
    "preprocessor_config.json": {"size.shortest_edge": 2048, "size.longest_edge": 20_480}
}
"""Pixels of an image in a tiny model: a few tokens, in rows and columns."""


def _placeholders(top: ConfigReader) -> tuple[tuple[str, int], ...]:
    return read_placeholders(top, image="image_token_id", video="video_token_id")


_ATTENTION = {"attention_norm": "norm1", "attention.qkv": "attn.qkv", "attention.out": "attn.proj", "mlp_norm": "norm2"}


def windowed_tower_names(prefix: str, mlp: Mapping[str, str] = GATED) -> Mapping[str, str]:
    """Names of Qwen2.5-VL's tower; Qwen2-VL's differ in the MLP's."""
    block = f"{prefix}.blocks.{{block}}"
    return {
        **tower_names("vision.tower", prefix, {"patch_embed": "patch_embed.proj"}),
        **tower_names(BLOCK, block, {**_ATTENTION, **mlp}),
        **tower_names("vision.projector", f"{prefix}.merger", {"norm": "ln_q", "mlp.up": "mlp.0", "mlp.down": "mlp.2"}),
    }


def qwen3_tower_names(prefix: str) -> Mapping[str, str]:
    plain = {"mlp.up": "mlp.linear_fc1", "mlp.down": "mlp.linear_fc2"}
    merger = {"norm": "norm", "mlp.up": "linear_fc1", "mlp.down": "linear_fc2"}
    return {
        **tower_names("vision.tower", prefix, {"patch_embed": "patch_embed.proj"}),
        **table_names("vision.tower", prefix, {"positions.weight": "pos_embed.weight"}),
        **tower_names(BLOCK, f"{prefix}.blocks.{{block}}", {**_ATTENTION, **plain}),
        **tower_names("vision.projector", f"{prefix}.merger", merger),
        **tower_names("vision.deepstack.{block}", f"{prefix}.deepstack_merger_list.{{block}}", merger),
    }
