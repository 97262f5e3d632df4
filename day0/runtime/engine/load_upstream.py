"""The engine around a transformers model: when it is taken, and how its memory is shared out."""

from __future__ import annotations

from math import prod

import torch

from day0.errors import CannotSay, EnvironmentFault, InputError
from day0.plan.settings import EngineSettings
from day0.profile.profile import ArchitectureProfile, VisionTower
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.memory import MemoryFigures, check_context, free_bytes, share_out
from day0.runtime.models.support import missing_part
from day0.runtime.upstream.decoder import UpstreamDecoder
from day0.runtime.upstream.definition import Definition, completed, find_definition
from day0.runtime.upstream.load import load_decoder
from day0.runtime.upstream.measure import try_out
from day0.runtime.upstream.sessions import SessionManager, Sessions
from day0.runtime.vision.support import missing_tower_part
from day0.runtime.weights import LoadReport
from day0.source.model_files import ModelFiles


def native_gap(files: ModelFiles, profile: ArchitectureProfile) -> CannotSay | None:
    """What the native runtime lacks for a model, None where it has every part."""
    unread = next((found for found in profile.findings if found.code == "quantization-not-native"), None)
    if unread is not None:
        return CannotSay(unread.message, where=unread.where, hint=unread.hint)
    if not profile.native:
        return CannotSay(
            f"the reference runtime does not have the parts of model_type {profile.model_type!r}",
            where=files.id,
            hint="`day0 inspect` says what is known of it",
        )
    missing = missing_part(profile)
    if missing is None and isinstance(profile.vision, VisionTower) and profile.vision.native:
        missing = missing_tower_part(profile.vision, profile.hidden_size)
    return CannotSay(f"the reference runtime does not do this: {missing}", where=files.id) if missing else None


def upstream_definition(files: ModelFiles, profile: ArchitectureProfile, settings: EngineSettings) -> Definition | None:
    """The transformers definition that is to run the model; None where the native runtime is.

    "auto" takes it where the native runtime lacks a part and there are weights. Raises CannotSay where nothing runs
    the model.
    """
    gap = native_gap(files, profile)
    if settings.runtime == "native" or (settings.runtime == "auto" and (gap is None or files.tensors is None)):
        return None
    try:
        return find_definition(files, trust_remote_code=settings.trust_remote_code)
    except CannotSay as fault:
        raise _both(gap, fault) from fault


def _both(gap: CannotSay | None, fault: CannotSay) -> CannotSay:
    """Why neither our own blocks nor transformers run a model."""
    if gap is None:
        return fault
    return CannotSay(f"{gap.message}; {fault.message}", where=gap.where, hint=fault.hint or gap.hint)


def settle_profile(
    files: ModelFiles, profile: ArchitectureProfile, settings: EngineSettings
) -> tuple[ArchitectureProfile, str]:
    """The profile as the engine will see it, and which runtime it will be: "native" or "upstream".

    Raises CannotSay where nothing runs the model.
    """
    definition = upstream_definition(files, profile, settings)
    return (profile, "native") if definition is None else (completed(profile, files, definition), "upstream")


def load_upstream(
    files: ModelFiles,
    profile: ArchitectureProfile,
    definition: Definition,
    settings: EngineSettings,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[UpstreamDecoder, LoadReport]:
    """The model, loaded and tried out; raises what `load_decoder` and `try_out` do."""
    check_context(completed(profile, files, definition), settings)
    if settings.kv_dtype not in ("auto", str(dtype).removeprefix("torch.")):
        raise InputError("transformers keeps its cache in the dtype of the model", where="--kv-dtype", hint="auto")
    if settings.offload != "none":
        fault = CannotSay("transformers holds every weight: layers do not come and go", where=files.id)
        raise _both(native_gap(files, profile), fault)
    _check_room(files, dtype, device)
    try:
        decoder, report = load_decoder(files, profile, definition, dtype, device)
        try_out(decoder, files.id)
    except CannotSay as fault:
        raise _both(native_gap(files, profile), fault) from fault
    return decoder, report


def _check_room(files: ModelFiles, dtype: torch.dtype, device: torch.device) -> None:
    """Refuse what cannot be held, before the machine runs out of memory over it."""
    elements = sum(prod(header.shape) for header in (files.tensors or {}).values())
    needed, free = max(elements * dtype.itemsize, files.weight_bytes or 0), free_bytes(device)
    if needed > free:
        raise EnvironmentFault(
            f"the weights need {needed / 2**30:.1f} GiB as {dtype}, {free / 2**30:.1f} GiB are free on {device}",
            where=files.id,
            hint="--dtype bfloat16 takes half of float32",
        )


def assemble_upstream(
    decoder: UpstreamDecoder, settings: EngineSettings, report: LoadReport, device: torch.device
) -> Engine:
    """An engine around a loaded model. Pages hold nothing: they count tokens, at what a token was measured to cost."""
    profile, cost, size = decoder.profile, decoder.cost, settings.page_size
    shape = share_out(profile, settings, device, size, size * cost.per_token, cost.per_sequence)
    sessions = Sessions(size, decoder.embed.weight.dtype, device)
    memory = MemoryFigures(
        weight_bytes=report.bytes_held,
        workspace_bytes=0,
        kv_bytes=shape.num_pages * size * cost.per_token,
        state_bytes=settings.max_num_seqs * cost.per_sequence,
        num_pages=shape.num_pages,
    )
    cache = SessionManager(shape.num_pages, sessions, settings.max_num_seqs, settings.debug)
    return Engine(decoder, None, settings, cache, shape.max_model_len, report, memory, device)
