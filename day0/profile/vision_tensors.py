"""The tensors a vision tower and its projector must have."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from day0.profile.families.kimi_k3_vision import VISION_NAMES
from day0.profile.profile import VisionSpec
from day0.profile.tensor_spec import TensorSpec

CHANNELS = 3
"""Red, green, blue."""


def vision_tensors(spec: VisionSpec, dtype: str) -> tuple[TensorSpec, ...]:
    """Every tensor of tower and projector, stored as `dtype`, in the order of the forward pass.

    None has a shard axis: the tower is small beside the text model and every rank holds all of it.
    """
    shapes = _shapes(spec)
    assert shapes.keys() == VISION_NAMES.keys(), "names and shapes cover the same parameters"
    per_block = [path for path in VISION_NAMES if "{block}" in path]
    before = [path for path in VISION_NAMES if path.startswith("vision.tower.patch_embed.")]
    after = [path for path in VISION_NAMES if path not in (*per_block, *before)]
    tensors = [_tensor(path, None, shapes, dtype) for path in before]
    tensors += [_tensor(path, block, shapes, dtype) for block in range(spec.num_layers) for path in per_block]
    tensors += [_tensor(path, None, shapes, dtype) for path in after]
    return tuple(tensors)


def _tensor(path: str, block: int | None, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> TensorSpec:
    shape = shapes[path]
    return TensorSpec(
        name=VISION_NAMES[path].format(block=block),
        path=path.format(block=block),
        shape=shape,
        dtype=dtype,
        group="vision",
        parameters=prod(shape),
    )


def _shapes(spec: VisionSpec) -> dict[str, tuple[int, ...]]:
    """Our path -> shape; linear weights are [out, in], the patch embedding [hidden, channel, row, column]."""
    hidden, qkv, width, merged = spec.hidden_size, spec.qkv_size, spec.mlp_width, spec.merged_size
    block = "vision.tower.blocks.{block}"
    return {
        "vision.tower.patch_embed.weight": (hidden, CHANNELS, spec.patch_size, spec.patch_size),
        "vision.tower.patch_embed.positions": (*spec.position_grid, hidden),
        f"{block}.attention_norm.weight": (hidden,),
        f"{block}.attention.qkv.weight": (3 * qkv, hidden),
        f"{block}.attention.out.weight": (hidden, qkv),
        f"{block}.mlp_norm.weight": (hidden,),
        f"{block}.mlp.up.weight": (width, hidden),
        f"{block}.mlp.down.weight": (hidden, width),
        "vision.tower.norm.weight": (hidden,),
        "vision.projector.up.weight": (merged, merged),
        "vision.projector.down.weight": (spec.text_hidden_size, merged),
        "vision.projector.norm.weight": (spec.text_hidden_size,),
    }
