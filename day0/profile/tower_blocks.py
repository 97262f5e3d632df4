"""Blocks that most encoders share, as parts: attention, MLP, and the norms and sums around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from day0.profile.tower_parts import (
    AxialRotation,
    BranchEnd,
    EncoderAttention,
    GatedProduct,
    HeadNorm,
    LearntTable,
    Nonlinearity,
    NormForm,
    Part,
    Projection,
    RotationLayout,
    TowerActivation,
    TowerNorm,
)


@dataclass(frozen=True, slots=True)
class BlockShape:
    """What tells one line's blocks from another's.

    `joined` projects queries, keys and values with one matrix; `bias` is that of attention's projections (`out_bias`
    that of the last, where it differs), `mlp_bias` that of the MLP. `theta` is the base of the rotation, None where
    there is none, by `axes` of a patch's place; `layout` says which channels are a pair. `head_norm` norms queries
    and keys, `value_norm` values too (without a weight). `after` adds norms behind each branch. `tanh_gates` are
    learnt numbers on what branches give. `bounded` clamps around every projection. `scale` None is 1 / sqrt(head_dim).
    """

    hidden: int
    heads: int
    mlp_width: int
    norm: NormForm
    eps: float
    activation: TowerActivation
    kv_heads: int = 0
    head_dim: int = 0
    joined: bool = True
    bias: bool = True
    out_bias: bool | None = None
    mlp_bias: bool = True
    gated: bool = False
    limit: float | None = None
    theta: float | None = None
    layout: RotationLayout = "neox"
    axes: Literal[2, 3] = 2
    head_norm: bool = False
    value_norm: bool = False
    after: bool = False
    tanh_gates: bool = False
    bounded: bool = False
    scale: float | None = None

    @property
    def width_of_head(self) -> int:
        return self.head_dim or self.hidden // self.heads

    @property
    def groups(self) -> int:
        return self.kv_heads or self.heads


def block_parts(
    shape: BlockShape, *, window: int | None = None, mlp: tuple[Part, ...] | None = None
) -> tuple[Part, ...]:
    """One block: attention, then the MLP (or what stands for it), each behind a norm and beside the residual stream.

    `window` is a side of the squares of patches that see one another, None where all do.
    """
    return (
        *_branch(shape, "attention", _attention(shape, window)),
        *_branch(shape, "mlp", _mlp(shape) if mlp is None else mlp),
    )


def _branch(shape: BlockShape, name: str, inside: tuple[Part, ...]) -> tuple[Part, ...]:
    after = (TowerNorm(f"{name}_post_norm", shape.hidden, shape.norm, shape.eps),) if shape.after else ()
    gate = (LearntTable(f"{name}_gate", (1,), "gate", width=shape.hidden),) if shape.tanh_gates else ()
    return (
        TowerNorm(f"{name}_norm", shape.hidden, shape.norm, shape.eps),
        *inside,
        *after,
        *gate,
        BranchEnd(shape.hidden),
    )


def _attention(shape: BlockShape, window: int | None) -> tuple[Part, ...]:
    dim, heads, groups = shape.width_of_head, shape.heads, shape.groups
    sizes = {"q": heads * dim, "k": groups * dim, "v": groups * dim}
    if shape.joined:
        sizes = {"qkv": sum(sizes.values())}
    parts: list[Part] = [
        Projection(f"attention.{name}", shape.hidden, size, shape.bias, bounded=shape.bounded)
        for name, size in sizes.items()
    ]
    if shape.head_norm:
        parts.append(HeadNorm("attention", heads, groups, dim, shape.eps))
    if shape.value_norm:
        parts.append(TowerNorm("attention.v_norm", dim, "unit", shape.eps))
    if shape.theta is not None:
        pairs = dim // 2 if shape.axes == 2 else dim // 6 * 3
        parts.append(AxialRotation(heads, dim, pairs, shape.theta, shape.axes, shape.layout))
    scale = dim**-0.5 if shape.scale is None else shape.scale
    parts.append(EncoderAttention(heads, groups, dim, scale, window))
    out_bias = shape.bias if shape.out_bias is None else shape.out_bias
    parts.append(Projection("attention.out", heads * dim, shape.hidden, out_bias, bounded=shape.bounded))
    return tuple(parts)


def _mlp(shape: BlockShape) -> tuple[Part, ...]:
    return mlp_parts(
        "mlp",
        (shape.hidden, shape.mlp_width, shape.hidden),
        shape.activation,
        bias=shape.mlp_bias,
        gated=shape.gated,
        limit=shape.limit,
        bounded=shape.bounded,
    )


def mlp_parts(
    path: str,
    sizes: tuple[int, int, int],
    activation: TowerActivation,
    *,
    bias: bool,
    gated: bool = False,
    limit: float | None = None,
    bounded: bool = False,
) -> tuple[Part, ...]:
    """Two projections with a nonlinearity between them, gated by a third where `gated`; sizes in, between, out."""
    reads, width, writes = sizes
    up = Projection(f"{path}.up", reads, width, bias, bounded=bounded)
    down = Projection(f"{path}.down", width, writes, bias, bounded=bounded)
    if not gated:
        return up, Nonlinearity(activation, width), down
    gate = Projection(f"{path}.gate", reads, width, bias, bounded=bounded)
    return gate, up, GatedProduct(activation, width, limit), down
