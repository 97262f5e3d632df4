"""A module that owns the stored parts of a packed matrix, or of one for every expert."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from day0.profile.quantization import WeightFormat
from day0.runtime.quant.decoder import UNREAD

DTYPES: Mapping[str, torch.dtype] = {
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.float8_e8m0fnu,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I32": torch.int32,
    "I64": torch.int64,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
}
"""The dtypes that parts are stored in, by the word in a safetensors header."""


class PackedParts(nn.Module):
    """Parameters named by role, in the stored dtype and shape ("" is float32, as scales of the model's dtype are held).

    8-bit floats are held as their bytes: not every device knows them. `stored` has the dtypes of the files.

    [experts, ..] where there are `experts`, else the shape of one matrix [rows, columns].
    """

    def __init__(self, packing: WeightFormat, rows: int, columns: int, experts: int = 0) -> None:
        nn.Module.__init__(self)  # also where a class has another module beside this one as its base
        self.packing = packing
        self.size = (rows, columns)
        self.stored: dict[str, torch.dtype] = {}
        self.roles = tuple(part.role for part in packing.counted if part.role not in UNREAD)
        stack = (experts,) if experts else ()
        for part in packing.counted:
            if part.role in self.roles:
                shape = (*stack, *part.shape(rows, columns))
                dtype = DTYPES[part.dtype or "F32"]
                self.stored[part.role] = dtype
                held = torch.uint8 if dtype.is_floating_point and dtype.itemsize == 1 else dtype
                values = torch.empty(shape, dtype=held, device="meta")
                self.register_parameter(part.role, nn.Parameter(values, requires_grad=False))

    def parts(self) -> dict[str, torch.Tensor]:
        """By role."""
        return {role: getattr(self, role) for role in self.roles}
