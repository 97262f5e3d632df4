"""How fast packed matrices are turned back on this machine, and what it takes: run from the repository's root.

Prints a Markdown table; medians of several runs on one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from day0.profile import packing_formats as formats
from day0.profile.quantization import WeightFormat
from day0.runtime.quant.parts import PackedParts
from day0.runtime.quant.workspace import Workspace

FORMATS: dict[str, WeightFormat] = {
    "mxfp4": formats.mxfp4(),
    "nvfp4": formats.nvfp4(activations=False),
    "fp8_block": formats.fp8_block(128, 128, "weight_scale_inv", "F32"),
    "fp8_channel": formats.fp8_channel("F32"),
    "int8": formats.int8("channel"),
    "int4": formats.int_packed(4, 128, symmetric=True, reordered=False),
    "gptq_int4": formats.gptq(4, 128, version=2),
    "awq_int4": formats.awq(4, 128, zero_points=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4096, help="rows and columns of the matrix")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| format | stored MiB | float32 ms | G numbers/s | bfloat16 ms | G numbers/s |")
    print("|---|---|---|---|---|---|")
    for name, packing in FORMATS.items():
        cells = [name, f"{_parts(packing, options.size)[1] / 2**20:.1f}"]
        for dtype in (torch.float32, torch.bfloat16):
            seconds = _time(packing, options.size, dtype, options.repeats)
            cells += [f"{seconds * 1e3:.1f}", f"{options.size**2 / seconds / 1e9:.2f}"]
        print(f"| {' | '.join(cells)} |")


def _parts(packing: WeightFormat, size: int) -> tuple[dict[str, torch.Tensor], int]:
    """Random bytes in every part: what a number is makes no difference to the time."""
    module = PackedParts(packing, size, size)
    parts = {
        role: torch.randint(0, 64, part.shape, dtype=torch.uint8).view(part.dtype)
        if part.element_size() == 1
        else torch.arange(part.numel()).div(128, rounding_mode="floor").view(part.shape).to(part.dtype)
        if role == "order"
        else torch.randint(1, 64, part.shape).to(part.dtype)
        for role, part in module.parts().items()
    }
    return parts, sum(part.nbytes for part in parts.values())


def _time(packing: WeightFormat, size: int, dtype: torch.dtype, repeats: int) -> float:
    """Median seconds to turn one matrix back into the workspace."""
    workspace = Workspace(dtype, torch.device("cpu"))
    workspace.reserve(size * size)
    workspace.allocate()
    parts, _ = _parts(packing, size)
    workspace.matrix(packing, parts, size, size)
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        workspace.matrix(packing, parts, size, size)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
