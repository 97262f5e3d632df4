"""From a published model to a running engine: allocate, load, size the cache, try one forward."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace

import torch

from day0.errors import CannotSay, InputError
from day0.plan.settings import EngineSettings
from day0.profile.profile import ArchitectureProfile, VisionTower
from day0.profile.tensors import expected_tensors
from day0.runtime.cache.manager import CacheManager
from day0.runtime.cache.pages import PageAllocator
from day0.runtime.cache.prefix import Snapshots
from day0.runtime.cache.states import SlotAllocator
from day0.runtime.cache.storage import CacheStorage
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.load_offloaded import load_offloaded
from day0.runtime.engine.load_share import load_share, shape_share
from day0.runtime.engine.load_upstream import assemble_upstream, load_upstream, native_gap, upstream_definition
from day0.runtime.engine.memory import (
    MemoryFigures,
    check_context,
    choose_device,
    choose_dtype,
    choose_kv_dtype,
)
from day0.runtime.models.decoder import Decoder
from day0.runtime.models.packed import check_float8_experts, pack_modules
from day0.runtime.models.relaid import relaid_bytes, relay_matrices
from day0.runtime.ops.registry import Operators, accelerator_name, choose_operators
from day0.runtime.parallel.layout import Layout
from day0.runtime.parallel.ranks import ALONE, Ranks
from day0.runtime.placement import wanted_here
from day0.runtime.quant.workspace import Workspace
from day0.runtime.upstream.decoder import UpstreamDecoder
from day0.runtime.vision.tower_model import make_encoder
from day0.runtime.weights import LoadReport, Modules, all_parameters, load_weights
from day0.source.model_files import ModelFiles

OnPhase = Callable[[str, float], None]
"""Told the name of each start-up phase as it ends, and its seconds."""

SMALL_MODEL_BYTES = 64 << 20
"""Weights below this make a model whose matrix products are shorter than waking a second thread."""

VerifiedOn = Callable[[str], Collection[tuple[str, str]]]
"""From a device's own name to the (operator, provider) pairs verified on it: `coverage.Whitelist.verified_on`."""


def load_engine(
    files: ModelFiles,
    profile: ArchitectureProfile,
    settings: EngineSettings,
    on_phase: OnPhase | None = None,
    *,
    verified_on: VerifiedOn | None = None,
    ops: Operators | None = None,
    ranks: Ranks = ALONE,
) -> Engine:
    """Load a model into an engine: phases "load", "allocate" (with copies of matrices for kernels that want them laid
    out otherwise) and "warmup" (one checked forward).

    Blocks of ours run it, or the definition in transformers, as `settings.runtime` says. `verified_on` gives the
    kernels that the whitelist has evidence for (none: references run); `ops` replaces the choice altogether. Of several
    `ranks` each calls this at once, for its own share (`engine/lead.py` starts them). Raises
    CannotSay for a model that nothing here runs, InputError where weights are missing, broken or not finite.
    """
    definition = upstream_definition(files, profile, settings)
    if definition is None:
        _check_loadable(files, profile)
    assert Layout.of(settings) == ranks.layout, "a model for several ranks is loaded by all of them"
    phase = _Phases(on_phase)
    device = choose_device(settings.device)
    dtype = choose_dtype(settings.dtype, profile, device)
    choose_kv_dtype(settings, profile, dtype, device)  # what would be refused later is refused before the weights load
    check_context(profile, settings)
    float8 = settings.expert_dtype == "fp8"
    if float8 and definition is not None:
        raise InputError("transformers' definition holds its own experts", where="--expert-dtype", hint="auto")
    if float8:
        check_float8_experts(profile, dtype, device)
    decoder: Decoder | UpstreamDecoder
    vision = None
    if definition is None:
        ops = ops or choose_operators(device, dtype, verified_on(accelerator_name(device)) if verified_on else ())
        with ranks.meeting.together():
            modules, report = _load_modules(files, profile, settings, ops, dtype, device, ranks)
        assert isinstance(modules[""], Decoder)
        decoder, vision = modules[""], modules.get("vision.")
    else:
        decoder, report = load_upstream(files, profile, definition, settings, dtype, device)
    _set_threads(settings, report, device)
    phase.done("load")
    if isinstance(decoder, Decoder) and settings.offload == "none" and ranks.layout.ranks == 1:
        relay_matrices(decoder, settings.relaid_bytes)
    engine = assemble(decoder, vision, settings, report, device)
    phase.done("allocate")
    _check_forward(engine)
    phase.done("warmup")
    return engine


def assemble(
    decoder: Decoder | UpstreamDecoder,
    vision: torch.nn.Module | None,
    settings: EngineSettings,
    report: LoadReport,
    device: torch.device,
) -> Engine:
    """An engine around loaded modules, with a cache of its own. Several may share the modules, one at a time."""
    if isinstance(decoder, UpstreamDecoder):
        return assemble_upstream(decoder, settings, report, device)
    profile, dtype = decoder.profile, decoder.dtype
    kv_dtype = choose_kv_dtype(settings, profile, dtype, device)
    shape = shape_share(decoder, settings, device, kv_dtype)
    settings = replace(settings, page_size=shape.page_size)
    storage = CacheStorage(
        decoder.own_layers, shape.num_pages, shape.page_size, shape.num_slots, kv_dtype, dtype, device
    )
    pages, slots = PageAllocator(shape.num_pages, shape.page_size), SlotAllocator(shape.num_slots)
    snapshots = Snapshots(settings.snapshot_bytes) if settings.prefix_caching else None
    cache = CacheManager(storage, pages, slots, settings.debug, snapshots)
    memory = MemoryFigures(
        weight_bytes=report.bytes_held,
        workspace_bytes=0 if decoder.workspace is None else decoder.workspace.nbytes,
        kv_bytes=storage.kv_bytes,
        state_bytes=storage.state_bytes,
        num_pages=shape.num_pages,
        expert_cache_bytes=0 if decoder.workspace is None else decoder.workspace.hot.nbytes,
        relaid_bytes=relaid_bytes(decoder),
    )
    return Engine(decoder, vision, settings, cache, shape.max_model_len, report, memory, device)


def _set_threads(settings: EngineSettings, report: LoadReport, device: torch.device) -> None:
    """Bound torch's threads for the process: handing over microseconds of work costs more than doing it."""
    if settings.cpu_threads is not None:
        torch.set_num_threads(settings.cpu_threads)
    elif device.type == "cpu" and report.bytes_held < SMALL_MODEL_BYTES:
        torch.set_num_threads(1)


class _Phases:
    """Times what happens between two calls."""

    def __init__(self, on_phase: OnPhase | None) -> None:
        self._on_phase = on_phase
        self._since = time.perf_counter()

    def done(self, name: str) -> None:
        now = time.perf_counter()
        if self._on_phase is not None:
            self._on_phase(name, now - self._since)
        self._since = now


def _check_loadable(files: ModelFiles, profile: ArchitectureProfile) -> None:
    gap = native_gap(files, profile)
    if gap is not None:
        raise gap
    if files.tensors is None or files.folder is None:
        raise InputError("has no weights to load", where=files.id, hint="name a folder or hub id that has them")
    errors = [finding for finding in profile.findings if finding.severity == "error"]
    if errors:
        raise CannotSay(errors[0].message, where=errors[0].where, hint=errors[0].hint)


def _load_modules(
    files: ModelFiles,
    profile: ArchitectureProfile,
    settings: EngineSettings,
    ops: Operators,
    dtype: torch.dtype,
    device: torch.device,
    ranks: Ranks = ALONE,
) -> tuple[Modules, LoadReport]:
    with torch.device("meta"):
        decoder = Decoder(profile, ops, ranks)
        modules: dict[str, torch.nn.Module] = {"": decoder}
        if ranks.place.rank == 0 and profile.vision is not None and _has_tower(files, profile):
            modules["vision."] = make_encoder(profile.vision, ops)
    decoder.dtype = dtype
    if settings.offload != "none":
        return modules, load_offloaded(modules, decoder, files, settings, device)
    float8 = settings.expert_dtype == "fp8"
    workspace = Workspace(dtype, device, settings.workspace_experts, settings.expert_cache_bytes, float8=float8)
    decoder.workspace = pack_modules(modules, profile, workspace)
    if ranks.layout.ranks > 1:
        return modules, load_share(modules, profile, files, dtype, device, ranks)
    specs = wanted_here(expected_tensors(profile), all_parameters(modules).keys())
    return modules, load_weights(modules, specs, files, dtype, device)


def _has_tower(files: ModelFiles, profile: ArchitectureProfile) -> bool:
    """Whether the runtime has the model's tower, and the files do: without it they are the text model alone."""
    if isinstance(profile.vision, VisionTower):
        names = {spec.name for spec in expected_tensors(profile) if spec.group == "vision"}
        return profile.vision.native and not names.isdisjoint(files.tensors or ())
    return profile.vision is not None


def _check_forward(engine: Engine) -> None:
    """One forward over a few tokens; numbers that are not finite must not reach a user as text."""
    length = min(8, engine.max_model_len)
    logits = engine.forward([index % engine.profile.vocab_size for index in range(length)])
    if not torch.isfinite(logits).all():
        raise InputError(
            "the first forward gave numbers that are not finite",
            where=engine.profile.family or "",
            hint="a tensor may be broken: `day0 run-checklist --phase loading` names it",
        )
