"""MXFP4 and NVFP4: groups of 4-bit E2M1 values under one scale (OCP Microscaling Formats 1.0; NVIDIA 2025)."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from day0.profile.quantization import WeightFormat
from day0.runtime.quant.tables import Tables, look_up


def read_mxfp4(tables: Tables, packing: WeightFormat, parts: Mapping[str, torch.Tensor], out: torch.Tensor) -> None:
    """packed [.., rows, columns / 2] bytes, or with each group's 16 as an axis; scale [.., rows, groups] of exponents.

    Exact in float32: a code has two significant bits and the scale is a power of two.
    """
    packed = parts["packed"].reshape(*out.shape[:-1], out.shape[-1] // 2)
    look_up(tables.pairs, packed, out)
    scale_groups(out, tables.scales(parts["scale"], packing.part("scale").dtype))


def read_nvfp4(tables: Tables, packing: WeightFormat, parts: Mapping[str, torch.Tensor], out: torch.Tensor) -> None:
    """packed [.., rows, columns / 2] bytes, scale [.., rows, groups] E4M3, one more scale for the whole matrix.

    The two scales are made one in float32 first: ModelOpt's multiplies ("global_scale"), that of compressed-tensors
    divides ("global_divisor").
    """
    scale = tables.scales(parts["scale"], packing.part("scale").dtype)
    whole = (*out.shape[:-2], 1, 1)
    if "global_divisor" in parts:
        scale = scale / parts["global_divisor"].float().reshape(whole)
    else:
        scale = scale * parts["global_scale"].float().reshape(whole)
    look_up(tables.pairs, parts["packed"], out)
    scale_groups(out, scale)


def scale_groups(out: torch.Tensor, scale: torch.Tensor) -> None:
    """Multiply each group of a row by its scale, in place: out [.., rows, columns], scale [.., rows, groups]."""
    out.unflatten(-1, (scale.shape[-1], -1)).mul_(scale[..., None])
