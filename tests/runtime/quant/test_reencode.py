"""MXFP4 as FP8 blocks: equal to the bit where the span of a block allows, rounded as promised where it does not."""

from __future__ import annotations

import math

import pytest
import torch
from packing_draws import e2m1, e4m3

from day0.profile.packing_formats import mxfp4
from day0.runtime.quant.decoder import Decoder
from day0.runtime.quant.reencode import FORMAT, encode_blocks, encode_into, scale_grid

DECODER = Decoder(torch.device("cpu"))


def matrix(rows: int, columns: int, low: int, high: int) -> dict[str, torch.Tensor]:
    """Every code, under scales from `low` to `high`, both there in each block."""
    scale = torch.randint(low, high + 1, (rows, columns // 32), dtype=torch.uint8)
    scale[::16] = low
    scale[1::16] = high
    packed = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8)
    packed[::16, ::16], packed[1::16, ::16] = 0x31, 0x77  # 0.5 and 1.5 of the lowest, 6 of the highest
    return {"packed": packed, "scale": scale}


def both(parts: dict[str, torch.Tensor], rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The numbers as they were and as FP8 blocks read back, and the scales."""
    wanted = DECODER.decode(mxfp4(), parts, torch.empty(rows, columns))
    weight, scale = (
        torch.full(shape, 0x7F, dtype=torch.uint8) for shape in ((rows, columns), scale_grid(rows, columns))
    )
    rounded = encode_into(wanted, weight, scale)
    found = DECODER.decode(FORMAT, {"weight": weight, "scale": scale}, torch.empty(rows, columns))
    assert rounded == (~encode_blocks(wanted, 128, 128).exact).sum()
    return wanted, found, scale


@pytest.mark.parametrize("low", [0, 1, 60, 113, 120, 200, 238])
@pytest.mark.parametrize("shape", [(128, 128), (256, 384), (200, 160), (17, 32)], ids=str)
def test_a_span_of_fourteen_is_exact(shape: tuple[int, int], low: int) -> None:
    wanted, found, scale = both(matrix(*shape, low, low + 14), *shape)
    assert encode_blocks(wanted, 128, 128).exact.all()
    assert scale.shape == (-(-shape[0] // 128), -(-shape[1] // 128))
    assert torch.equal(found, wanted)
    assert torch.equal(found.signbit(), wanted.signbit()), "-0 stays -0"


@pytest.mark.parametrize("span", [15, 16, 20, 40])
def test_a_wider_span_is_said_not_to_be_exact_and_rounds_below_the_smallest(span: int) -> None:
    wanted, found, scales = both(matrix(128, 128, 100, 100 + span), 128, 128)
    assert not encode_blocks(wanted, 128, 128).exact.any()
    assert not torch.equal(found, wanted)
    scale = 2.0 ** (scales.item() - 127)
    assert (found - wanted).abs().max() <= scale * 2.0**-10
    large = wanted.abs() >= scale * 2.0**-6  # E4M3's normal numbers
    assert torch.equal(found[large], wanted[large])


def test_each_block_is_judged_by_itself() -> None:
    parts = matrix(256, 128, 120, 122)
    parts["scale"][0, 0], parts["packed"][0, 0] = 90, 0x11
    wanted, _, _ = both(parts, 256, 128)
    assert encode_blocks(wanted, 128, 128).exact.tolist() == [[False], [True]]


@pytest.mark.parametrize("code", range(1, 8))
def test_the_numbers_that_are_there_decide_not_the_scales(code: int) -> None:
    """Beside 6 x 2^e, how far down each single code may stand: derived here from E4M3's own table of values."""
    table = {e4m3(byte) for byte in range(127)}
    for span in range(10, 22):
        numbers = torch.zeros(128, 128)
        numbers[0, 0], numbers[5, 7] = 6.0, e2m1(code) * 2.0**-span
        blocks = encode_blocks(numbers, 128, 128)
        scale = 2.0 ** (blocks.scale.view(torch.uint8).item() - 127)
        assert blocks.exact.item() == (e2m1(code) * 2.0**-span / scale in table), f"span {span}"


def test_zeros_and_nan() -> None:
    numbers = torch.zeros(128, 256)
    numbers[3, 200] = math.nan
    numbers[4, 200] = 3.0
    blocks = encode_blocks(numbers, 128, 128)
    assert blocks.exact.all()
    found = DECODER.decode(FORMAT, {"weight": blocks.weight, "scale": blocks.scale}, torch.empty(128, 256))
    assert torch.equal(found.nan_to_num(7.5), numbers.nan_to_num(7.5))
