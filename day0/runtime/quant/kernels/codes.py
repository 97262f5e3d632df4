"""How packed codes become numbers inside Triton kernels: E2M1 halves of bytes, E8M0 and E4M3 scales.

Shared by the kernels that convert matrices and those that multiply with packed ones. No tables: bits are moved to
where float formats have them (OCP Microscaling Formats 1.0).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def power_of_two(exponents):
    """float32 2^(byte - 127) of E8M0 bytes; 0 is 2^-127, a subnormal, and 255 NaN."""
    byte = exponents.to(tl.int32)
    bits = tl.where(byte == 0, 0x00400000, byte << 23)
    return tl.where(byte == 255, 0x7FC00000, bits).to(tl.float32, bitcast=True)


@triton.jit
def plain_power(exponents):
    """The same in one step for the bytes that models have: 0 counts as zero, and 255 as infinity."""
    return (exponents.to(tl.int32) << 23).to(tl.float32, bitcast=True)


@triton.jit
def e4m3(stored):
    """float32 of E4M3 bytes: exponent bias 7, subnormals in steps of 2^-9, 127 of either sign NaN."""
    byte = stored.to(tl.int32)
    magnitude = byte & 127
    normal = ((magnitude << 20) + (120 << 23)).to(tl.float32, bitcast=True)
    number = tl.where(magnitude < 8, magnitude.to(tl.float32) * 0.001953125, normal)
    return _signed(tl.where(magnitude == 127, float("nan"), number), byte >> 7)


@triton.jit
def e2m1(code):
    """float32 of E2M1 codes in the lowest four bits of int32: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives."""
    magnitude = code & 7
    normal = ((magnitude << 22) + (126 << 23)).to(tl.float32, bitcast=True)
    number = tl.where(magnitude < 2, magnitude.to(tl.float32) * 0.5, normal)
    return _signed(number, code >> 3)


@triton.jit
def _signed(number, sign):
    """The number with its sign from the lowest bit; a minus would lose that of zero where it is 0 - x."""
    return (number.to(tl.int32, bitcast=True) | (sign << 31)).to(tl.float32, bitcast=True)
