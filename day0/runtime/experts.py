"""Routed experts that are not held: the stored tensors of those chosen are read when they are turned into numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from day0.errors import InputError
from day0.profile.tensor_spec import TensorSpec
from day0.runtime.models.expert_weights import PackedExperts, PackedMatrix, PlainExperts, PlainMatrix
from day0.runtime.placement import MAPPED_AT_ONCE, parameter_paths, pieces
from day0.runtime.quant.parts import PackedParts
from day0.runtime.quant.workspace import Workspace
from day0.source.model_files import ModelFiles


class ExpertStore:
    """One expert's share of stored tensors, by the path of the parameter that would hold it for all experts.

    Files stay open, and mapped, only inside `reading`, and of a file no more than MAPPED_AT_ONCE bytes. With `keep`,
    what was read stays in host memory, and nothing is read twice. `bytes_read` counts what was handed out.
    """

    def __init__(self, specs: Iterable[TensorSpec], files: ModelFiles, *, keep: bool = False) -> None:
        assert files.tensors is not None and files.folder is not None, "the caller checks that there are weights"
        self._folder = files.folder
        self._headers = files.tensors
        self._specs = {path: spec for spec in specs if spec.num_experts for path in parameter_paths(spec)}
        self._kept: dict[tuple[str, int], torch.Tensor] | None = {} if keep else None
        self._claimed: set[str] = set()
        self._open: dict[str, Any] = {}
        self._mapped = 0  # bytes handed out since files were last closed
        self.bytes_read = 0

    def check_shapes(self) -> None:
        """Raise InputError for stored experts of another shape than the config asks for; their files are not read."""
        for spec in {id(spec): spec for spec in self._specs.values()}.values():
            for name in spec.names():
                header = self._headers[name]
                if tuple(header.shape) != spec.shape:
                    raise InputError(
                        f"has shape {list(header.shape)}, the config asks for {list(spec.shape)}",
                        where=f"{header.shard}: {name}",
                    )

    def has(self, path: str) -> bool:
        """Whether a parameter path is of routed experts in these files."""
        return path in self._specs

    def claim(self, path: str) -> None:
        """What `path` would hold is read from here from now on."""
        self._claimed.add(path)

    def serves(self, spec: TensorSpec) -> bool:
        """Whether all that a stored tensor fills is read from here, and need not be loaded."""
        return self._claimed.issuperset(parameter_paths(spec))

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep files open for what is read inside."""
        try:
            yield
        finally:
            self._close()

    def read(self, path: str, expert: int) -> torch.Tensor:
        """The stored share of one expert, as its modules would hold it; raises InputError for a broken file."""
        if self._kept is not None and (path, expert) in self._kept:
            return self._kept[path, expert]
        spec = self._specs[path]
        name = spec.names()[expert] if spec.experts else spec.name
        where = f"{self._headers[name].shard}: {name}"
        share = next(piece for found, piece in pieces(spec, self._stored(name, where), where) if found == path)
        if not spec.experts:
            share = share[expert]
        self.bytes_read += share.nbytes
        self._mapped += share.nbytes
        if self._kept is not None:
            share = self._kept[path, expert] = share.clone()
        return share

    def _close(self) -> None:
        """Give mapped pages back, once those who were handed some have let them go."""
        self._open.clear()
        self._mapped = 0

    def _stored(self, name: str, where: str) -> torch.Tensor:
        shard = self._headers[name].shard
        if self._mapped > MAPPED_AT_ONCE:
            self._close()
        try:
            if shard not in self._open:
                self._open[shard] = safe_open(self._folder / shard, framework="pt")
            return self._open[shard].get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise InputError(f"cannot be read: {error}", where=where) from error


class FetchedMatrix(nn.Module):
    """One projection of all experts, of which only a bias is held."""

    def __init__(
        self, matrix: PlainMatrix | PackedMatrix, place: str, store: ExpertStore, workspace: Workspace
    ) -> None:
        super().__init__()
        self.size = matrix.size
        self.bias = matrix.bias
        # Shapes of one expert's share by role; of the matrix itself nothing is kept, or it would be given memory.
        packed = matrix if isinstance(matrix, PackedParts) else None
        roles = ("weight",) if packed is None else packed.roles
        self._packing = None if packed is None else packed.packing
        self._shapes = {role: matrix.get_parameter(role).shape[1:] for role in roles}
        for role in roles:
            store.claim(f"{place}.{role}")
        self._place = place
        self._store = store
        self._workspace = workspace

    def convert(self, experts: list[int], out: torch.Tensor) -> None:
        """Write the chosen experts' numbers to out [chosen, out, in]."""
        if self._packing is None:
            for place, expert in enumerate(experts):
                out[place].copy_(self._read("weight", expert))
            return
        parts = {role: _stack([self._read(role, expert) for expert in experts], out.device) for role in self._shapes}
        self._workspace.decoder.decode_some(self._packing, parts, range(len(experts)), out)

    def _read(self, role: str, expert: int) -> torch.Tensor:
        # A scale of one entry may be stored with an axis or without.
        return self._store.read(f"{self._place}.{role}", expert).reshape(self._shapes[role])


def _stack(shares: list[torch.Tensor], device: torch.device) -> torch.Tensor:
    """Stacked as bytes where they are: stacking knows no 8-bit floats on every device."""
    if shares[0].element_size() == 1:
        return torch.stack([share.view(torch.uint8) for share in shares]).to(device).view(shares[0].dtype)
    return torch.stack(shares).to(device)


def fetch_experts(modules: Mapping[str, nn.Module], store: ExpertStore, workspace: Workspace) -> None:
    """Exchange the routed experts of modules on the meta device for such as read what they need from `store`.

    The workspace must have been given no memory yet, or be given it anew.
    """
    for prefix, root in modules.items():
        for path, module in list(root.named_modules()):
            if not isinstance(module, PlainExperts | PackedExperts) or not store.has(
                _first_path(prefix + path, module)
            ):
                continue
            place = prefix + path
            packed = PackedExperts(module, place, workspace) if isinstance(module, PlainExperts) else module
            for name in ("gate", "up", "down"):
                matrix = getattr(module, name)
                if matrix is not None:
                    setattr(packed, name, FetchedMatrix(matrix, f"{place}.{name}", store, workspace))
            above, _, leaf = path.rpartition(".")
            setattr(root.get_submodule(above), leaf, packed)


def _first_path(place: str, experts: PlainExperts | PackedExperts) -> str:
    leaf = experts.up.roles[0] if isinstance(experts.up, PackedParts) else "weight"
    return f"{place}.up.{leaf}"
