"""The tensors of an encoder's parts: shapes as stored, names by the family's table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import prod

from day0.profile.draft import Draft
from day0.profile.tensor_spec import TensorSpec
from day0.profile.tower_parts import (
    EncoderConvolution,
    HeadNorm,
    LearntTable,
    Part,
    PatchEmbedding,
    Projection,
    Stage,
    TowerExperts,
    TowerNorm,
)

_BOUNDS = ("input_min", "input_max", "output_min", "output_max")


def tower_tensors(stages: Sequence[Stage], group: str, dtype: str, names: Mapping[str, str]) -> tuple[TensorSpec, ...]:
    """Every tensor of an encoder in the order of the forward pass, stored as `dtype` where a part does not say.

    None has a shard axis: encoders are small beside the text model and every rank holds all of them.
    """
    return tuple(chain.from_iterable(_stage(stage, group, dtype, names) for stage in stages))


def _stage(stage: Stage, group: str, dtype: str, names: Mapping[str, str]) -> Iterator[TensorSpec]:
    for block in (None,) if stage.blocks is None else stage.blocks:
        for draft in chain.from_iterable(part_drafts(part, group) for part in stage.parts):
            template = f"{stage.path}.{draft.path}"
            yield TensorSpec(
                name=names[template].format(block=block, level=stage.level, expert="{expert}"),
                path=template.format(block=block, level=stage.level),
                shape=draft.shape,
                dtype=draft.dtype or dtype,
                group=group,
                parameters=draft.num_parameters,
                experts=draft.experts,
                keep_float32=draft.keep_float32,
                input_first=draft.input_first,
            )


def part_drafts(part: Part, group: str) -> Iterator[Draft]:
    """What one part stores, by paths relative to its stage."""
    match part:
        case PatchEmbedding():
            values = (part.channels, *part.patch)
            yield from _module(part.path, (part.width, *((prod(values),) if part.flat else values)), part.bias, group)
        case Projection():
            yield from _projection(part, group)
        case TowerNorm(form="unit"):
            pass
        case TowerNorm():
            yield from _module(part.path, (part.width,), part.form == "layer", group)
        case HeadNorm():
            for which in ("q_norm", "k_norm"):
                yield Draft(f"{part.path}.{which}.weight", (part.head_dim,), group)
        case LearntTable():
            path = f"{part.path}.weight" if part.module else part.path
            yield Draft(path, part.shape, group, parameters=None if part.trained else 0)
        case EncoderConvolution():
            shape = (part.outputs, 1 if part.depthwise else part.inputs, *part.kernel)
            yield from _module(part.path, shape, part.bias, group)
        case TowerExperts():
            yield from _experts(part, group)
        case _:
            pass


def _module(path: str, shape: tuple[int, ...], bias: bool, group: str) -> Iterator[Draft]:
    yield Draft(f"{path}.weight", shape, group)
    if bias:
        yield Draft(f"{path}.bias", shape[:1], group)


def _projection(part: Projection, group: str) -> Iterator[Draft]:
    shape: tuple[int, ...] = (part.outputs, part.inputs)
    if part.cell is not None:
        shape = (part.outputs, part.inputs // prod(part.cell), *part.cell)
    if part.input_first:
        yield Draft(f"{part.path}.weight", shape[::-1], group, input_first=True)
    else:
        yield from _module(part.path, shape, part.bias, group)
    if part.bounded:
        for bound in _BOUNDS:
            yield Draft(f"{part.path}.{bound}", (), group, parameters=0)


def _experts(part: TowerExperts, group: str) -> Iterator[Draft]:
    """Router and experts; the bias is a running estimate and no parameter. Both are kept in float32."""
    rows, columns = (part.width, part.hidden), (part.hidden, part.width)
    router = f"{part.path}.router"
    yield Draft(f"{router}.weight", (part.experts, part.hidden), group, keep_float32=True)
    yield Draft(f"{router}.correction_bias", (part.experts,), group, parameters=0, dtype="F32", keep_float32=True)
    for name, shape in (("gate", rows), ("up", rows), ("down", columns)):
        yield Draft(f"{part.path}.experts.{name}.weight", shape, group, experts=part.experts)
