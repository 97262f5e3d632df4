"""Every format that the profile reads, turned back to the last bit, whole, in pieces and several at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from live_bytes import LiveBytes
from packing_draws import DRAWS, draw_packed, stacked

from day0.profile import packing_formats as formats
from day0.profile.quantization import WeightFormat
from day0.runtime.quant import decoder as room
from day0.runtime.quant.decoder import READERS, Decoder

CPU = torch.device("cpu")
BYTES_A_NUMBER = 24
"""Beside the result, of a piece: its numbers in float32, indices of 32 bits, and scales and zero points of each where
the columns are in no order."""


def without(packing: WeightFormat, *roles: str) -> WeightFormat:
    """The format as a file shows it that lacks these parts; all others are there."""
    kept = tuple(part for part in packing.parts if part.role not in roles)
    return replace(packing, parts=tuple(replace(part, counted=True) for part in kept))


FORMATS: dict[str, WeightFormat] = {
    "mxfp4": formats.mxfp4(),
    "mxfp4, exponents": formats.mxfp4("F8_E8M0"),
    "mxfp4, blocks": formats.mxfp4_blocks(),
    "mxfp4, signed bytes": formats.mxfp4_bytes("scale"),
    "mxfp8": formats.mxfp8(),
    "nvfp4, divided": formats.nvfp4(activations=False),
    "nvfp4, multiplied": formats.modelopt_nvfp4(activations=False),
    "fp8 blocks": formats.fp8_block(128, 128, "weight_scale_inv", "F32"),
    "fp8 blocks, exponents": formats.fp8_block(128, 128, "scale", "F8_E8M0"),
    "fp8 blocks, bytes": formats.fp8_block(128, 128, "scale", "U8"),
    "fp8 wide blocks": formats.fp8_block(16, 48, "weight_scale", "BF16"),
    "fp8 scalar": formats.fp8_tensor("weight_scale F32", ""),
    "fp8 list of one": formats.fp8_tensor("weight_scale MAIN", "", shape="1"),
    "fp8 rows": formats.fp8_channel(),
    "fp8 rows, one axis": formats.fp8_channel("F32", axes="out"),
    "int8 rows": without(formats.int8("channel"), "zero_point"),
    "int8 rows, zeros": without(formats.int8("channel")),
    "int8 whole": without(formats.int8("tensor"), "zero_point"),
    "gptq without zeros": without(formats.gptq(4, 32), "zero_below", "order"),
    "gptq in order": without(formats.gptq(4, 32), "order"),
    "gptq rows": without(formats.gptq(4, 0), "order"),
    "gptq 2": formats.gptq(4, 32, version=2),
    "awq": formats.awq(4, 32, zero_points=True),
    "awq rows": formats.awq(4, 0, zero_points=True),
    "modelopt int4": without(formats.modelopt_int4(32, fp8_activations=False), "smoothing"),
    "modelopt int4, smoothed": formats.modelopt_int4(32, fp8_activations=False),
    **{f"gptq {bits} bits": formats.gptq(bits, 32) for bits in (2, 4, 8)},
    **{
        f"int{bits}": without(formats.int_packed(bits, 32, symmetric=True, reordered=False), "zero_point", "order")
        for bits in (2, 4, 8)
    },
    "int4 rows": without(formats.int_packed(4, 0, symmetric=True, reordered=False), "zero_point", "order"),
    "int4, zeros": without(formats.int_packed(4, 32, symmetric=False, reordered=False), "order"),
    "int4, zeros and order": without(formats.int_packed(4, 32, symmetric=False, reordered=True)),
}


def draw(name: str, rows: int, columns: int, seed: int = 0):
    return draw_packed(FORMATS[name], rows, columns, np.random.default_rng(seed))


def decode(name: str, parts: dict[str, torch.Tensor], rows: int, columns: int, dtype=torch.float32) -> torch.Tensor:
    return Decoder(CPU).decode(FORMATS[name], parts, torch.empty(rows, columns, dtype=dtype))


def same(found: torch.Tensor, wanted: np.ndarray) -> bool:
    return torch.equal(found, torch.from_numpy(wanted.astype(np.float32)))


def test_every_reader_is_among_the_cases() -> None:
    assert {packing.kind or packing.name for packing in FORMATS.values()} == READERS.keys() == DRAWS.keys()
    assert all(packing.native for packing in FORMATS.values())


@pytest.mark.parametrize("shape", [(8, 96), (136, 192), (264, 288)], ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_numbers_are_those_of_the_format(name: str, shape: tuple[int, int]) -> None:
    parts, wanted = draw(name, *shape)
    assert np.isfinite(wanted).all()
    assert np.abs(wanted).max() > 0
    assert same(decode(name, parts, *shape), wanted)


@pytest.mark.parametrize("name", FORMATS)
def test_pieces_are_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece ends between blocks and words, and the last one may be short."""
    parts, wanted = draw(name, 264, 96)
    monkeypatch.setattr(room, "PIECE", 1)
    assert same(decode(name, parts, 264, 96), wanted)


@pytest.mark.parametrize("piece", [1, 16 * 96 * 3, 1 << 18], ids=["one by one", "three at once", "all at once"])
@pytest.mark.parametrize("name", FORMATS)
def test_chosen_matrices_of_a_stack(name: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [draw(name, 16, 96, seed) for seed in range(5)]
    stack = {role: stacked([parts[role] for parts, _ in drawn]) for role in drawn[0][0]}
    monkeypatch.setattr(room, "PIECE", piece)
    chosen = [4, 0, 3, 1]
    found = Decoder(CPU).decode_some(FORMATS[name], stack, chosen, torch.empty(4, 16, 96))
    for place, matrix in enumerate(chosen):
        assert same(found[place], drawn[matrix][1]), f"matrix {matrix}"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FORMATS)
def test_another_dtype_is_rounded_once(name: str, dtype: torch.dtype) -> None:
    parts, wanted = draw(name, 16, 96)
    assert torch.equal(decode(name, parts, 16, 96, dtype), torch.from_numpy(wanted.astype(np.float32)).to(dtype))


def test_an_order_of_minus_ones_is_no_order() -> None:
    parts, _ = draw("int4, zeros and order", 16, 96)
    parts["order"].fill_(-1)
    in_sequence = {role: part for role, part in parts.items() if role != "order"}
    assert torch.equal(decode("int4, zeros and order", parts, 16, 96), decode("int4, zeros", in_sequence, 16, 96))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FORMATS)
def test_a_piece_at_a_time(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PIECE", 1 << 14)
    unit = FORMATS[name].cut("out") * 1152
    allowed = BYTES_A_NUMBER * max(1 << 14, unit)
    parts, _ = draw(name, 512, 1152)
    decoder, out = Decoder(torch.device("cpu")), torch.empty(512, 1152, dtype=dtype)
    with LiveBytes() as live:
        decoder.decode(FORMATS[name], parts, out)
    assert 0 < live.peak < allowed
    if unit <= 1 << 15:
        assert allowed < out.nbytes * 0.7, "the whole would show"
