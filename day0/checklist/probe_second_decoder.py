"""Packed matrices turned back in numpy, from the formats' definitions: a second opinion on what the runtime does.

Nothing here is shared with `runtime/quant`. Codes are taken apart by division, and every value follows from its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from day0.profile.quantization import WeightFormat

Array = npt.NDArray[np.float32]
Stored = Mapping[str, npt.NDArray]
"""The parts of one matrix by role as they lie in the file: bytes where they are bytes, else their own numbers."""


def float_of(code: int, exponent_bits: int, fraction_bits: int, bias: int) -> float:
    """A small float by its fields: sign, exponent, fraction; exponent 0 is subnormal (OCP MX 1.0, OFP8)."""
    sign, size = divmod(code, 2 ** (exponent_bits + fraction_bits))
    exponent, fraction = divmod(size, 2**fraction_bits)
    share = fraction / 2**fraction_bits
    value = 2.0 ** (1 - bias) * share if exponent == 0 else 2.0 ** (exponent - bias) * (1 + share)
    return -value if sign else value


E2M1 = np.array([float_of(code, 2, 1, bias=1) for code in range(16)], dtype=np.float32)
E4M3 = np.array(
    [np.nan if code % 128 == 127 else float_of(code, 4, 3, bias=7) for code in range(256)], dtype=np.float32
)
E8M0 = np.array([np.nan if code == 255 else 2.0 ** (code - 127) for code in range(256)], dtype=np.float32)


def halves(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The two 4-bit codes of every byte, the low one first."""
    high, low = np.divmod(packed, 16)
    return np.stack((low, high), axis=-1).reshape(*packed.shape[:-1], -1)


def mxfp4(packing: WeightFormat, parts: Stored, rows: int, columns: int) -> Array:
    """E2M1 codes under one power of two for 32 of a row."""
    codes = halves(parts["packed"].reshape(rows, columns // 2))
    return _grouped(E2M1[codes], E8M0[parts["scale"]].reshape(rows, -1))


def nvfp4(packing: WeightFormat, parts: Stored, rows: int, columns: int) -> Array:
    """E2M1 codes under one E4M3 scale for 16 of a row and one float32 for the matrix, which divides or multiplies."""
    scale = E4M3[parts["scale"]].reshape(rows, -1)
    if "global_divisor" in parts:
        scale = scale / parts["global_divisor"].astype(np.float32).reshape(())
    else:
        scale = scale * parts["global_scale"].astype(np.float32).reshape(())
    return _grouped(E2M1[halves(parts["packed"].reshape(rows, columns // 2))], scale)


def eight_bit_float(packing: WeightFormat, parts: Stored, rows: int, columns: int) -> Array:
    """E4M3 under scales for the matrix, its rows, or blocks of it, whatever the scale's shape says."""
    stored = parts["scale"]
    scale = E8M0[stored] if stored.dtype == np.uint8 else stored.astype(np.float32)
    scale = scale if scale.ndim == 2 else scale.reshape(-1, 1)
    down = packing.block_rows if packing.block_rows > 1 else -(-rows // scale.shape[0])
    along = packing.group_size or columns
    spread = np.repeat(np.repeat(scale, down, axis=0)[:rows], along, axis=1)[:, :columns]
    return (E4M3[parts["weight"]].reshape(rows, columns) * spread).astype(np.float32)


def packed_integers(packing: WeightFormat, parts: Stored, rows: int, columns: int) -> Array:
    """Integers of a few bits in words, low bits first, with half their range added; one scale for a group of a row."""
    words = parts["packed"].view(np.uint32).astype(np.uint64)
    each, base = 32 // packing.bits, 2**packing.bits
    codes = np.stack([words // base**place % base for place in range(each)], axis=-1).reshape(rows, -1)[:, :columns]
    return _grouped(codes.astype(np.float32) - base / 2, parts["scale"].astype(np.float32).reshape(rows, -1))


def _grouped(values: Array, scale: Array) -> Array:
    """Each group of a row times its scale."""
    grouped = values.reshape(*scale.shape, -1) * scale[..., None]
    return grouped.reshape(values.shape).astype(np.float32)


DECODERS: Mapping[str, Callable[[WeightFormat, Stored, int, int], Array]] = {
    "mxfp4": mxfp4,
    "nvfp4": nvfp4,
    "fp8_block": eight_bit_float,
    "mxfp8": eight_bit_float,
    "fp8_channel": eight_bit_float,
    "fp8_tensor": eight_bit_float,
    "int_packed": packed_integers,
}
"""By the kind of a format. Those that are not here have no second decoder, and the check says so."""


def decodes(packing: WeightFormat) -> bool:
    """Whether this room can turn a format back: not with zero points or an order of columns of its own."""
    roles = {part.role for part in packing.counted}
    return (packing.kind or packing.name) in DECODERS and not roles & {"zero_point", "order"}


def decode(packing: WeightFormat, parts: Stored, rows: int, columns: int) -> Array:
    """The numbers of one matrix, [rows, columns]."""
    return DECODERS[packing.kind or packing.name](packing, parts, rows, columns)
