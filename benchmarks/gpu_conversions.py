"""Cases of the kernels that turn packed matrices back into numbers: bits must equal those of the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from gpu_case import Call, Case, Prepared

from day0.profile.packing_formats import fp8_block, modelopt_nvfp4, mxfp4
from day0.profile.quantization import WeightFormat
from day0.runtime.quant.decoder import Decoder
from day0.runtime.quant.kernels import eight_bit, four_bit

SETS = 3
SHAPES = {
    "Kimi K3 experts": (16, 3072, 3584),
    "DeepSeek-V3.2 experts": (8, 2048, 7168),
    "Qwen3.5 experts": (64, 512, 2048),
}
"""Matrices converted at once, and the size of each."""
Parts = dict[str, torch.Tensor]


def _bytes(device: torch.device, *shape: int, low: int = 0, high: int = 256) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=torch.uint8, device=device)


def _mxfp4(device: torch.device, n: int, rows: int, columns: int) -> Parts:
    return {"packed": _bytes(device, n, rows, columns // 2), "scale": _bytes(device, n, rows, columns // 32)}


def _nvfp4(device: torch.device, n: int, rows: int, columns: int) -> Parts:
    whole = torch.rand(n, 1, 1, device=device) / 448
    parts = {"packed": _bytes(device, n, rows, columns // 2), "scale": _bytes(device, n, rows, columns // 16)}
    return parts | {"global_scale": whole}


def _fp8(device: torch.device, n: int, rows: int, columns: int) -> Parts:
    scale = torch.rand(n, -(-rows // 128), -(-columns // 128), device=device)
    return {"weight": _bytes(device, n, rows, columns), "scale": scale}


def _four(exponents: bool) -> Callable[[Parts, torch.Tensor], torch.Tensor]:
    return lambda parts, out: four_bit.convert_four_bit(parts, exponents, out)


def _eight(parts: Parts, out: torch.Tensor) -> torch.Tensor:
    return eight_bit.convert_blocks(parts["weight"], parts["scale"], 128, 128, out)


FORMATS = {
    "mxfp4": (_mxfp4, mxfp4(), _four(True)),
    "nvfp4": (_nvfp4, modelopt_nvfp4(activations=False), _four(False)),
    "fp8_block": (_fp8, fp8_block(128, 128, "scale", "F32"), _eight),
}


def differing_share(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The share of numbers whose bits differ; NaN is NaN whatever its bits."""
    bits = torch.int32 if found.dtype == torch.float32 else torch.int16
    equal = (found.view(bits) == wanted.view(bits)) | (found.isnan() & wanted.isnan())
    return float((~equal).float().mean())


def _prepare(
    draw: Callable[..., Parts],
    packing: WeightFormat,
    convert: Callable[[Parts, torch.Tensor], torch.Tensor],
    shape: tuple[int, int, int],
    device: torch.device,
) -> Prepared:
    sets = [draw(device, *shape) for _ in range(SETS)]
    outs = [torch.empty(shape, dtype=torch.bfloat16, device=device) for _ in range(SETS)]

    def check() -> float:
        """Three matrices of fresh bytes against the reference, and the output poisoned first."""
        decoder = Decoder(device)
        found = convert(sets[0], outs[0].fill_(torch.nan))
        first = {role: part[:2] for role, part in sets[0].items()}
        wanted = decoder.decode_some(packing, first, range(2), torch.empty_like(outs[0][:2]))
        odd = draw(device, 3, 130, 96 if "packed" in sets[0] else 200)
        columns = 96 if "packed" in sets[0] else 200
        small = convert(odd, torch.full((3, 130, columns), torch.nan, dtype=torch.float32, device=device))
        exact = decoder.decode_some(packing, odd, range(3), torch.empty_like(small))
        return max(differing_share(found[:2], wanted), differing_share(small, exact))

    def calls(block: int, warps: int) -> list[Call]:
        return [partial(_with, block, warps, partial(convert, *pair)) for pair in zip(sets, outs, strict=True)]

    variants = {f"{block}/{warps}": calls(block, warps) for block, warps in VARIANTS[packing.kind or packing.name]}
    return Prepared([partial(convert, *pair) for pair in zip(sets, outs, strict=True)], check, variants=variants)


VARIANTS = {
    "mxfp4": ((128, 4), (256, 4), (512, 4), (512, 8), (2048, 8), (2048, 4)),
    "nvfp4": ((256, 4), (512, 8)),
    "fp8_block": ((16, 4), (32, 4), (64, 8), (128, 8)),
}
"""Words or rows of a program, and its warps."""


def _with(block: int, warps: int, call: Call) -> object:
    """A call with other settings of both modules."""
    kept = four_bit.WORDS, four_bit.WARPS, eight_bit.ROWS, eight_bit.WARPS
    four_bit.WORDS, four_bit.WARPS, eight_bit.ROWS, eight_bit.WARPS = block, warps, block, warps
    result = call()
    four_bit.WORDS, four_bit.WARPS, eight_bit.ROWS, eight_bit.WARPS = kept
    return result


def _cases() -> Iterator[Case]:
    widths = {"mxfp4": 0.5 + 1 / 32, "nvfp4": 0.5 + 1 / 16, "fp8_block": 1.0}
    for name, (draw, packing, convert) in FORMATS.items():
        for model, shape in SHAPES.items():
            numbers = shape[0] * shape[1] * shape[2]
            prepare = partial(_prepare, draw, packing, convert, shape)
            yield Case(f"{name}_dequantize", model, prepare, numbers * (widths[name] + 2), wanted=0.8)


CASES = tuple(_cases())
