"""Packed weights as the runtime turns them back, against a second decoder that reads the files by itself."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from numpy.typing import NDArray

from day0.checklist import probe_upstream
from day0.checklist.checklist import Measured, NotChecked, Outcome, Where
from day0.checklist.probe_loading import NO_HEADERS, in_place, layer_in
from day0.checklist.probe_paths import engine_of
from day0.checklist.probe_second_decoder import decode, decodes
from day0.checklist.probe_stored import spread, stored_tensor
from day0.checklist.target import CheckContext
from day0.profile.tensors import TensorSpec, expected_tensors
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.lead import LeadingEngine
from day0.runtime.models.packed import PackedPlace, packed_places
from day0.runtime.placement import parameter_paths, pieces
from day0.runtime.quant.decoder import UNREAD
from day0.source.model_files import ModelFiles

Specs = Mapping[str, TensorSpec]
"""The stored tensor that fills a parameter, by the parameter's path."""


def packed(context: CheckContext, *, matrices: int = 12, experts: int = 3) -> Outcome:
    """At most `matrices` packed matrices of the decoder, evenly chosen, and of routed ones so many experts each."""
    files = context.files
    if context.profile.quantization is None:
        return NotChecked("na", "no weights are packed")
    if files.tensors is None or files.folder is None:
        return NO_HEADERS
    if probe_upstream.runs_upstream(context):
        return NotChecked("skip", "transformers unpacks the weights, and day0 cannot ask it for one matrix")
    specs = {path: spec for spec in expected_tensors(context.profile) for path in parameter_paths(spec)}
    places = [place for place in packed_places(context.profile) if layer_in(place.path) is not None]
    known = [place for place in places if decodes(place.packing)]
    if not known:
        names = ", ".join(dict.fromkeys(place.packing.name for place in places))
        return NotChecked("skip", f"there is no second decoder for {names or 'what is packed outside the layers'}")
    engine = engine_of(context)
    if isinstance(engine, LeadingEngine):
        return NotChecked("skip", "ranks share the weights out: `values` holds each share against the files")
    wrong: list[tuple[PackedPlace, int]] = []
    inspected = 0
    for place in spread(known, matrices):
        one = specs[f"{place.path}.{_roles(place)[0]}"]
        for expert in spread(range(max(1, one.num_experts)), experts):
            inspected += 1
            with in_place(engine, layer_in(place.path)):
                ours = _turned_back(engine, place, expert, routed=one.num_experts > 0)
                rows, columns = ours.shape
                theirs = torch.from_numpy(decode(place.packing, _stored(files, specs, place, expert), rows, columns))
                if not torch.equal(ours.cpu(), theirs.to(ours.dtype)):
                    wrong.append((place, expert))
    return _measured(wrong, inspected, len(places) - len(known))


def _measured(wrong: list[tuple[PackedPlace, int]], inspected: int, unknown: int) -> Measured:
    first = wrong[0][0] if wrong else None
    return Measured(
        inspected=inspected,
        values={"wrong": len(wrong), "matrices": inspected, "without_second_decoder": unknown},
        where=Where(layer=layer_in(first.path), tensor=first.path, operator=first.packing.operator) if first else None,
        message=f"{first.path} (expert {wrong[0][1]}) decodes to other numbers" if first else "",
        hint="order of codes in a byte, bias of the scale, or axis of the groups",
    )


def _roles(place: PackedPlace) -> tuple[str, ...]:
    return tuple(part.role for part in place.packing.counted if part.role not in UNREAD)


def _turned_back(engine: Engine, place: PackedPlace, expert: int, *, routed: bool) -> torch.Tensor:
    """What the runtime makes of a matrix, [rows, columns] in the model's dtype."""
    module = engine.model.get_submodule(place.path)
    if not routed:
        return module.matrix().clone()  # type: ignore[operator]  # of a linear map
    out = torch.empty(1, *module.size, dtype=engine.dtype, device=engine.device)  # type: ignore[misc]
    module.convert([expert], out)  # type: ignore[operator]  # of one projection of all experts
    return out[0]


def _stored(files: ModelFiles, specs: Specs, place: PackedPlace, expert: int) -> dict[str, NDArray]:
    """The parts of one matrix as they are stored, by role."""
    parts = {}
    for role in _roles(place):
        path = f"{place.path}.{role}"
        spec = specs[path]
        name = spec.names()[expert] if spec.experts else spec.name
        share = next(piece for found, piece in pieces(spec, stored_tensor(files, name), name) if found == path)
        share = share[expert] if spec.stacked else share
        bytes_ = share.element_size() == 1
        plain = share.contiguous().view(torch.uint8) if bytes_ and share.dim() else share
        parts[role] = (plain if plain.dtype != torch.bfloat16 else plain.float()).numpy()
    return parts
