"""Safetensors -> modules, along the profile's expected tensors: each read once, every parameter accounted for.

What is stored as it is needed stays where it lies, mapped from the file; the rest is copied into memory.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from day0.errors import InputError
from day0.profile.tensor_spec import TensorSpec
from day0.runtime.parallel.reading import WHOLE, take
from day0.runtime.parallel.shares import Share
from day0.runtime.placement import MAPPED_AT_ONCE, parameter_paths, pieces
from day0.runtime.quant.parts import DTYPES, PackedParts
from day0.source.model_files import ModelFiles, TensorHeader

POISON_BYTE = 255
"""Fills parameters of packed bytes before loading: as a scale it is NaN, so an unwritten expert shows."""

PLAIN_FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
"""Stored dtypes whose numbers mean what they say; narrower ones need scales that a plain copy would lose."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What was loaded: stored tensors and bytes read, bytes held, and parameters that no tensor wrote.

    Of the bytes held, `bytes_mapped` are pages of the files, which the system may drop and read again.
    """

    tensors: int
    bytes_read: int
    bytes_held: int
    unwritten: tuple[str, ...]
    seconds: float
    bytes_mapped: int = 0


@dataclass(frozen=True, slots=True)
class _Read:
    """One stored tensor and where it goes: a whole parameter, or one expert's slice of a stacked one."""

    name: str
    spec: TensorSpec
    expert: int | None
    share: Share


Modules = Mapping[str, nn.Module]
"""Modules by the prefix that their parameters' paths carry: "" for the decoder, "vision." for the tower."""


def all_parameters(modules: Modules) -> dict[str, nn.Parameter]:
    """Every parameter by its path."""
    return {prefix + name: p for prefix, module in modules.items() for name, p in module.named_parameters()}


def load_weights(
    modules: Modules,
    specs: tuple[TensorSpec, ...],
    files: ModelFiles,
    dtype: torch.dtype,
    device: torch.device,
    as_stored: Collection[str] = (),
    shares: Mapping[str, Share] | None = None,
) -> LoadReport:
    """Fill modules built on the meta device with the expected tensors of `files`, shard by shard.

    Parameters are in `dtype` except those whose spec stays float32, parts of packed matrices, and the paths
    `as_stored`, which keep the dtype of their file. `shares` says by a spec's name what of the tensor is read here;
    the spec is of what is then left. Raises InputError where a tensor is missing, has another shape or cannot be read,
    CannotSay where one cannot be taken apart.
    """
    assert files.tensors is not None and files.folder is not None, "the caller checks that there are weights"
    started = time.perf_counter()
    homes = dict(_homes(modules, specs, dtype, device))
    for spec in specs:
        if spec.path in as_stored:
            homes[spec.path].dtype = DTYPES[files.tensors[spec.name].dtype]
    count = bytes_read = 0
    for shard, reads in _portions(_by_shard(specs, files.tensors, shares), files.tensors):
        try:
            with safe_open(files.folder / shard, framework="pt") as stored:
                for read in reads:
                    where = f"{shard}: {read.name}"
                    found = take(read.share, stored, read.name, where)
                    for path, piece in pieces(read.spec, found, where):
                        homes[path].take_in(_checked(read, piece, homes[path], where), read.expert)
                    count += 1
                    bytes_read += found.nbytes if read.share.counts else 0
        except (SafetensorError, OSError) as error:
            raise InputError(f"cannot be read: {error}", where=shard) from error
    unwritten = tuple(sorted(path for path, home in homes.items() if home.values is None))
    for home in homes.values():
        home.settle()
    held = sum(home.parameter.nbytes for home in homes.values())
    mapped = sum(home.parameter.nbytes for home in homes.values() if home.mapped)
    return LoadReport(count, bytes_read, held, unwritten, time.perf_counter() - started, mapped)


@dataclass(slots=True)
class _Home:
    """Where a parameter lives: the module that owns it, and its values once there are any."""

    owner: nn.Module
    leaf: str
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    stored: torch.dtype | None  # of the files, where that is binding: a part of a packed matrix
    values: torch.Tensor | None = None
    mapped: bool = False

    @property
    def parameter(self) -> nn.Parameter:
        found = getattr(self.owner, self.leaf)
        assert isinstance(found, nn.Parameter)
        return found

    def take_in(self, stored: torch.Tensor, expert: int | None) -> None:
        """Take values as they lie where that will do, else copy them, into one expert's place where it has one."""
        as_it_is = expert is None and stored.dtype == self.dtype and self.device.type == "cpu"
        if as_it_is and stored.is_contiguous() and stored.data_ptr() % stored.element_size() == 0:
            self.values, self.mapped = stored, True
            return
        if self.values is None:
            self.values = self._poisoned() if expert is not None else self._empty()
        (self.values if expert is None else self.values[expert]).copy_(stored)

    def settle(self) -> None:
        """Give the module its parameter; what nobody wrote is NaN, or 255 in packed bytes."""
        values = self._poisoned() if self.values is None else self.values
        setattr(self.owner, self.leaf, nn.Parameter(values, requires_grad=False))

    def _empty(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)

    def _poisoned(self) -> torch.Tensor:
        values = self._empty()
        if values.is_floating_point():
            return values.fill_(torch.nan)
        values.view(torch.uint8).fill_(POISON_BYTE)
        return values


def _homes(
    modules: Modules, specs: Iterable[TensorSpec], dtype: torch.dtype, device: torch.device
) -> Iterator[tuple[str, _Home]]:
    """Every parameter of the modules by its path."""
    wide = {path for spec in specs if spec.keep_float32 for path in parameter_paths(spec)}
    for prefix, root in modules.items():
        owners = dict(root.named_modules())
        for name, parameter in root.named_parameters():
            place, _, leaf = name.rpartition(".")
            owner, path = owners[place], prefix + name
            stored = owner.stored if isinstance(owner, PackedParts) else {}
            whole = leaf in stored or not parameter.dtype.is_floating_point  # parts of packings, tables of ids
            kept = parameter.dtype if whole else torch.float32 if path in wide else dtype
            yield path, _Home(owner, leaf, parameter.shape, kept, device, stored.get(leaf))


def _by_shard(
    specs: tuple[TensorSpec, ...], headers: Mapping[str, TensorHeader], shares: Mapping[str, Share] | None = None
) -> dict[str, list[_Read]]:
    """Reads in file order within each shard, so that a disk is read forwards."""
    check_present(specs, headers)
    reads: dict[str, list[_Read]] = defaultdict(list)
    for spec in specs:
        share = (shares or {}).get(spec.name, WHOLE)
        for expert, name in enumerate(share.names(spec)):
            reads[headers[name].shard].append(_Read(name, spec, expert if spec.experts else None, share))
    for shard in reads.values():
        shard.sort(key=lambda read: headers[read.name].begin)
    return dict(sorted(reads.items()))


def _portions(
    by_shard: Mapping[str, list[_Read]], headers: Mapping[str, TensorHeader]
) -> Iterator[tuple[str, list[_Read]]]:
    """Shards with their reads, those of a large one in several turns of MAPPED_AT_ONCE bytes or one tensor."""
    for shard, reads in by_shard.items():
        turn: list[_Read] = []
        size = 0
        for read in reads:
            if turn and size + headers[read.name].nbytes > MAPPED_AT_ONCE:
                yield shard, turn
                turn, size = [], 0
            turn.append(read)
            size += headers[read.name].nbytes
        yield shard, turn


def check_present(specs: Iterable[TensorSpec], headers: Mapping[str, TensorHeader]) -> None:
    """Raise InputError where a checkpoint lacks a tensor that is wanted of it."""
    missing = [name for spec in specs for name in spec.names() if name not in headers]
    if missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise InputError(f"the checkpoint lacks {len(missing)} tensors that the config asks for: {shown}")


def _checked(read: _Read, stored: torch.Tensor, home: _Home, where: str) -> torch.Tensor:
    """What of a stored tensor goes to its place; raises InputError where it does not fit."""
    shape = home.shape if read.expert is None else home.shape[1:]
    if read.spec.zero_tail and stored.shape[1:] == shape[1:] and stored.shape[0] > shape[0]:
        live = shape[0]
        if stored[live:].any():
            raise InputError(f"entries from {live} on must be zero: only {live} are live", where=where)
        stored = stored[:live]
    unit_axis = tuple(stored.shape) == read.spec.shape == (1, *shape)  # which modules do not have
    if unit_axis or (home.stored and stored.numel() == shape.numel() == 1):
        stored = stored.reshape(shape)
    if stored.shape != shape:
        raise InputError(f"has shape {list(stored.shape)}, the config asks for {list(shape)}", where=where)
    wanted = home.stored or home.dtype
    plain = stored.dtype in PLAIN_FLOATS and wanted in PLAIN_FLOATS
    if stored.dtype != wanted and not plain:
        raise InputError(f"is stored as {stored.dtype}, expected {wanted}", where=where)
    return stored if plain else stored.view(home.dtype)
