"""Pairs of small checkpoints with the same numbers: one packed, one plain in float32."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from packing_draws import draw_packed, stacked
from safetensors.torch import save_file

from day0.profile.packing import matrix_size, one_by_one, pack
from day0.profile.profile import ArchitectureProfile
from day0.profile.quantization import WeightFormat
from day0.profile.read import read_profile
from day0.profile.tensor_spec import TensorSpec
from day0.profile.tensors import plain_tensors
from day0.runtime.quant.parts import DTYPES
from day0.source.resolve import resolve

Tensors = dict[str, torch.Tensor]


def write_pair(config: dict[str, Any], section: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """The folders of the packed and of the plain one, each laid out as the family stores such."""
    profile = _profile(config | {"quantization_config": section}, folder)
    assert profile.quantization is not None
    rng, packed, plain = np.random.default_rng(0), Tensors(), Tensors()
    for spec, _ in plain_tensors(profile):
        packing = profile.quantization.format_of(spec)
        if packing is None:
            for name in spec.names():
                packed[name] = plain[name] = _plain(spec, rng)
        elif spec.stacked and packing.apart:
            parts = [_add_packed(matrix, packing, rng, packed) for matrix in one_by_one(spec)]
            plain[spec.name] = _joined(spec, [torch.stack(part) for part in parts])
        else:
            numbers = _add_packed(spec, packing, rng, packed)
            whole = [torch.stack(numbers).mT if spec.input_first else torch.stack(numbers)] if spec.stacked else numbers
            plain |= zip(spec.names(), whole, strict=True)
    return (
        _write(folder / "packed", config | {"quantization_config": section}, packed),
        _write(folder / "plain", config, plain),
    )


def _add_packed(
    matrix: TensorSpec, packing: WeightFormat, rng: np.random.Generator, packed: Tensors
) -> list[torch.Tensor]:
    """Draw a matrix for every expert, or the one, and store its parts; gives the numbers."""
    specs = {spec.path.rpartition(".")[2]: spec for spec in pack(matrix, packing)}
    drawn = [draw_packed(packing, *matrix_size(matrix), rng) for _ in range(matrix.num_experts or 1)]
    for role, spec in specs.items():
        # The scale of what the matrix reads is not drawn.
        size = spec.shape[1:] if spec.stacked else spec.shape
        values = [parts.get(role, torch.ones(size, dtype=DTYPES[spec.dtype])) for parts, _ in drawn]
        if spec.stacked:
            stack = stacked(values).view(values[0].dtype)
            values = [stack.mT if spec.input_first else stack]
        packed |= zip(spec.names(), values, strict=True)
    assert all(parts.keys() <= specs.keys() for parts, _ in drawn)
    return [torch.from_numpy(numbers.astype(np.float32)) for _, numbers in drawn]


def _joined(spec: TensorSpec, parts: list[torch.Tensor]) -> torch.Tensor:
    """Projections [experts, rows, columns] as one tensor of a stack."""
    turns = [part.unflatten(1, (spec.by_turns or 1, -1)) for part in parts]
    whole = torch.cat(turns, dim=2).flatten(1, 2)
    return whole.mT if spec.input_first else whole


def _plain(spec: TensorSpec, rng: np.random.Generator) -> torch.Tensor:
    noise = torch.from_numpy(rng.standard_normal(spec.shape)).float()
    if len(spec.shape) == 1:
        return (1 + 0.1 * noise) if "norm" in spec.path else 0.1 * noise
    return noise if spec.path.startswith("embed") else noise / spec.shape[-1] ** 0.5


def _profile(config: dict[str, Any], folder: Path) -> ArchitectureProfile:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    profile = read_profile(resolve(str(folder / "config.json")))
    return replace(profile, mtp=None)


def _write(folder: Path, config: dict[str, Any], tensors: Tensors) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder
