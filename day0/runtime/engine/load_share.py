"""What loading and sizing the cache mean for one of several ranks."""

from __future__ import annotations

from dataclasses import replace

import psutil
import torch

from day0.plan.settings import EngineSettings
from day0.profile.cache_sizes import page_tokens
from day0.profile.profile import ArchitectureProfile
from day0.runtime.engine.memory import CacheShape, shape_cache
from day0.runtime.models.decoder import Decoder
from day0.runtime.parallel.layout import Layout
from day0.runtime.parallel.ranks import Ranks
from day0.runtime.parallel.shares import local_tensors
from day0.runtime.placement import parameter_paths
from day0.runtime.weights import LoadReport, Modules, all_parameters, load_weights
from day0.source.model_files import ModelFiles


def load_share(
    modules: Modules,
    profile: ArchitectureProfile,
    files: ModelFiles,
    dtype: torch.dtype,
    device: torch.device,
    ranks: Ranks,
) -> LoadReport:
    """Fill modules that have a rank's sizes with its share of the stored tensors, and read no more than that."""
    own = all_parameters(modules).keys()
    tensors = [
        tensor
        for tensor in local_tensors(profile, ranks.layout, ranks.place)
        if not own.isdisjoint(parameter_paths(tensor.spec))  # the others are of another stage
    ]
    shares = {tensor.spec.name: tensor.share for tensor in tensors}
    return load_weights(modules, tuple(tensor.spec for tensor in tensors), files, dtype, device, shares=shares)


def shape_share(decoder: Decoder, settings: EngineSettings, device: torch.device, kv_dtype: torch.dtype) -> CacheShape:
    """The cache of a rank's layers: one that all have room for, as they schedule alike and none may run out first.

    A stage without states still counts the slots of those that have some.
    """
    profile, meeting = decoder.profile, decoder.ranks.meeting
    settings = replace(settings, page_size=page_tokens(profile.layers, settings.page_size))
    own = replace(profile, layers=decoder.own_layers)
    with meeting.together():
        shape = shape_cache(own, settings, device, kv_dtype, decoder.dtype)
    if meeting.size == 1:
        return shape
    has_states = any(layer.state_shapes() or layer.tail_shapes() for layer in profile.layers)
    pages, longest = meeting.least(shape.num_pages), meeting.least(shape.max_model_len)
    slots = settings.max_num_seqs if has_states else 0
    return replace(shape, num_pages=pages, num_slots=slots, max_model_len=longest)


def rank_settings(settings: EngineSettings, profile: ArchitectureProfile, device: torch.device) -> EngineSettings:
    """The settings of one rank: its device, and of a host's memory and threads an even share.

    Prefixes of models with states are not found again across stages: each would keep copies of another size.
    """
    ranks = Layout.of(settings).ranks
    has_states = any(layer.state_shapes() or layer.tail_shapes() for layer in profile.layers)
    settings = replace(
        settings,
        device=str(device),
        prefix_caching=settings.prefix_caching and not (has_states and settings.pp > 1),
    )
    if device.type != "cpu":
        return settings
    threads = max(1, (psutil.cpu_count(logical=False) or 1) // ranks)
    return replace(settings, mem_fraction=settings.mem_fraction / ranks, cpu_threads=settings.cpu_threads or threads)
