"""Safetensors -> modules, along the profile's expected tensors: each read once, every parameter accounted for."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from day0.errors import InputError
from day0.profile.tensor_spec import TensorSpec
from day0.runtime.placement import parameter_paths, pieces
from day0.source.model_files import ModelFiles, TensorHeader

POISON_BYTE = 255
"""Fills packed parameters before loading: as an E8M0 scale it is NaN, so an unwritten expert shows."""

PLAIN_FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
"""Stored dtypes whose numbers mean what they say; narrower ones need scales that a plain copy would lose."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What was loaded: stored tensors and bytes read, bytes held, and parameters that no tensor wrote."""

    tensors: int
    bytes_read: int
    bytes_held: int
    unwritten: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Read:
    """One stored tensor and where it goes: a whole parameter, or one expert's slice of a stacked one."""

    name: str
    spec: TensorSpec
    expert: int | None


Modules = Mapping[str, nn.Module]
"""Modules by the prefix that their parameters' paths carry: "" for the decoder, "vision." for the tower."""


def all_parameters(modules: Modules) -> dict[str, nn.Parameter]:
    """Every parameter by its path."""
    return {prefix + name: p for prefix, module in modules.items() for name, p in module.named_parameters()}


def allocate(modules: Modules, specs: Iterable[TensorSpec], dtype: torch.dtype, device: torch.device) -> None:
    """Give modules built on the meta device their memory, filled with NaN (packed bytes with 255).

    Parameters are in `dtype` except those whose spec stays float32 or is packed.
    """
    wide = {path for spec in specs if spec.keep_float32 for path in parameter_paths(spec)}
    for prefix, module in modules.items():
        for name, parameter in list(module.named_parameters()):
            packed = parameter.dtype == torch.uint8
            kept = torch.uint8 if packed else torch.float32 if prefix + name in wide else dtype
            fill = POISON_BYTE if packed else float("nan")
            owner, _, leaf = name.rpartition(".")
            filled = torch.full(parameter.shape, fill, dtype=kept, device=device)
            setattr(module.get_submodule(owner), leaf, nn.Parameter(filled, requires_grad=False))


def load_weights(modules: Modules, specs: tuple[TensorSpec, ...], files: ModelFiles) -> LoadReport:
    """Copy every expected tensor of `files` into the parameter of its path, shard by shard.

    Raises InputError where a tensor is missing, has another shape or cannot be read.
    """
    assert files.tensors is not None and files.folder is not None, "the caller checks that there are weights"
    started = time.perf_counter()
    parameters = all_parameters(modules)
    written: set[str] = set()
    count = bytes_read = 0
    for shard, reads in _by_shard(specs, files.tensors).items():
        try:
            with safe_open(files.folder / shard, framework="pt") as stored:
                for read in reads:
                    where = f"{shard}: {read.name}"
                    for path, piece in pieces(read.spec, stored.get_tensor(read.name), where):
                        _copy(read, piece, parameters[path], where)
                        written.add(path)
                    count += 1
                    bytes_read += files.tensors[read.name].nbytes
        except (SafetensorError, OSError) as error:
            raise InputError(f"cannot be read: {error}", where=shard) from error
    held = sum(parameter.nbytes for parameter in parameters.values())
    unwritten = tuple(sorted(parameters.keys() - written))
    return LoadReport(count, bytes_read, held, unwritten, time.perf_counter() - started)


def _by_shard(specs: Iterable[TensorSpec], headers: Mapping[str, TensorHeader]) -> dict[str, list[_Read]]:
    """Reads in file order within each shard, so that a disk is read forwards."""
    reads: dict[str, list[_Read]] = defaultdict(list)
    missing = []
    for spec in specs:
        for expert, name in enumerate(spec.names()):
            if name not in headers:
                missing.append(name)
                continue
            reads[headers[name].shard].append(_Read(name, spec, expert if spec.experts else None))
    if missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise InputError(f"the checkpoint lacks {len(missing)} tensors that the config asks for: {shown}")
    for shard in reads.values():
        shard.sort(key=lambda read: headers[read.name].begin)
    return dict(sorted(reads.items()))


def _copy(read: _Read, stored: torch.Tensor, parameter: torch.Tensor, where: str) -> None:
    target = parameter if read.expert is None else parameter[read.expert]
    if read.spec.zero_tail and stored.shape[1:] == target.shape[1:] and stored.shape[0] > target.shape[0]:
        live = target.shape[0]
        if stored[live:].any():
            raise InputError(f"entries from {live} on must be zero: only {live} are live", where=where)
        stored = stored[:live]
    if tuple(stored.shape) == read.spec.shape == (1, *target.shape):
        stored = stored[0]  # stored with an axis of one entry that modules do not have
    if stored.shape != target.shape:
        raise InputError(f"has shape {list(stored.shape)}, the config asks for {list(target.shape)}", where=where)
    packed = target.dtype == torch.uint8
    if stored.dtype != torch.uint8 if packed else stored.dtype not in PLAIN_FLOATS:
        raise InputError(f"is stored as {stored.dtype}, expected {target.dtype}", where=where)
    target.copy_(stored)
