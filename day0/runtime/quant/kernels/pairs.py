"""Words of eight E2M1 codes as pairs of bfloat16 in a register, 2^126 too small: what products start from."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def code_pair(word, NUMBER: tl.constexpr):
    """Codes NUMBER and NUMBER + 4 of int32 words as the low and the high bfloat16 of an int32.

    The three bits of a magnitude land on the lowest exponent bits and the first of the fraction, so that the
    subnormal code is a subnormal there and nothing is looked up. Both halves in one operation is what makes a product
    with packed weights as fast as memory gives them.
    """
    sign = word << (12 - 4 * NUMBER)
    if NUMBER < 2:
        magnitude = word << (6 - 4 * NUMBER)
    else:
        magnitude = word >> (4 * NUMBER - 6)
    return (sign & -2147450880) | (magnitude & 0x01C001C0)


@triton.jit
def low_number(pair):
    """The low half of a pair as float32."""
    return (pair << 16).to(tl.float32, bitcast=True)


@triton.jit
def high_number(pair):
    """The high half of a pair as float32."""
    return (pair & -65536).to(tl.float32, bitcast=True)


@triton.jit
def low_half(pair):
    """The low half of a pair as it is, bfloat16."""
    return pair.to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def high_half(pair):
    """The high half of a pair as it is, bfloat16."""
    return (pair >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
