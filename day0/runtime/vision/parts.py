"""Steps of a tower: each part of its profile with the weights it owns, hung into the tower under the part's path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from day0.profile.tower_parts import (
    AxialRotation,
    EncoderAttention,
    GatedProduct,
    LearntTable,
    Nonlinearity,
    NormForm,
    PatchEmbedding,
    PatchMerge,
    Projection,
    TowerNorm,
)
from day0.runtime.models.linear import Linear, RMSNorm, weight
from day0.runtime.models.norms import BiasedLayerNorm, LayerNorm, PlusOneNorm, UnitNorm
from day0.runtime.ops.registry import Operators
from day0.runtime.ops.vision_positions import rotary_angles, rotary_angles_3d
from day0.runtime.trace import Trace
from day0.runtime.vision.grid import PatchGrid


@dataclass(slots=True)
class Scene:
    """One call's items as they are at this place, and the rotations of patches; made for the call, kept by nobody."""

    items: tuple[PatchGrid, ...]
    trace: Trace | None
    angles: dict[AxialRotation, torch.Tensor] = field(default_factory=dict)

    def save(self, name: str, tensor: torch.Tensor) -> None:
        if self.trace is not None:
            self.trace.save(name, tensor)

    def rotation(self, part: AxialRotation, device: torch.device) -> torch.Tensor:
        """Angles [patches, pairs] of all patches."""
        if part not in self.angles:
            self.angles[part] = _angles(self.items, part, device)
        return self.angles[part]


def _angles(items: Sequence[PatchGrid], part: AxialRotation, device: torch.device) -> torch.Tensor:
    if part.axes == 3:
        return rotary_angles_3d(items, part.pairs, part.theta, device)
    return rotary_angles(items, 2 * part.pairs, device, theta=part.theta, in_turn=part.layout == "in_turn")


Step = Callable[[torch.Tensor, Scene], torch.Tensor]
"""What one part does with [patches, width], or [merged, width] behind a merge."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the parts of a stage hang their modules: under `path` of the tower `root`."""

    root: nn.Module
    path: str
    ops: Operators

    def hang(self, path: str, module: nn.Module) -> nn.Module:
        """Put a module where its parameters have the names of the profile's tensors."""
        owner, leaf = self._owner(path)
        assert not hasattr(owner, leaf), f"two parts at {self.path}.{path}"
        owner.add_module(leaf, module)
        return module

    def hang_table(self, path: str, *shape: int) -> Callable[[], torch.Tensor]:
        """Put a bare parameter there; gives a way to look it up, for loading replaces it."""
        owner, leaf = self._owner(path)
        owner.register_parameter(leaf, weight(*shape))
        return lambda: getattr(owner, leaf)

    def linear(self, part: Projection) -> Linear:
        linear = Linear(part.inputs, part.outputs, self.ops, part.bias)
        self.hang(part.path, linear)
        return linear

    def _owner(self, path: str) -> tuple[nn.Module, str]:
        *names, leaf = f"{self.path}.{path}".split(".")
        owner = self.root
        for name in names:
            if not hasattr(owner, name):
                owner.add_module(name, nn.Module())
            owner = getattr(owner, name)
        return owner, leaf


class PatchMap(nn.Module):
    """The linear map of a patch, stored as a convolution or `flat`."""

    def __init__(self, part: PatchEmbedding) -> None:
        super().__init__()
        values = (part.channels, *part.patch)
        self.weight = weight(part.width, part.values) if part.flat else weight(part.width, *values)
        self.bias = weight(part.width) if part.bias else None


def patch_embedding(part: PatchEmbedding, place: Place) -> Step:
    """[patches, channels, (frames,) rows, columns] -> [patches, width] in the weights' dtype."""
    patches, ops = PatchMap(part), place.ops
    place.hang(part.path, patches)

    def step(x: torch.Tensor, scene: Scene) -> torch.Tensor:
        values, matrix = x.to(patches.weight).flatten(1), patches.weight.flatten(1)
        if patches.bias is None:
            return ops["vision_patch_embed"](values, matrix)
        return ops["biased_patch_embed"](values, matrix, patches.bias)

    return step


def learnt_grid(part: LearntTable, place: Place, *, frames: bool) -> Step:
    """Adds a grid of positions, resampled to each item; with `frames` the code of the frame too."""
    table = place.hang_table(f"{part.path}.weight" if part.module else part.path, *part.shape)
    sides = part.grid_sides

    def step(x: torch.Tensor, scene: Scene) -> torch.Tensor:
        x = place.ops["vision_grid_embed"](x, table().view(*sides, -1), scene.items, part.resampling)
        return place.ops["vision_frame_embed"](x, scene.items) if frames else x

    return step


def attention(
    projections: Sequence[Projection], rotation: AxialRotation | None, part: EncoderAttention, place: Place
) -> Step:
    """[patches, width] -> [patches, heads x head_dim]: queries, keys and values of one matrix or of three."""
    linears, ops = [place.linear(projection) for projection in projections], place.ops
    heads = (part.heads, part.kv_heads, part.kv_heads)

    def step(x: torch.Tensor, scene: Scene) -> torch.Tensor:
        joined = torch.cat([linear(x) for linear in linears], dim=-1) if len(linears) > 1 else linears[0](x)
        parts = joined.split([part.head_dim * count for count in heads], dim=-1)
        q, k, v = (each.unflatten(-1, (-1, part.head_dim)) for each in parts)
        if rotation is not None:
            q, k = _rotated(q, k, rotation, scene.rotation(rotation, x.device), ops)
        if part.window is None and part.kv_heads == part.heads:
            lengths = [item.patches for item in scene.items]
            return ops["vision_attention"](q, k, v, lengths, part.scale).flatten(1)
        return ops["vision_window_attention"](q, k, v, scene.items, part.scale, part.window).flatten(1)

    return step


def _rotated(
    q: torch.Tensor, k: torch.Tensor, part: AxialRotation, angles: torch.Tensor, ops: Operators
) -> tuple[torch.Tensor, torch.Tensor]:
    if part.axes == 3:
        return ops["vision_rope_3d"](q, k, angles)
    match part.layout:
        case "in_turn":
            return ops["vision_rope_2d"](q, k, angles)
        case "apart":
            return ops["vision_axial_rope"](q, k, angles, "neox", True)
    return ops["vision_axial_rope"](q, k, angles, part.layout, False)


def projection(part: Projection, place: Place) -> Step:
    linear = place.linear(part)
    return lambda x, scene: linear(x)


def norm(part: TowerNorm, place: Place) -> Step:
    module = (
        UnitNorm(part.eps, place.ops) if part.form == "unit" else _NORMS[part.form](part.width, part.eps, place.ops)
    )
    place.hang(part.path, module)
    return lambda x, scene: module(x)


def nonlinearity(part: Nonlinearity, place: Place) -> Step:
    ops, form = place.ops, _GELU_FORMS.get(part.kind)
    if form is not None:
        return lambda x, scene: ops["gelu"](x, form)
    return lambda x, scene: ops[part.kind](x)


def gated(projections: Sequence[Projection], part: GatedProduct, place: Place) -> Step:
    """activation(gate x) * up x."""
    gate, up = (place.linear(projection) for projection in projections)
    ops, form = place.ops, _GELU_FORMS.get(part.kind)
    if form is not None:
        return lambda x, scene: ops["gelu_and_mul"](gate(x), up(x), form)
    return lambda x, scene: ops["silu_and_mul"](gate(x), up(x))


def merge(part: PatchMerge, place: Place, point: str | None) -> Step:
    """[patches, width] -> [merged, cell x width]; `point` names the trace of it. What follows sees the cells."""

    def step(x: torch.Tensor, scene: Scene) -> torch.Tensor:
        cells = place.ops["patch_merge"](x, scene.items, part.cell)
        scene.items = tuple(PatchGrid(1, *item.cells(part.cell)) for item in scene.items)
        if point is not None and part.cell != (1, 1):
            scene.save(point, cells)
        return cells.flatten(1)

    return step


_GELU_FORMS: Mapping[str, str] = {"gelu": "erf", "gelu_tanh": "tanh"}
_NORMS: Mapping[NormForm, Callable[..., nn.Module]] = {
    "rms": RMSNorm,
    "rms_plus_one": PlusOneNorm,
    "layer": BiasedLayerNorm,
    "layer_without_bias": LayerNorm,
}
