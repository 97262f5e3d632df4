"""The corners of four-bit floats: every byte at every kind of scale, NaN, what is beyond float32, order in a byte."""

import math

import pytest
import torch
from packing_draws import e2m1 as value
from packing_draws import e4m3
from packing_draws import e8m0 as power
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from day0.profile.packing_formats import modelopt_nvfp4, mxfp4, mxfp4_blocks, nvfp4
from day0.runtime.quant.decoder import Decoder
from day0.runtime.quant.tables import E2M1


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return Decoder(torch.device("cpu"))


def decode(decoder: Decoder, packed: list[list[int]], scale: list[list[int]], dtype=torch.float32):
    parts = {"packed": torch.tensor(packed, dtype=torch.uint8), "scale": torch.tensor(scale, dtype=torch.uint8)}
    out = torch.full((len(packed), 2 * len(packed[0])), math.nan, dtype=dtype)
    return decoder.decode(mxfp4(), parts, out)


def test_magnitudes_are_those_of_the_format():
    assert tuple(value(nibble) for nibble in range(8)) == E2M1


@pytest.mark.parametrize("byte", [0, 1, 2, 100, 126, 127, 128, 200, 253, 254])
def test_every_byte_at_this_scale(decoder, byte):
    # 256 bytes are 512 values: 16 groups of 32.
    found = decode(decoder, [list(range(256))], [[byte] * 16])[0].tolist()
    wanted = [value(half) * power(byte) for pair in range(256) for half in (pair & 15, pair >> 4)]
    largest = torch.finfo(torch.float32).max
    for a, b in zip(found, wanted, strict=True):
        assert a == (b if abs(b) <= largest else math.copysign(math.inf, b))  # 4 x 2^127 is beyond float32
        assert math.copysign(1, a) == math.copysign(1, b)  # -0 stays -0


def test_scale_255_is_nan_even_for_zeros(decoder):
    found = decode(decoder, [[0] * 16 + [0x22] * 16], [[255, 127]])
    assert found[0, :32].isnan().all()
    assert found[0, 32:].tolist() == [1.0] * 32


@pytest.mark.parametrize("byte", [1, 64, 127, 190, 252])
def test_bfloat16_is_exact(decoder, byte):
    packed = [list(range(256))]
    wide = decode(decoder, packed, [[byte] * 16])
    narrow = decode(decoder, packed, [[byte] * 16], torch.bfloat16)
    assert torch.equal(narrow.float(), wide)


def test_low_nibble_first_and_one_scale_per_group_of_the_row(decoder):
    first, second = [0xA3, 0x5F] + [0] * 14, [0x71] + [0] * 15
    found = decode(decoder, [first + second, second + first], [[128, 126], [127, 130]])
    # 0xA3: 3 then A = 1.5, -1; 0x5F: F then 5 = -6, 3; 0x71: 1 then 7 = 0.5, 6.
    assert found[0, :4].tolist() == [3.0, -2.0, -12.0, 6.0]
    assert found[0, 32:34].tolist() == [0.25, 3.0]
    assert found[1, :2].tolist() == [0.5, 6.0]
    assert found[1, 32:36].tolist() == [12.0, -8.0, -48.0, 24.0]


def test_a_group_that_mixes_all_codes(decoder):
    # Our own worked example: scale 2^-3, bytes whose halves count up and down.
    packed = [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE, 0xEF, 0xCD, 0xAB, 0x89, 0x67, 0x45, 0x23, 0x01]
    up = [0, 0.0625, 0.125, 0.1875, 0.25, 0.375, 0.5, 0.75]
    wanted = up + [-x for x in up] + [-x for x in reversed(up)] + list(reversed(up))
    assert decode(decoder, [packed], [[124]])[0].tolist() == wanted


def test_swapped_nibbles_are_noticed(decoder):
    packed = torch.randint(0, 256, (4, 32), dtype=torch.uint8)
    scale = torch.full((4, 2), 127, dtype=torch.uint8)
    right = decoder.decode(mxfp4(), {"packed": packed, "scale": scale}, torch.empty(4, 64))
    parts = {"packed": (packed << 4) | (packed >> 4), "scale": scale}
    swapped = decoder.decode(mxfp4(), parts, torch.empty(4, 64))
    assert not torch.equal(right, swapped)
    assert torch.equal(right[:, 0::2], swapped[:, 1::2])


def test_nvfp4_at_every_scale_of_a_group(decoder):
    """256 groups, one for each E4M3 byte; two of them are NaN. The divisor is that of the sum, not of the product."""
    scale = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)[None]
    packed = torch.arange(256, dtype=torch.uint8).repeat(8)[None]
    divisor = torch.tensor([3.0])
    parts = {"packed": packed, "scale": scale, "global_divisor": divisor}
    found = decoder.decode(nvfp4(activations=False), parts, torch.empty(1, 4096))[0]
    for place in range(4096):
        byte = packed[0, place // 2].item()
        code = byte >> 4 if place % 2 else byte & 15
        joined = (torch.tensor(e4m3(place // 16)) / divisor).item()
        wanted = torch.tensor(value(code)) * joined
        assert found[place] == wanted or (found[place].isnan() and math.isnan(joined))
    assert found.isnan().sum() == 32


def test_nvfp4_of_modelopt_multiplies(decoder):
    scale = torch.tensor([[0x38]], dtype=torch.uint8).view(torch.float8_e4m3fn)  # 1.0
    parts = {"packed": torch.full((1, 8), 0x72, dtype=torch.uint8), "scale": scale, "global_scale": torch.tensor(0.5)}
    found = decoder.decode(modelopt_nvfp4(activations=False), parts, torch.empty(1, 16))
    assert found[0].tolist() == [0.5, 3.0] * 8


def test_transformers_reads_the_same_from_blocks(decoder):
    """Its own way back from gpt-oss's stacked blocks, which gives [experts, in, out]."""
    blocks = torch.randint(0, 256, (3, 8, 4, 16), dtype=torch.uint8)
    scales = torch.randint(100, 140, (3, 8, 4), dtype=torch.uint8)
    wanted = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    parts = {"packed": blocks, "scale": scales}
    found = decoder.decode_some(mxfp4_blocks(), parts, [0, 1, 2], torch.empty(3, 8, 128))
    assert torch.equal(found.mT, wanted)
