"""Look-up tables from whole bytes to the numbers in them, and the one way they are looked up."""

from __future__ import annotations

import torch

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of the eight codes of a 4-bit float (OCP MX 1.0); the fourth bit is the sign."""

_PAIR = torch.int64
"""What stands for two float32 side by side while they are copied: one element moves faster than a row of two."""


class Tables:
    """The numbers of every byte on one device, float32.

    `pairs` has two E2M1 values a byte, the low half first; `powers` 2^(byte - 127) (E8M0, 255 is NaN); `floats` E4M3.
    """

    def __init__(self, device: torch.device) -> None:
        codes = torch.tensor([*E2M1, *(-value for value in E2M1)])
        self.pairs = codes[_fields(4)].to(device)
        self.powers = torch.ldexp(torch.ones(256), torch.arange(256) - 127)
        self.powers[255] = torch.nan
        self.powers = self.powers.to(device)
        self.floats = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().to(device)
        self._unsigned = {bits: _fields(bits).float().to(device) for bits in (2, 4, 8)}
        half = _fields(4)
        self._signed = torch.where(half < 8, half, half - 16).float().to(device)

    def unsigned(self, bits: int) -> torch.Tensor:
        """[256, 8 / bits]: a byte's integers from the lowest bits up."""
        return self._unsigned[bits]

    @property
    def signed_halves(self) -> torch.Tensor:
        """[256, 2]: a byte's halves as integers in two's complement, the low one first."""
        return self._signed

    def scales(self, stored: torch.Tensor, dtype: str) -> torch.Tensor:
        """Scales as float32, whatever they are stored as (the dtype's word in a header): bytes are exponents."""
        if dtype in ("U8", "F8_E8M0"):
            return look_up(self.powers, stored)
        return look_up(self.floats, stored) if dtype == "F8_E4M3" else stored.float()


def _fields(bits: int) -> torch.Tensor:
    """The bit fields of every byte from the lowest up, [256, 8 / bits] int64."""
    byte = torch.arange(256)
    return torch.stack([(byte >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)], dim=-1)


def look_up(table: torch.Tensor, stored: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """The numbers of stored [..] (anything that is bytes), [.., numbers a byte] flattened into the last axis.

    table [256] or [256, numbers]. `out`, where given, is contiguous float32 of the result's shape.
    """
    numbers = table.shape[1] if table.dim() == 2 else 1
    if not stored.is_contiguous() or (stored.dim() and stored.stride(-1) != 1):
        stored = stored.clone(memory_format=torch.contiguous_format)
    bytes_ = stored.view(torch.uint8)
    shape = (*bytes_.shape[:-1], bytes_.shape[-1] * numbers) if bytes_.dim() else ()
    if out is None:
        out = torch.empty(shape, dtype=torch.float32, device=table.device)
    assert out.shape == shape and out.is_contiguous()
    index = bytes_.view(-1).int()
    if numbers == 2:
        torch.index_select(table.view(_PAIR).view(-1), 0, index, out=out.view(-1).view(_PAIR))
    elif numbers == 1:
        torch.index_select(table.view(-1), 0, index, out=out.view(-1))
    else:
        torch.index_select(table, 0, index, out=out.view(-1, numbers))
    return out
