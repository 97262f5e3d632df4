"""Phase "loading": are the stored tensors the expected ones, and did every one reach its place with its value."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from math import prod

import torch

from day0.checklist import probe_upstream
from day0.checklist.checklist import Measured, NotChecked, Outcome, Where
from day0.checklist.probe_held import held_tensors, parameters_of
from day0.checklist.probe_paths import engine_of
from day0.checklist.probe_stored import same_values, spread, stored_tensor
from day0.checklist.target import CheckContext
from day0.errors import CannotSay, Day0Error
from day0.profile.tensors import TensorSpec, compare_tensors, expected_tensors
from day0.runtime.engine.engine import Engine
from day0.runtime.models.decoder import Decoder
from day0.runtime.parallel.reading import cut_out
from day0.runtime.placement import parameter_paths, pieces
from day0.runtime.weights import POISON_BYTE
from day0.source.model_files import DTYPE_BITS

NO_HEADERS = NotChecked("skip", "the source has no weights to look at (a bare config or a recipe)")


def in_place(engine: Engine, layer: int | None) -> AbstractContextManager[None]:
    """Has the weights of a layer, or of the ends (None), in place for a block, where they come and go."""
    return (
        engine.model.store.holding(layer) if layer is not None and isinstance(engine.model, Decoder) else nullcontext()
    )


def headers(context: CheckContext) -> Outcome:
    """Names, shapes and dtypes of the stored tensors against those the architecture calls for."""
    if context.files.tensors is None:
        return NO_HEADERS
    if context.profile.family is None and probe_upstream.runs_upstream(context):
        return probe_upstream.headers(context)
    comparison = compare_tensors(context.profile, context.files)
    wrong = [finding for finding in comparison.findings if finding.severity == "error"]
    remarks = [finding for finding in comparison.findings if finding.severity != "error"]
    named = [*comparison.missing, *(finding.where for finding in wrong), *comparison.unexpected]
    where, message = None, ""
    if named:
        where = Where(layer=_layer_of(context, named[0]), tensor=named[0])
        message = f"first: {named[0]}" + (f" ({wrong[0].message})" if wrong and not comparison.missing else "")
    return Measured(
        inspected=len(context.files.tensors),
        values={
            "missing": len(comparison.missing),
            "mismatched": len(wrong),
            "unexpected": len(comparison.unexpected),
            "remarks": len(remarks),
            "guessed_family": sum(finding.code == "read-as-family" for finding in context.profile.findings),
            "examples": named[:10],
        },
        where=where,
        message=message,
        hint="compare config.json with the checkpoint: day0 inspect lists every such tensor",
    )


def _layer_of(context: CheckContext, name: str) -> int | None:
    return next((spec.layer for spec in _specs(context) if name in spec.names()), None)


def _specs(context: CheckContext) -> tuple[TensorSpec, ...]:
    """The expected tensors; none where no family says them."""
    return expected_tensors(context.profile) if context.profile.family is not None else ()


def parameters(context: CheckContext) -> Outcome:
    """Every parameter written, finite and not one number throughout; memory is poisoned before loading."""
    names = ("not_finite", "unwritten", "constant")
    try:
        engine = engine_of(context)
    except CannotSay:  # a model that nobody here knows is not a broken one
        raise
    except Day0Error as fault:
        return _not_loaded(context, fault)
    found: dict[str, list[str]] = {name: [] for name in names}
    inspected = 0
    for layer, paths in groupby(parameters_of(engine), layer_in):
        with in_place(engine, layer):
            held = parameters_of(engine)
            for path in paths:
                inspected += 1
                kind = _flaw(held[path])
                if kind is not None:
                    found[kind].append(path)
    first = next((paths[0] for paths in found.values() if paths), None)
    return Measured(
        inspected=inspected,
        values={"loaded": True} | {name: len(paths) for name, paths in found.items()},
        where=Where(layer=layer_in(first), tensor=first) if first else None,
        message=f"first: {first}" if first else "",
        hint="NaN or bytes of 255 are what memory is filled with before loading: nothing was written there",
    )


def _not_loaded(context: CheckContext, fault: Day0Error) -> Measured:
    """Why there is no engine, and the first stored tensor that is not finite, if that is why."""
    stored = context.files.tensors or {}
    expected = (name for spec in _specs(context) for name in spec.names() if name in stored)
    names = expected if context.profile.family is not None else stored
    bad = next((name for name in names if _broken(stored_tensor(context.files, name))), None)
    values = {"loaded": False, "not_finite": None if bad is None else 1, "unwritten": None, "constant": None}
    message = str(fault) if bad is None else f"{fault}; {bad} holds NaN or infinity"
    where = Where(layer=_layer_of(context, bad), tensor=bad) if bad is not None else None
    return Measured(1, values, where, message, fault.hint or "the runtime did not load the model")


def _broken(stored: torch.Tensor) -> bool:
    return stored.is_floating_point() and not bool(torch.isfinite(stored.float()).all())


def _flaw(parameter: torch.Tensor) -> str | None:
    """What is wrong with a parameter, matrix by matrix (stacked experts one by one)."""
    if _broken(parameter):
        return "not_finite"
    if parameter.dim() < 2 or parameter.shape[-2:].numel() == 1:
        return None  # norms are often all ones
    if parameter.element_size() == 1:
        parameter = parameter.view(torch.uint8)  # what is packed is looked at as bytes: 8-bit floats have no order
    matrices = parameter.flatten(0, -3) if parameter.dim() > 2 else parameter[None]
    low, high = matrices.flatten(1).min(dim=1).values, matrices.flatten(1).max(dim=1).values
    if parameter.dtype == torch.uint8 and bool(((low == high) & (low == POISON_BYTE)).any()):
        return "unwritten"
    # Packed scales may well be alike; a matrix of values that is one number is dead.
    return "constant" if parameter.is_floating_point() and bool((low == high).any()) else None


def layer_in(path: str | None) -> int | None:
    """The layer number of a parameter or trace path, None outside the layers."""
    parts = (path or "").split(".")
    return int(parts[1]) if parts[0] == "layers" and len(parts) > 1 and parts[1].isdigit() else None


def values(context: CheckContext, *, tensors: int = 64, experts: int = 3) -> Outcome:
    """Parameters against the bytes of the files, read a second time: at most `tensors` tensors, evenly chosen."""
    files = context.files
    if files.tensors is None or files.folder is None:
        return NO_HEADERS
    if probe_upstream.runs_upstream(context):
        return probe_upstream.values(context, tensors)
    engine = engine_of(context)
    paths = parameters_of(engine).keys()
    wrong: list[TensorSpec] = []
    inspected = 0
    # Experts that are read when they are chosen are held by nobody: `loading.packed` looks at what they give.
    specs = [held for held in held_tensors(engine) if paths >= {*parameter_paths(held.spec)}]
    for spec, share in ((held.spec, held.share) for held in spread(specs, tensors)):
        with in_place(engine, spec.layer):
            parameters = parameters_of(engine)
            names = share.names(spec)
            for expert in spread(range(len(names)), experts):
                inspected += 1
                own = cut_out(share, stored_tensor(files, names[expert]))
                for path, stored in pieces(spec, own, names[expert]):
                    held = parameters[path][expert] if spec.experts else parameters[path]
                    if stored.element_size() == 1:
                        stored = stored.view(held.dtype)  # 8-bit floats may be held as bytes
                    if not same_values(held, stored) and spec not in wrong:
                        wrong.append(spec)
    first = wrong[0] if wrong else None
    return Measured(
        inspected=inspected,
        values={"wrong": len(wrong), "tensors": min(tensors, len(specs)), "of": len(specs)},
        where=Where(layer=first.layer, tensor=first.path) if first else None,
        message=f"{first.path} does not hold {first.name}" if first else "",
        hint="a tensor was loaded into the wrong place, or changed on the way",
    )


def sizes(context: CheckContext) -> Outcome:
    """Bytes held for weights against the profile's own formula, and bytes stored against the expected tensors."""
    if probe_upstream.runs_upstream(context):
        return probe_upstream.sizes(context)
    engine = engine_of(context)
    own = parameters_of(engine)
    held = 0
    for layer, paths in groupby(own, layer_in):
        with in_place(engine, layer):
            there = parameters_of(engine)
            held += sum(there[path].nbytes for path in paths)
    expected = 0
    for held_tensor in held_tensors(engine):
        spec, count = held_tensor.spec, len(held_tensor.share.names(held_tensor.spec))
        if not own.keys() >= {*parameter_paths(spec)}:
            continue  # experts that are read when they are chosen
        elements = spec.total_parameters if spec.zero_tail else count * prod(spec.shape)
        width = own[spec.path].itemsize if spec.path in engine.kept_as_stored else engine.dtype.itemsize
        stored_bytes = count * prod(spec.shape) * DTYPE_BITS[spec.dtype] // 8
        as_it_lies = bool(spec.format) or spec.dtype.startswith("I")  # packed, or a table of expert numbers
        expected += stored_bytes if as_it_lies else elements * (4 if spec.keep_float32 else width)
    return Measured(
        inspected=len(own),
        values={
            "held_bytes": held,
            "formula_bytes": expected,
            "difference": held - expected,
            "stored_bytes": context.files.weight_bytes,
        },
        message="" if held == expected else "the memory plan rests on a wrong formula, or something is held twice",
    )
