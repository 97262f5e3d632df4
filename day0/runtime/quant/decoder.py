"""Packed matrices -> numbers, whatever the format: one table of readers, a piece of bounded size at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from day0.profile.quantization import StoredPart, WeightFormat
from day0.runtime.quant import eight_bit, four_bit_floats, integers
from day0.runtime.quant.tables import Tables

Parts = Mapping[str, torch.Tensor]
"""The stored parts of a matrix by role, 8-bit floats as bytes; of several of one shape, along a new first axis."""

Reader = Callable[[Tables, WeightFormat, Parts, torch.Tensor], None]
"""Fills out [.., rows, columns] float32, contiguous, with the numbers of the parts of those rows."""

PIECE = 1 << 18
"""Numbers turned back at a time: what is needed meanwhile stays in a processor's cache, and is all there is beside
the result."""

READERS: Mapping[str, Reader] = {
    "mxfp4": four_bit_floats.read_mxfp4,
    "nvfp4": four_bit_floats.read_nvfp4,
    "mxfp8": eight_bit.read_by_block,
    "fp8_block": eight_bit.read_by_block,
    "fp8_channel": eight_bit.read_by_row,
    "fp8_tensor": eight_bit.read_whole,
    "int8": eight_bit.read_int8,
    "int_packed": integers.read_packed,
    "gptq": integers.read_gptq,
    "awq": integers.read_awq,
    "int4_awq": integers.read_modelopt_int4,
}
"""By the kind of a format (`WeightFormat.kind`, or its name)."""

UNREAD = ("input_scale", "shape")
"""Roles that no reader needs: scales of rounded activations, which we do not round, and shapes, which we know."""


class Decoder:
    """Turns packed matrices back on one device. Results are float32 rounded once to the dtype of the output."""

    def __init__(self, device: torch.device) -> None:
        self.tables = Tables(device)

    def decode(self, packing: WeightFormat, parts: Parts, out: torch.Tensor) -> torch.Tensor:
        """Write the numbers of one matrix into out [rows, columns], contiguous; gives `out`."""
        rows, columns = out.shape
        reader, unit = READERS[packing.kind or packing.name], packing.cut("out")
        step = max(1, PIECE // (columns * unit)) * unit
        for start in range(0, rows, step):
            end = min(start + step, rows)
            self._fill(reader, packing, _rows(packing, parts, start, end), out[start:end])
        return out

    def decode_some(
        self, packing: WeightFormat, parts: Parts, matrices: Sequence[int], out: torch.Tensor
    ) -> torch.Tensor:
        """The same for chosen `matrices` of a stack: out [chosen, rows, columns]; small ones several at once."""
        size = out[0].numel() if len(matrices) else 1
        step = PIECE // size
        if step <= 1:
            for place, matrix in enumerate(matrices):
                self.decode(packing, {role: part[matrix] for role, part in parts.items()}, out[place])
            return out
        reader = READERS[packing.kind or packing.name]
        for start in range(0, len(matrices), step):
            index = torch.tensor(matrices[start : start + step], device=out.device)
            chosen = {role: part[index] for role, part in parts.items()}
            self._fill(reader, packing, chosen, out[start : start + len(index)])
        return out

    def _fill(self, reader: Reader, packing: WeightFormat, parts: Parts, out: torch.Tensor) -> None:
        if out.dtype == torch.float32:
            reader(self.tables, packing, parts, out)
            return
        numbers = torch.empty(out.shape, dtype=torch.float32, device=out.device)
        reader(self.tables, packing, parts, numbers)
        out.copy_(numbers)


def _rows(packing: WeightFormat, parts: Parts, start: int, end: int) -> dict[str, torch.Tensor]:
    """What of each part serves the rows from `start`, which is between blocks, to `end`."""
    kinds = {part.role: part for part in packing.parts}
    return {role: _entries(kinds[role], part, start, end) for role, part in parts.items()}


def _entries(kind: StoredPart, part: torch.Tensor, start: int, end: int) -> torch.Tensor:
    axis = next((place for place, axis in enumerate(kind.axes) if axis.of == "out"), None)
    if axis is None:
        return part
    first, per = start // kind.axes[axis].per, kind.axes[axis].per
    return part.narrow(axis, first, -(-end // per) - first)
