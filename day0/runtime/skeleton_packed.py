"""Random packed matrices for skeletons: every bit pattern in the numbers, scales that keep a layer's variance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from day0.profile.packing import matrix_size, one_by_one, pack
from day0.profile.profile import ArchitectureProfile
from day0.profile.quantization import WeightFormat
from day0.profile.tensor_spec import TensorSpec
from day0.profile.tensors import plain_tensors
from day0.runtime.quant.parts import DTYPES
from day0.runtime.quant.tables import E2M1

_E2M1_SIZE = math.sqrt(sum(value * value for value in E2M1) / len(E2M1))
"""Root mean square of codes drawn evenly."""


@dataclass(frozen=True, slots=True)
class PackedMatrixFacts:
    """What a part's random values depend on: the format and size of the matrix (of one expert's)."""

    packing: WeightFormat
    rows: int
    columns: int

    @property
    def scale(self) -> float:
        """What brings the numbers, drawn as below, to unit gain over a row."""
        return 1.0 / (_size(self.packing) * math.sqrt(self.columns))


def packed_matrices_by_name(profile: ArchitectureProfile) -> dict[str, PackedMatrixFacts]:
    """The matrix that each stored part belongs to, by the part's checkpoint name."""
    return dict(_facts(profile))


def _facts(profile: ArchitectureProfile) -> Iterator[tuple[str, PackedMatrixFacts]]:
    if profile.quantization is None:
        return
    for spec, _ in plain_tensors(profile):
        packing = profile.quantization.format_of(spec)
        if packing is not None:
            for matrix in one_by_one(spec) if packing.apart else (spec,):
                for part in pack(matrix, packing):
                    yield part.name, PackedMatrixFacts(packing, *matrix_size(matrix))


def random_part(spec: TensorSpec, facts: PackedMatrixFacts, generator: torch.Generator) -> torch.Tensor:
    """Values of one stored part, in its own dtype."""
    shape, dtype = spec.shape, DTYPES[spec.dtype]
    match spec.path.rpartition(".")[2]:
        case "packed" if dtype == torch.int8:  # bytes with a sign, of two codes each
            return torch.randint(-128, 128, shape, dtype=dtype, generator=generator)
        case "packed" | "zero_point" | "zero_below":
            return _bits(shape, dtype, generator)
        case "weight" if dtype == torch.int8:
            return torch.randint(-127, 128, shape, dtype=dtype, generator=generator)
        case "weight":
            return torch.randn(shape, generator=generator).to(dtype)
        case "scale":
            return _scale(shape, dtype, facts, generator)
        case "global_scale":
            return torch.full(shape, facts.scale, dtype=dtype)
        case "global_divisor":
            return torch.full(shape, 1.0 / facts.scale, dtype=dtype)
        case "smoothing":
            return (1.0 + 0.1 * torch.randn(shape, generator=generator)).to(dtype)
        case "order":
            group = facts.packing.group_size or facts.columns
            return (torch.randperm(facts.columns, generator=generator) // group).to(dtype)
        case "shape":
            return torch.tensor([facts.rows, facts.columns], dtype=dtype)
        case "input_scale":
            return torch.ones(shape, dtype=dtype)
        case role:
            raise AssertionError(f"{role} is a part that nothing is drawn for")


def _size(packing: WeightFormat) -> float:
    """Root mean square of a format's numbers before they are scaled."""
    kind, roles = packing.kind or packing.name, {part.role for part in packing.counted}
    if kind in ("mxfp4", "nvfp4"):
        return _E2M1_SIZE
    if kind == "int8":
        return 73.3
    if packing.bits or kind == "int4_awq":  # evenly drawn, less its middle or another even draw
        zeros = roles & {"zero_point", "zero_below"}
        return float(2 ** (packing.bits or 4)) / math.sqrt(6.0 if zeros else 12.0)
    return 1.0


def _bits(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Every bit by chance; zero points of whole bytes stay small."""
    if dtype == torch.uint8:
        return torch.randint(0, 256, shape, dtype=dtype, generator=generator)
    if dtype == torch.int32:
        return torch.randint(-(2**31), 2**31, shape, dtype=dtype, generator=generator)
    return torch.randint(-8, 8, shape, dtype=dtype, generator=generator)


def _scale(
    shape: tuple[int, ...], dtype: torch.dtype, facts: PackedMatrixFacts, generator: torch.Generator
) -> torch.Tensor:
    if dtype in (torch.uint8, torch.float8_e8m0fnu):
        centre = 127 + round(math.log2(facts.scale))
        return torch.randint(centre - 1, centre + 2, shape, dtype=torch.uint8, generator=generator).view(dtype)
    near_one = 0.75 + 0.5 * torch.rand(shape, generator=generator)
    # The scales of NVFP4's groups are E4M3 under one more scale, which has the size.
    return (near_one if dtype == torch.float8_e4m3fn else near_one * facts.scale).to(dtype)
