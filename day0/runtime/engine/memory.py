"""How much memory the engine may use, and how it is shared out between pages and state slots."""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import torch

from day0.errors import EnvironmentFault, InputError
from day0.plan.settings import EngineSettings
from day0.profile.cache_sizes import page_tokens
from day0.profile.profile import ArchitectureProfile, RopeSpec
from day0.runtime.cache.pages import pages_for
from day0.runtime.cache.storage import page_bytes, slot_bytes

CPU_CACHE_LIMIT = 2 << 30
"""Bytes of page cache on a CPU where the settings name none: host memory is shared with everything else."""

FALLBACK_CONTEXT = 4096
"""Context length of a model whose config states none."""

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
}


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """Bytes held by an engine, and the number of cache pages.

    The workspace is what packed matrices are turned back in; the expert cache keeps some of those for longer.
    Relaid are copies of matrices as a kernel wants them.
    """

    weight_bytes: int
    workspace_bytes: int
    kv_bytes: int
    state_bytes: int
    num_pages: int
    expert_cache_bytes: int = 0
    relaid_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CacheShape:
    """How large the cache is made: pages and their tokens, state slots, and the longest sequence it takes."""

    num_pages: int
    page_size: int
    num_slots: int
    max_model_len: int


def choose_device(name: str) -> torch.device:
    """The device a setting names; "auto" is the machine's accelerator, else the CPU."""
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return accelerator if accelerator is not None else torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise EnvironmentFault(f"device {name!r} cannot be used: {reason}", hint="--device cpu always works") from error
    if device.type == "meta":
        raise InputError("the meta device holds no numbers", where="--device")
    return device


def choose_dtype(
    name: str, profile: ArchitectureProfile, device: torch.device, *, option: str = "--dtype"
) -> torch.dtype:
    """The dtype a setting names; "auto" is float32 on a CPU, where it is fastest, the checkpoint's own elsewhere."""
    if name == "auto":
        name = "float32" if device.type == "cpu" else profile.dtype
    if name not in _DTYPES:
        known = ", ".join(word for word in _DTYPES if word.islower())
        raise InputError(f"dtype {name!r} is not known", where=option, hint=f"known: auto, {known}")
    return _DTYPES[name]


def choose_kv_dtype(
    settings: EngineSettings, profile: ArchitectureProfile, model_dtype: torch.dtype, device: torch.device
) -> torch.dtype:
    """The dtype of the paged cache; "auto" is the model's."""
    if settings.kv_dtype == "auto":
        return model_dtype
    return choose_dtype(settings.kv_dtype, profile, device, option="--kv-dtype")


def check_context(profile: ArchitectureProfile, settings: EngineSettings) -> None:
    """Raise InputError for a context beyond the model's own; one under dynamic scaling stretches to a multiple."""
    if not settings.max_model_len or not profile.max_position:
        return
    ropes = [rope for layer in profile.layers if isinstance(rope := getattr(layer.mixer, "rope", None), RopeSpec)]
    stretches = bool(ropes) and all(rope.scaling == "dynamic" and rope.follows_length for rope in ropes)
    limit = int(profile.max_position * (dict(ropes[0].parameters).get("factor", 1.0) if stretches else 1.0))
    if settings.max_model_len > limit:
        raise InputError(
            f"max_model_len {settings.max_model_len} is beyond the model's own limit of {limit}",
            where=profile.max_position_field or "",
        )


def free_bytes(device: torch.device) -> int:
    """Memory that can still be taken on a device."""
    if device.type == "cpu":
        return psutil.virtual_memory().available
    return torch.accelerator.get_memory_info(device)[0]


def shape_cache(
    profile: ArchitectureProfile,
    settings: EngineSettings,
    device: torch.device,
    kv_dtype: torch.dtype,
    model_dtype: torch.dtype,
) -> CacheShape:
    """Share the budget out: a state slot per seat first, pages from the rest.

    Raises InputError where the longest sequence asked for does not fit.
    """
    page_size = page_tokens(profile.layers, settings.page_size)
    per_page = page_bytes(profile.layers, page_size, kv_dtype)
    return share_out(profile, settings, device, page_size, per_page, slot_bytes(profile.layers, model_dtype))


def share_out(
    profile: ArchitectureProfile,
    settings: EngineSettings,
    device: torch.device,
    page_size: int,
    per_page: int,
    per_slot: int,
) -> CacheShape:
    """The same, from the bytes of a page of `page_size` tokens and of a state slot."""
    check_context(profile, settings)
    num_slots = settings.max_num_seqs if per_slot else 0
    wanted = settings.max_model_len or profile.max_position or FALLBACK_CONTEXT
    budget = _page_budget(settings, device, num_slots * per_slot)
    # A model without paged planes still counts tokens in pages; they cost nothing.
    pages = budget // per_page if per_page else 1 << 30
    num_pages = min(pages, pages_for(wanted, page_size) * settings.max_num_seqs)
    max_model_len = min(wanted, num_pages * page_size)
    if max_model_len < 1 or (settings.max_model_len and max_model_len < wanted):
        room = num_pages * page_size
        raise InputError(
            f"the cache has room for {room} tokens, max_model_len asks for {wanted}",
            hint="give it more memory (--mem-fraction) or a shorter --max-model-len",
        )
    return CacheShape(num_pages, page_size, num_slots, max_model_len)


def _page_budget(settings: EngineSettings, device: torch.device, taken: int) -> int:
    """Bytes for pages, beside `taken` for states."""
    if settings.kv_cache_bytes is not None:
        return max(0, settings.kv_cache_bytes)
    budget = int(free_bytes(device) * settings.mem_fraction) - taken
    return max(0, min(budget, CPU_CACHE_LIMIT) if device.type == "cpu" else budget)
