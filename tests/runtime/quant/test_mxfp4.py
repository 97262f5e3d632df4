import math

import pytest
import torch

from day0.runtime.quant.mxfp4 import E2M1, MXFP4Decoder


def value(nibble: int) -> float:
    """E2M1 from its fields: a sign bit, two bits of exponent (bias 1), one of fraction; exponent 0 is subnormal."""
    sign, exponent, fraction = nibble >> 3, (nibble >> 1) & 3, nibble & 1
    size = 0.5 * fraction if exponent == 0 else 2.0 ** (exponent - 1) * (1 + fraction / 2)
    return math.copysign(size, -1 if sign else 1)


def power(byte: int) -> float:
    """E8M0: an exponent with bias 127, and NaN at 255."""
    return math.nan if byte == 255 else 2.0 ** (byte - 127)


@pytest.fixture(scope="module")
def decoder() -> MXFP4Decoder:
    return MXFP4Decoder(torch.device("cpu"))


def decode(decoder: MXFP4Decoder, packed: list[list[int]], scale: list[list[int]], dtype=torch.float32):
    rows = torch.tensor(packed, dtype=torch.uint8)
    out = torch.full((rows.shape[0], 2 * rows.shape[1]), math.nan, dtype=dtype)
    return decoder.decode(rows, torch.tensor(scale, dtype=torch.uint8), out)


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


def test_leading_axes_are_kept(decoder):
    packed = torch.randint(0, 256, (3, 5, 32), dtype=torch.uint8)
    scale = torch.randint(100, 150, (3, 5, 2), dtype=torch.uint8)
    together = decoder.decode(packed, scale, torch.empty(3, 5, 64))
    for row in range(3):
        assert torch.equal(together[row], decoder.decode(packed[row], scale[row], torch.empty(5, 64)))


def test_swapped_nibbles_are_noticed(decoder):
    packed = torch.randint(0, 256, (4, 32), dtype=torch.uint8)
    scale = torch.full((4, 2), 127, dtype=torch.uint8)
    right = decoder.decode(packed, scale, torch.empty(4, 64))
    swapped = decoder.decode((packed << 4) | (packed >> 4), scale, torch.empty(4, 64))
    assert not torch.equal(right, swapped)
    assert torch.equal(right[:, 0::2], swapped[:, 1::2])
