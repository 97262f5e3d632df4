"""MXFP4: groups of 4-bit E2M1 values under one E8M0 scale (OCP Microscaling Formats 1.0)."""

from __future__ import annotations

import torch

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of the eight codes; the fourth bit is the sign."""


def _byte_values() -> torch.Tensor:
    """The two values of every byte, [256, 2] float32: the low nibble comes first."""
    codes = torch.tensor([*E2M1, *(-value for value in E2M1)])
    byte = torch.arange(256)
    return torch.stack((codes[byte & 15], codes[byte >> 4]), dim=-1)


def _scale_values() -> torch.Tensor:
    """2^(byte - 127) for every scale byte, [256] float32; 255 is NaN."""
    return torch.cat((torch.ldexp(torch.ones(255), torch.arange(255) - 127), torch.tensor([float("nan")])))


class MXFP4Decoder:
    """Decodes packed rows on one device; holds the two look-up tables."""

    def __init__(self, device: torch.device) -> None:
        self._values = _byte_values().to(device)
        self._scales = _scale_values().to(device)

    def decode(self, packed: torch.Tensor, scale: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Write the values of packed [..., columns / 2] uint8 with scale [..., groups] uint8 into out [..., columns].

        Exact in float32, and in bfloat16 wherever the product is a normal number. Returns `out`.
        """
        values = self._values[packed.int()].flatten(-2)
        groups = values.unflatten(-1, (scale.shape[-1], -1)) * self._scales[scale.int()][..., None]
        return out.copy_(groups.flatten(-2))
