"""Modules built plain, whose stored weights are packed, exchanged for those that own the stored parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from day0.errors import CannotSay, EnvironmentFault, InputError
from day0.profile.packing import one_by_one
from day0.profile.profile import ArchitectureProfile
from day0.profile.quantization import WeightFormat
from day0.profile.tensors import plain_tensors
from day0.runtime.models.build import Elsewhere
from day0.runtime.models.expert_weights import PackedExperts, PackedMatrix, PlainExperts, PlainMatrix
from day0.runtime.models.linear import Linear
from day0.runtime.quant.parts import PackedParts
from day0.runtime.quant.workspace import Workspace


class PackedLinear(PackedParts, Linear):
    """A linear map whose matrix is turned back whenever it is called."""

    def __init__(self, plain: Linear, packing: WeightFormat, workspace: Workspace) -> None:
        PackedParts.__init__(self, packing, *plain.weight.shape)
        self.bias = plain.bias
        self.ops = plain.ops
        self.relaid = None
        self._workspace = workspace
        workspace.reserve(plain.weight.numel())

    def matrix(self) -> torch.Tensor:
        return self._workspace.matrix(self.packing, self.parts(), *self.size)


@dataclass(frozen=True, slots=True)
class PackedPlace:
    """A module path whose matrix, or whose matrix of each expert, is stored in `packing`."""

    path: str
    packing: WeightFormat


def packed_places(profile: ArchitectureProfile) -> Iterator[PackedPlace]:
    """Every module whose weights a release packs, by our path; joined projections one by one."""
    quantization = profile.quantization
    if quantization is None:
        return
    for spec, ahead in plain_tensors(profile):
        packing = None if ahead else quantization.format_of(spec)
        if packing is None:
            continue
        for matrix in one_by_one(spec) if packing.apart else (spec,):
            for stem in [stem for stem, _ in matrix.parts] or [matrix.path.removesuffix(".weight")]:
                yield PackedPlace(stem, packing)


def check_float8_experts(profile: ArchitectureProfile, dtype: torch.dtype, device: torch.device) -> None:
    """Whether experts can pass through FP8: raises InputError where their numbers are not those of MXFP4 or `dtype`
    does not hold them, EnvironmentFault where the device has no E4M3."""
    found = {
        None if profile.quantization is None else profile.quantization.format_of(spec)
        for spec, ahead in plain_tensors(profile)
        if spec.num_experts and not ahead and not spec.path.endswith(".bias")  # biases are never packed
    }
    wrong = sorted("plain" if packing is None else str(packing) for packing in found if not _is_mxfp4(packing))
    if wrong or not found:
        what = f"experts are stored as {', '.join(wrong)}" if wrong else "the model has no routed experts"
        raise InputError(f"{what}; only MXFP4 is re-encoded", where="--expert-dtype", hint="auto")
    if dtype == torch.float16:
        raise InputError("float16 does not hold MXFP4's range", where="--expert-dtype", hint="--dtype bfloat16")
    try:
        torch.ones(1, device=device).to(torch.float8_e4m3fn)
    except (RuntimeError, TypeError) as error:
        raise EnvironmentFault(f"{device.type} has no E4M3: {error}", where="--expert-dtype", hint="auto") from error


def _is_mxfp4(packing: WeightFormat | None) -> bool:
    return packing is not None and packing.name == "mxfp4"


def pack_modules(
    modules: Mapping[str, nn.Module], profile: ArchitectureProfile, workspace: Workspace
) -> Workspace | None:
    """Exchange what is packed in `modules` (by the prefix of their paths), and give the workspace its memory.

    None where nothing is packed. Raises CannotSay for a packed matrix of a block that can only be given it plain.
    """
    found = False
    for place in packed_places(profile):
        root, path = _root(modules, place.path)
        if root is None:
            continue  # a tower that the runtime has not
        if _is_elsewhere(root, path):
            continue
        module = root.get_submodule(path)
        parent = root.get_submodule(path.rpartition(".")[0])
        leaf = path.rpartition(".")[2]
        if isinstance(module, Linear):
            setattr(parent, leaf, PackedLinear(module, place.packing, workspace))
        elif isinstance(module, PlainMatrix):
            if isinstance(parent, PlainExperts):
                parent = _pack_experts(root, path.rpartition(".")[0], place, workspace)
            setattr(parent, leaf, PackedMatrix(module, place.packing, workspace))
        else:
            raise CannotSay(
                f"{place.path} is stored as {place.packing}, and its block reads plain numbers only",
                hint="plan it for another engine; inspect and plan know its sizes",
            )
        found = True
    if not found:
        return None
    workspace.allocate()
    return workspace


def _is_elsewhere(root: nn.Module, path: str) -> bool:
    """Whether a path leads into what another stage of the pipeline has."""
    steps = path.split(".")
    return any(isinstance(root.get_submodule(".".join(steps[:end])), Elsewhere) for end in range(1, len(steps) + 1))


def _root(modules: Mapping[str, nn.Module], path: str) -> tuple[nn.Module | None, str]:
    """The module tree that a path is in, and the path inside it."""
    prefix = f"{path.partition('.')[0]}."
    if prefix in modules:
        return modules[prefix], path.removeprefix(prefix)
    return (None if prefix in ("vision.", "audio.") else modules[""]), path


def _pack_experts(root: nn.Module, path: str, place: PackedPlace, workspace: Workspace) -> PackedExperts:
    """The experts at `path`, from plain to packed; their matrices are exchanged after that, one by one."""
    plain = root.get_submodule(path)
    assert isinstance(plain, PlainExperts)
    packed = PackedExperts(plain, place.path.rpartition(".")[0], workspace)
    above, _, leaf = path.rpartition(".")
    setattr(root.get_submodule(above), leaf, packed)
    return packed
