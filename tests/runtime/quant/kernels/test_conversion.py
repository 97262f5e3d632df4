"""Conversion kernels against the reference decoder, on every byte there is.

The interpreter rounds to bfloat16 in a way of its own, so bits are compared in float32 and float16 here, and in
bfloat16 on a device (benchmarks/gpu_conversions.py).
"""

from __future__ import annotations

import pytest
import torch

triton = pytest.importorskip("triton")

from day0.profile.packing_formats import fp8_block, modelopt_nvfp4, mxfp4  # noqa: E402
from day0.runtime.quant.decoder import Decoder  # noqa: E402
from day0.runtime.quant.kernels.eight_bit import convert_blocks  # noqa: E402
from day0.runtime.quant.kernels.four_bit import convert_four_bit  # noqa: E402

DTYPES = (torch.float32, torch.float16)
CPU = torch.device("cpu")


def same_bits(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    bits = torch.int32 if found.dtype == torch.float32 else torch.int16
    return bool(((found.view(bits) == wanted.view(bits)) | (found.isnan() & wanted.isnan())).all())


def poisoned(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.full(shape, torch.nan, dtype=dtype)


def any_bytes(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(1, 32), (7, 96), (63, 160)])
def test_mxfp4(rows: int, columns: int, dtype: torch.dtype) -> None:
    parts = {"packed": any_bytes(3, rows, columns // 2), "scale": any_bytes(3, rows, columns // 32, seed=1)}
    wanted = Decoder(CPU).decode_some(mxfp4(), parts, range(3), torch.empty(3, rows, columns, dtype=dtype))
    assert same_bits(convert_four_bit(parts, True, poisoned(3, rows, columns, dtype=dtype)), wanted)


def test_every_byte_under_every_scale() -> None:
    packed = torch.arange(256, dtype=torch.uint8).view(1, 16, 16).repeat(256, 1, 1)
    scale = torch.arange(256, dtype=torch.uint8).view(256, 1, 1).repeat(1, 16, 1)
    parts = {"packed": packed, "scale": scale}
    wanted = Decoder(CPU).decode_some(mxfp4(), parts, range(256), torch.empty(256, 16, 32))
    assert same_bits(convert_four_bit(parts, True, poisoned(256, 16, 32, dtype=torch.float32)), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_chosen_matrices(dtype: torch.dtype) -> None:
    parts = {"packed": any_bytes(5, 3, 32), "scale": any_bytes(5, 3, 2, seed=2)}
    chosen = [3, 0]
    wanted = Decoder(CPU).decode_some(mxfp4(), parts, chosen, torch.empty(2, 3, 64, dtype=dtype))
    found = convert_four_bit(parts, True, poisoned(2, 3, 64, dtype=dtype), torch.tensor(chosen))
    assert same_bits(found, wanted)


@pytest.mark.parametrize("role", ["global_scale", "global_divisor"])
def test_nvfp4(role: str) -> None:
    whole = torch.tensor([0.003, 1.7, 40.0]).view(3, 1, 1)
    parts = {"packed": any_bytes(3, 9, 24), "scale": any_bytes(3, 9, 3, seed=3), role: whole}
    packing = modelopt_nvfp4(activations=False)
    wanted = Decoder(CPU).decode_some(packing, parts, range(3), torch.empty(3, 9, 48))
    assert same_bits(convert_four_bit(parts, False, poisoned(3, 9, 48, dtype=torch.float32)), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponents", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (130, 200), (128, 256)])
def test_blocks(rows: int, columns: int, exponents: bool, dtype: torch.dtype) -> None:
    weight, grid = any_bytes(2, rows, columns), (2, -(-rows // 128), -(-columns // 128))
    scale = any_bytes(*grid, seed=4) if exponents else torch.rand(grid, generator=torch.Generator().manual_seed(5))
    packing = fp8_block(128, 128, "scale", "F8_E8M0" if exponents else "F32")
    parts = {"weight": weight, "scale": scale}
    wanted = Decoder(CPU).decode_some(packing, parts, range(2), torch.empty(2, rows, columns, dtype=dtype))
    found = convert_blocks(weight, scale, 128, 128, poisoned(2, rows, columns, dtype=dtype))
    assert same_bits(found, wanted)
