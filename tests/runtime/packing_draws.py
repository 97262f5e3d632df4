"""Random packed matrices and the numbers in them, bit by bit in numpy from the formats' own descriptions.

Nothing here knows how the runtime decodes: codes are drawn, packed by shifts, and valued by the fields of each code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from day0.profile.quantization import StoredPart, WeightFormat

Drawn = tuple[dict[str, torch.Tensor], np.ndarray]
"""Stored parts by role, and the matrix [rows, columns] float32."""

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The row, of every eight, that each 4 bits of a word hold, from the lowest up."""


def e2m1(code: int) -> float:
    """A sign bit, two bits of exponent (bias 1), one of fraction; exponent 0 is subnormal."""
    sign, exponent, fraction = code >> 3, (code >> 1) & 3, code & 1
    size = 0.5 * fraction if exponent == 0 else 2.0 ** (exponent - 1) * (1 + fraction / 2)
    return float(np.copysign(size, -1 if sign else 1))


def e4m3(code: int) -> float:
    """A sign bit, four bits of exponent (bias 7), three of fraction; exponent 0 is subnormal, all ones NaN."""
    sign, exponent, fraction = code >> 7, (code >> 3) & 15, code & 7
    if exponent == 15 and fraction == 7:
        return float("nan")
    size = 2.0**-6 * fraction / 8 if exponent == 0 else 2.0 ** (exponent - 7) * (1 + fraction / 8)
    return float(np.copysign(size, -1 if sign else 1))


def e8m0(code: int) -> float:
    """An exponent with bias 127, and NaN at 255."""
    return float("nan") if code == 255 else 2.0 ** (code - 127)


E2M1 = np.array([e2m1(code) for code in range(16)], dtype=np.float32)
E4M3 = np.array([e4m3(code) for code in range(256)], dtype=np.float32)
E8M0 = np.array([e8m0(code) for code in range(256)], dtype=np.float32)


def draw_packed(packing: WeightFormat, rows: int, columns: int, rng: np.random.Generator) -> Drawn:
    """A matrix in a format, its numbers of the size that keeps a layer's variance (about columns**-0.5)."""
    return DRAWS[packing.kind or packing.name](packing, rows, columns, rng)


def stacked(parts: list[torch.Tensor]) -> torch.Tensor:
    """One tensor of all, first axis new; 8-bit floats as their bytes."""
    floats = parts[0].is_floating_point() and parts[0].element_size() == 1
    return torch.stack([part.view(torch.uint8) for part in parts] if floats else parts)


def _part(packing: WeightFormat, role: str) -> StoredPart:
    return next(part for part in packing.parts if part.role == role)


def _has(packing: WeightFormat, role: str) -> bool:
    return any(part.role == role for part in packing.counted)


def _halves(codes: np.ndarray) -> torch.Tensor:
    return torch.from_numpy((codes[:, 0::2] | (codes[:, 1::2] << 4)).astype(np.uint8))


def _words(values: np.ndarray, bits: int) -> torch.Tensor:
    """Unsigned integers along the last axis into int32, low bits first; a last word may not be full."""
    each = 32 // bits
    padded = np.pad(values.astype(np.uint64), ((0, 0), (0, -values.shape[1] % each)))
    shifts = np.arange(each, dtype=np.uint64) * np.uint64(bits)
    words = (padded.reshape(len(values), -1, each) << shifts).sum(-1)
    return torch.from_numpy(words.astype(np.uint32).view(np.int32))


def _exponents(part: StoredPart, codes: np.ndarray) -> torch.Tensor:
    stored = torch.from_numpy(codes.astype(np.uint8))
    return stored.view(torch.float8_e8m0fnu) if part.dtype == "F8_E8M0" else stored


def _mxfp4(packing: WeightFormat, rows: int, columns: int, rng: np.random.Generator) -> Drawn:
    codes = rng.integers(0, 16, (rows, columns))
    centre = 127 - round(np.log2(columns) / 2) - 1
    scales = rng.integers(centre - 2, centre + 2, (rows, columns // 32))
    packed = _halves(codes).view(_part(packing, "packed").shape(rows, columns))
    packed = packed.view(torch.int8) if _part(packing, "packed").dtype == "I8" else packed
    parts = {"packed": packed, "scale": _exponents(_part(packing, "scale"), scales)}
    return parts, E2M1[codes] * np.repeat(E8M0[scales], 32, axis=1)


def _nvfp4(packing: WeightFormat, rows: int, columns: int, rng: np.random.Generator) -> Drawn:
    codes = rng.integers(0, 16, (rows, columns))
    scales = rng.integers(0x50, 0x78, (rows, columns // 16)).astype(np.uint8)
    whole = np.float32(rng.uniform(0.5, 1.5) * columns**-0.5 / 100)
    parts = {"packed": _halves(codes), "scale": torch.from_numpy(scales).view(torch.float8_e4m3fn)}
    if _has(packing, "global_divisor"):
        divisor = np.float32(1 / whole)
        parts["global_divisor"] = torch.tensor([divisor])
        joined = E4M3[scales] / divisor
    else:
        parts["global_scale"] = torch.tensor(whole)
        joined = E4M3[scales] * whole
    return parts, E2M1[codes] * np.repeat(joined, 16, axis=1)


def _fp8_scale(part: StoredPart, shape: tuple[int, ...], columns: int, rng: np.random.Generator) -> torch.Tensor:
    if part.dtype in ("F8_E8M0", "U8"):
        return _exponents(part, rng.integers(113, 117, shape))
    scale = torch.tensor(rng.uniform(0.5, 1.5, shape) * columns**-0.5 / 20)
    return scale.to({"F32": torch.float32, "F16": torch.float16}.get(part.dtype, torch.bfloat16))


def _floats(scale: torch.Tensor) -> np.ndarray:
    if scale.element_size() == 1:
        return E8M0[scale.view(torch.uint8).numpy()]
    return scale.float().numpy()


def _fp8(packing: WeightFormat, rows: int, columns: int, rng: np.random.Generator) -> Drawn:
    codes = rng.integers(0, 0x78, (rows, columns)) + 128 * rng.integers(0, 2, (rows, columns))
    part = _part(packing, "scale")
    scale = _fp8_scale(part, part.shape(rows, columns), columns, rng)
    parts = {"weight": torch.from_numpy(codes.astype(np.uint8)).view(torch.float8_e4m3fn), "scale": scale}
    factor = _floats(scale)
    if {axis.of for axis in part.axes} == {"out", "in"}:
        factor = np.repeat(np.repeat(factor, packing.block_rows, 0), packing.group_size, 1)[:rows, :columns]
    elif part.axes and part.axes[0].of == "out":
        factor = factor.reshape(rows, 1)
    else:
        factor = factor.reshape(1, 1)
    return parts, E4M3[codes] * factor


def _int8(packing: WeightFormat, rows: int, columns: int, rng: np.random.Generator) -> Drawn:
    values = rng.integers(-128, 128, (rows, columns))
    part = _part(packing, "scale")
    scale = (torch.from_numpy(rng.uniform(0.5, 1.5, part.shape(rows, columns))) * columns**-0.5 / 64).bfloat16()
    parts = {"weight": torch.from_numpy(values.astype(np.int8)), "scale": scale}
    if _has(packing, "zero_point"):
        zeros = rng.integers(-9, 9, scale.shape)
        parts["zero_point"] = torch.from_numpy(zeros.astype(np.int8))
        values = values - zeros.reshape(-1, 1)
    return parts, values.astype(np.float32) * scale.float().numpy().reshape(-1, 1)


def _grouped(packing: WeightFormat, rows: int, columns: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Unsigned codes [rows, columns], zeros and scales [rows, groups], and each column's group."""
    top = 2**packing.bits
    groups = columns // packing.group_size if packing.group_size else 1
    codes, zeros = rng.integers(0, top, (rows, columns)), rng.integers(0, top, (rows, groups))
    scale = torch.from_numpy(rng.uniform(0.5, 1.5, (rows, groups)) * columns**-0.5 / top * 3).bfloat16()
    order = np.arange(columns) // (columns // groups)
    return codes, zeros, scale, rng.permutation(order) if _has(packing, "order") else order


def _value(codes: np.ndarray, zeros: np.ndarray, scale: torch.Tensor, order: np.ndarray) -> np.ndarray:
    return (codes - zeros[:, order]).astype(np.float32) * scale.float().numpy()[:, order]


def _int_packed(packing: WeightFormat, rows: int, columns: int, rng: np.random.Generator) -> Drawn:
    codes, zeros, scale, order = _grouped(packing, rows, columns, rng)
    parts = {"packed": _words(codes, packing.bits), "scale": scale, "shape": torch.tensor([rows, columns])}
    if _has(packing, "zero_point"):
        parts["zero_point"] = _words(zeros.T, packing.bits).T.contiguous()
    else:
        zeros = np.full_like(zeros, 2 ** (packing.bits - 1))
    if _has(packing, "order"):
        parts["order"] = torch.from_numpy(order.astype(np.int32))
    return parts, _value(codes, zeros, scale, order)


def _gptq(packing: WeightFormat, rows: int, columns: int, rng: np.random.Generator) -> Drawn:
    codes, zeros, scale, order = _grouped(packing, rows, columns, rng)
    parts = {"packed": _words(codes, packing.bits).T.contiguous(), "scale": scale.T.contiguous()}
    if _has(packing, "zero_below"):
        parts["zero_below"] = _words((zeros - 1).T % 2**packing.bits, packing.bits)
    elif _has(packing, "zero_point"):
        parts["zero_point"] = _words(zeros.T, packing.bits)
    else:
        zeros = np.full_like(zeros, 2 ** (packing.bits - 1))
    if _has(packing, "order"):
        parts["order"] = torch.from_numpy(order.astype(np.int32))
    return parts, _value(codes, zeros, scale, order)


def _awq(packing: WeightFormat, rows: int, columns: int, rng: np.random.Generator) -> Drawn:
    codes, zeros, scale, order = _grouped(packing, rows, columns, rng)
    shuffled = np.concatenate([start + np.array(AWQ_ORDER) for start in range(0, rows, 8)])
    parts = {
        "packed": _words(codes.T[:, shuffled], 4),
        "scale": scale.T.contiguous(),
        "zero_point": _words(zeros.T[:, shuffled], 4),
    }
    return parts, _value(codes, zeros, scale, order)


def _int4_awq(packing: WeightFormat, rows: int, columns: int, rng: np.random.Generator) -> Drawn:
    values = rng.integers(-8, 8, (rows, columns))
    scale = torch.from_numpy(rng.uniform(0.5, 1.5, (rows, columns // packing.group_size)) * columns**-0.5 / 4)
    scale, nibbles = scale.bfloat16(), values % 16
    packed = torch.from_numpy((nibbles[0::2] | (nibbles[1::2] << 4)).astype(np.uint8))
    numbers = values.astype(np.float32) * np.repeat(scale.float().numpy(), packing.group_size, axis=1)
    parts = {"packed": packed, "scale": scale}
    if _has(packing, "smoothing"):
        parts["smoothing"] = torch.from_numpy(rng.uniform(0.5, 2.0, columns)).bfloat16()
        numbers = numbers * parts["smoothing"].float().numpy()
    return parts, numbers


DRAWS: Mapping[str, Callable[[WeightFormat, int, int, np.random.Generator], Drawn]] = {
    "mxfp4": _mxfp4,
    "nvfp4": _nvfp4,
    "mxfp8": _fp8,
    "fp8_block": _fp8,
    "fp8_channel": _fp8,
    "fp8_tensor": _fp8,
    "int8": _int8,
    "int_packed": _int_packed,
    "gptq": _gptq,
    "awq": _awq,
    "int4_awq": _int4_awq,
}
"""By the kind of a format."""
