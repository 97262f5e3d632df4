"""What the kernel templates are filled with: names of sizes and strides, how rows are counted, tile sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from day0.inventory import OperatorNeed
from day0.scaffold.signature import Argument, Signature, is_variable

_TILE_ELEMENTS = 2048
_TILE_COLUMNS = 512
_TILE_ROWS = 64


@dataclass(frozen=True, slots=True)
class _Output:
    """An output as a table of rows: all axes but the last are one."""

    name: str
    pointer: str
    axes: tuple[str, ...]
    shape: str
    torch_dtype: str
    rows: str
    columns: str
    places: tuple[str, ...]
    last_stride: str
    indices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Tile:
    """Rows and columns of a tile for the sizes of one need, and the key they are found by."""

    key: str
    rows: int
    columns: int


def kernel_facts(spec: Signature, needs: Sequence[OperatorNeed]) -> dict[str, Any]:
    """The context of both kernel templates, and of the reference's where there is only a signature."""
    names = _axis_names(spec)
    axes = spec.axes
    device = f"{_sure(spec).name}.device"
    outputs = [_output(spec, number, names) for number in range(len(spec.outputs))]
    tensors = [_tensor(spec, tensor, names) for tensor in spec.tensors]
    made = {axis for output in spec.outputs for axis in output.axes}
    tile_axes = [axis for axis in spec.operator.model_axes if axis in axes]
    rows = [output.rows for output in outputs]
    return {
        "tensors": tensors,
        "options": spec.options,
        "outputs": outputs,
        "axes": [names[axis] for axis in axes],
        "fixed_axes": [names[axis] for axis in axes if not is_variable(axis)],
        "dynamic_axes": [names[axis] for axis in axes if is_variable(axis)],
        "kernel_options": [o for o in spec.options if o.name not in axes and o.name != "dtype"],
        "strides": [f"{t.name}_stride_{place}" for t in spec.all_tensors for place in range(len(t.axes))],
        "size_lines": _size_lines(spec, axes, names),
        "fixed_size_lines": _size_lines(spec, [a for a in axes if a in made or not is_variable(a)], names),
        "device": device,
        "returns": "torch.Tensor" if len(outputs) == 1 else f"tuple[{', '.join(['torch.Tensor'] * len(outputs))}]",
        "most_rows": rows[0] if len(rows) == 1 else f"max({', '.join(rows)})",
        "tilelang_rows": " + ".join(dict.fromkeys(rows)) if len(set(rows)) > 1 else rows[0],
        "tile_axes": tile_axes,
        "tile_key": _tuple([names[axis] for axis in tile_axes]),
        "tiles": [*_tiles(spec, needs, tile_axes)],
    }


def _axis_names(spec: Signature) -> dict[str, str]:
    """What the size of each axis is called; one that a tensor is called after gets another name."""
    taken = {tensor.name for tensor in spec.all_tensors}
    taken |= {option.name for option in spec.options if option.name not in spec.operator.axes}
    return {axis: f"num_{axis}" if axis in taken else axis for axis in spec.axes}


def _sure(spec: Signature) -> Argument:
    """A tensor that is always there."""
    return next(tensor for tensor in spec.tensors if not tensor.optional)


def _tensor(spec: Signature, tensor: Argument, names: dict[str, str]) -> dict[str, Any]:
    stride = f"{tensor.name}.stride()"
    if tensor.optional:
        stride = f"({stride} if {tensor.name} is not None else {_tuple(['0'] * len(tensor.axes))})"
    return {
        "name": tensor.name,
        "axes": tensor.axes,
        "optional": tensor.optional,
        "stride": stride,
        "shape": _tuple([names[axis] for axis in tensor.axes]),
        "torch_dtype": _torch_dtype(spec, tensor.dtype),
    }


def _output(spec: Signature, number: int, names: dict[str, str]) -> _Output:
    output = spec.outputs[number]
    pointer = f"{output.name}_made" if output.name in {t.name for t in spec.tensors} else output.name
    sizes = [names[axis] for axis in output.axes]
    *outer, last = ["1", *sizes] if len(sizes) == 1 else sizes
    single = len(sizes) == 1
    rows = sizes[0] if single else " * ".join(outer)
    places = ["row_ids"] if single else [f"({p})" if " " in p else p for p in _places("row_ids", outer)]
    indices = ["row"] if single else [*_places("row", outer), "first * block + column"]
    return _Output(
        name=output.name,
        pointer=pointer,
        axes=output.axes,
        shape=_tuple(sizes),
        torch_dtype=_torch_dtype(spec, output.dtype),
        rows=rows,
        columns="1" if single else last,
        places=tuple(f"{place} * {output.name}_stride_{axis}" for axis, place in enumerate(places)),
        last_stride="0" if single else f"{output.name}_stride_{len(sizes) - 1}",
        indices=tuple(indices),
    )


def _places(row: str, sizes: Sequence[str]) -> list[str]:
    """The index along each of several axes that `row` counts through together."""
    places = []
    for axis in range(len(sizes)):
        inner = " * ".join(sizes[axis + 1 :])
        place = f"{row} // ({inner})" if " " in inner else f"{row} // {inner}" if inner else row
        places.append(f"{place} % {sizes[axis]}" if axis else place)
    return places


def _size_lines(spec: Signature, axes: Sequence[str], names: dict[str, str]) -> list[str]:
    given = {option.name for option in spec.options}
    lines = []
    for axis in axes:
        if axis in given:
            continue
        tensor = next(t for t in sorted(spec.tensors, key=lambda t: t.optional) if axis in t.axes)
        if tensor.optional:
            lines.append(
                f"{names[axis]} = 1 if {tensor.name} is None else {tensor.name}.shape[{tensor.axes.index(axis)}]"
            )
        else:
            lines.append(f"{names[axis]} = {tensor.name}.shape[{tensor.axes.index(axis)}]")
    return lines


def _torch_dtype(spec: Signature, dtype: str) -> str:
    if dtype != "model":
        return f"torch.{dtype}"
    return f"{spec.model_tensor}.dtype" if spec.model_tensor else "dtype"


def _tiles(spec: Signature, needs: Sequence[OperatorNeed], tile_axes: Sequence[str]) -> list[_Tile]:
    """Per set of sizes: columns up to a power of two, and as many rows as fill a tile."""
    tiles: dict[str, _Tile] = {}
    last = spec.outputs[0].axes[-1]
    for need in needs:
        width = need.shapes.get(last, 1)
        columns = min(_TILE_COLUMNS, max(16, 2 ** math.ceil(math.log2(max(width, 1)))))
        key = _tuple([str(need.shapes[axis]) for axis in tile_axes])
        tiles[key] = _Tile(key, max(1, min(_TILE_ROWS, _TILE_ELEMENTS // columns)), columns)
    return [*tiles.values()]


def _tuple(parts: Sequence[str]) -> str:
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
