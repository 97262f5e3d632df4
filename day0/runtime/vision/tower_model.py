"""A tower and its projector built from the parts of its profile, whatever line of models it is of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from day0.profile.profile import VisionSpec, VisionTower
from day0.profile.tower_parts import (
    AxialRotation,
    BranchEnd,
    EncoderAttention,
    GatedProduct,
    LearntTable,
    Nonlinearity,
    Part,
    PatchEmbedding,
    PatchMerge,
    Projection,
    Stage,
    TowerNorm,
)
from day0.runtime.ops.registry import Operators
from day0.runtime.trace import Trace
from day0.runtime.vision import parts as of_part
from day0.runtime.vision.encoder import ImageEncoder
from day0.runtime.vision.grid import PatchGrid
from day0.runtime.vision.model import VisionModel
from day0.runtime.vision.parts import Place, Scene, Step


def make_encoder(spec: VisionSpec | VisionTower, ops: Operators) -> ImageEncoder:
    """The encoder that runs a spec."""
    return TowerModel(spec, ops) if isinstance(spec, VisionTower) else VisionModel(spec, ops)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps that run one after another, traced as `point` at their end; `block` where they are one of the tower's."""

    steps: tuple[Step, ...]
    point: str
    block: int | None = None

    def __call__(self, x: torch.Tensor, scene: Scene) -> torch.Tensor:
        for step in self.steps:
            x = step(x, scene)
        scene.save(self.point, x)
        return x


class TowerModel(ImageEncoder):
    """Runs the stages of a `VisionTower` in their order, those with `taps` beside the road.

    Embeddings are [merged, (1 + levels) x output]: what takes the placeholders' places, and beside it what is added
    behind each of the text model's first layers.
    """

    def __init__(self, spec: VisionTower, ops: Operators) -> None:
        super().__init__(spec, spec.output_size)
        self._road: list[Stretch] = []
        self._sides: dict[int, Stretch] = {}  # by the block whose output they read
        frames = "frames" in spec.positions
        for stage in spec.stages:
            if not stage.used:
                continue
            for index, block in enumerate((None,) if stage.blocks is None else stage.blocks):
                place = Place(self, stage.path.removeprefix("vision.").format(block=block, level=stage.level), ops)
                if stage.taps:
                    steps = tuple(_steps(stage.parts, place, None, frames))
                    self._sides.setdefault(stage.taps[index], Stretch(steps, f"vision.deepstack.{index}"))
                else:
                    steps = tuple(_steps(stage.parts, place, "vision.merged", frames))
                    self._road.append(Stretch(steps, _point(stage, block, bool(self._road)), block))

        self.width = spec.output_size * (1 + len(self._sides))

    def embed(self, pixel_values: torch.Tensor, items: Sequence[PatchGrid], trace: Trace | None) -> torch.Tensor:
        x, scene = pixel_values, Scene(tuple(items), trace)
        deeper = []
        for stretch in self._road:
            x = stretch(x, scene)
            if stretch.block in self._sides:
                deeper.append(self._sides[stretch.block](x, replace(scene)))
        return torch.cat((x, *deeper), dim=-1)


def _point(stage: Stage, block: int | None, begun: bool) -> str:
    """The name of the trace at the end of a stage."""
    if block is not None:
        return f"vision.blocks.{block}.output"
    if stage.path == "vision.projector":
        return "vision.projected"
    return "vision.final_norm" if begun else "vision.patch_embed"


def _steps(parts: Sequence[Part], place: Place, point: str | None, frames: bool) -> Iterator[Step]:
    """Parts up to a `BranchEnd` are a branch beside the stream; what follows the last one is the stream's own."""
    inside: list[Part] = []
    for part in parts:
        if isinstance(part, BranchEnd):
            yield _branch(tuple(_in_a_row(inside, place, point, frames)), part.factor, place.ops)
            inside = []
        else:
            inside.append(part)
    yield from _in_a_row(inside, place, point, frames)


def _branch(steps: tuple[Step, ...], factor: float, ops: Operators) -> Step:
    def step(x: torch.Tensor, scene: Scene) -> torch.Tensor:
        y = x
        for inner in steps:
            y = inner(y, scene)
        return x + (y if factor == 1.0 else ops["constant_scale"](y, factor))

    return step


def _in_a_row(parts: Sequence[Part], place: Place, point: str | None, frames: bool) -> Iterator[Step]:
    """Steps of parts without branches. Projections that read the same input belong to the part that joins them."""
    waiting: list[Projection] = []
    rotation: AxialRotation | None = None
    for part in parts:
        match part:
            case Projection():
                waiting.append(part)
            case AxialRotation():
                rotation = part
            case EncoderAttention():
                yield of_part.attention(waiting, rotation, part, place)
                waiting, rotation = [], None
            case GatedProduct():
                yield from (of_part.projection(before, place) for before in waiting[:-2])
                yield of_part.gated(waiting[-2:], part, place)
                waiting = []
            case _:
                yield from (of_part.projection(before, place) for before in waiting)
                waiting = []
                yield _alone(part, place, point, frames)
    yield from (of_part.projection(before, place) for before in waiting)


def _alone(part: Part, place: Place, point: str | None, frames: bool) -> Step:
    match part:
        case PatchEmbedding():
            return of_part.patch_embedding(part, place)
        case LearntTable(role="grid"):
            return of_part.learnt_grid(part, place, frames=frames)
        case TowerNorm():
            return of_part.norm(part, place)
        case Nonlinearity():
            return of_part.nonlinearity(part, place)
        case PatchMerge():
            return of_part.merge(part, place, point)
    raise AssertionError(f"{part} passed missing_tower_part and has no step")
