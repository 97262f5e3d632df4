"""A plain matrix and a format -> the tensors that a packed release stores in its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd, prod

from day0.errors import InputError
from day0.profile.quantization import QuantizationSpec, StoredPart, WeightFormat, stack_parts
from day0.profile.tensor_spec import TensorSpec

_JOINT_CUT = ("dense_mlp", "routed_experts", "shared_experts", "mtp")
"""Groups of gated MLPs: rows of gate and up are the columns of down, so all are cut where each of them may be."""


def as_packed(spec: TensorSpec, quantization: QuantizationSpec | None) -> Iterator[TensorSpec]:
    """What stands in a checkpoint for one plain tensor: itself, or the parts it is packed into."""
    packing = quantization.format_of(spec) if quantization is not None else None
    if packing is None:
        yield spec
        return
    for matrix in one_by_one(spec) if packing.apart else (spec,):
        yield from pack(matrix, packing)


def one_by_one(spec: TensorSpec) -> Iterator[TensorSpec]:
    """A stack of experts as tensors of each expert and projection, as formats store it that pack linear layers.

    [experts, out, in] under "experts.gate_up_proj" becomes "experts.{expert}.gate_proj.weight" and so on, [out, in].
    """
    if not spec.stacked:
        yield spec
        return
    container, _, leaf = spec.name.removesuffix(".weight").rpartition(".")
    rows, columns = matrix_size(spec)
    parts = stack_parts(leaf)
    stem = spec.path.removesuffix("gate_up.weight").removesuffix("down.weight")
    for part in parts:
        ours = part.removesuffix("_proj") if len(parts) > 1 else spec.path[len(stem) :].removesuffix(".weight")
        yield replace(
            spec,
            name=f"{container}.{{expert}}.{part}.weight",
            path=f"{stem}{ours}.weight",
            shape=(rows // len(parts), columns),
            parameters=spec.parameters // (spec.stacked * len(parts)),
            experts=spec.stacked,
            shard_axis=_direction_axis(spec),
            stacked=0,
            input_first=False,
            parts=(),
            by_turns=0,
        )


def pack(spec: TensorSpec, packing: WeightFormat) -> Iterator[TensorSpec]:
    """The parts of one matrix, or of each expert's; raises InputError where groups do not fit its rows."""
    rows, columns = matrix_size(spec)
    if packing.group_size and not packing.keeps_order and columns % packing.group_size:
        raise InputError(
            f"rows of {columns} values do not split into groups of {packing.group_size} ({packing.name})",
            where=spec.path,
            hint="the widths of the model and the quantisation section contradict each other",
        )
    for index, part in enumerate(packing.counted):
        shape, axis = _part_shape(spec, packing, part, rows, columns)
        output = next((place for place, axis in enumerate(part.axes) if axis.of == "out"), None)
        yield replace(
            spec,
            name=part_name(spec.name, part.leaf),
            path=f"{spec.path.removesuffix('weight')}{part.role}",
            shape=shape,
            dtype=part.dtype or spec.dtype,
            parameters=spec.parameters if index == 0 else 0,
            shard_axis=axis,
            shard_units=_units(spec, packing, rows, columns) if axis is not None else 1,
            format=packing.name,
            input_first=_turned(spec, packing, part),
            parts=tuple((stem, _entries(spec, part, output, length)) for stem, length in spec.parts),
            output_axis=output or 0,
        )


def matrix_size(spec: TensorSpec) -> tuple[int, int]:
    """(output rows, input columns) of a plain matrix, of one expert's where it is a stack."""
    rows, columns = spec.shape[-2:]
    return (columns, rows) if spec.input_first else (rows, columns)


def first_name(spec: TensorSpec) -> str:
    """What a checkpoint calls the tensor, or the first expert's."""
    return spec.name.replace("{expert}", "0")


def part_name(name: str, leaf: str) -> str:
    """What a checkpoint calls a part of the matrix `name`; a stack is a parameter of its module, not a module."""
    if name.endswith(".weight"):
        return name.removesuffix("weight") + leaf
    return name + (leaf.removeprefix("weight") if leaf.startswith("weight") else f"_{leaf}")


def _direction(spec: TensorSpec) -> str | None:
    """Which axis of the matrix ranks cut: "out", "in" or none."""
    axis = _direction_axis(spec)
    return None if axis is None else ("out", "in")[axis]


def _direction_axis(spec: TensorSpec) -> int | None:
    if spec.shard_axis is None:
        return None
    axis = spec.shard_axis - (len(spec.shape) - 2)
    return 1 - axis if spec.input_first else axis


def _turned(spec: TensorSpec, packing: WeightFormat, part: StoredPart) -> bool:
    """Whether a part lies input first because the unpacked matrix does."""
    return packing.keeps_order and spec.input_first and {axis.of for axis in part.axes} == {"out", "in"}


def _entries(spec: TensorSpec, part: StoredPart, output: int | None, rows: int) -> int:
    """Entries of a part for `rows` of a matrix that is one of several in a tensor; see `TensorSpec.parts`."""
    if output is None:
        return 0
    per = part.axes[output].per
    in_a_row = rows // (spec.by_turns or 1)
    return -1 if in_a_row % per else rows // per


def _part_shape(
    spec: TensorSpec, packing: WeightFormat, part: StoredPart, rows: int, columns: int
) -> tuple[tuple[int, ...], int | None]:
    """Stored shape of a part and the axis to cut; a stack keeps its experts in front and, unpacked, its own order."""
    axes = part.axes[::-1] if _turned(spec, packing, part) else part.axes
    direction = _direction(spec)
    cut = next((place for place, axis in enumerate(axes) if axis.of and axis.of == direction), None)
    shape = tuple(axis.length(rows, columns) for axis in axes)
    if spec.stacked:
        return (spec.stacked, *shape), None if cut is None else cut + 1
    if cut is not None and shape[cut] == 1 and prod(shape) == 1:
        cut = None
    return shape, cut


def _units(spec: TensorSpec, packing: WeightFormat, rows: int, columns: int) -> int:
    """Equal pieces a packed matrix may be cut into: those of the plain one that fall between groups and blocks."""
    direction = _direction(spec)
    size = rows if direction == "out" else columns
    if "gate_up" in spec.path and direction == "out":
        size //= 2  # a piece has its rows of both
    both = spec.group in _JOINT_CUT
    step = packing.step if both else packing.cut(direction or "")
    return gcd(spec.shard_units, size // step) if size % step == 0 else 1
