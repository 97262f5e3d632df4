"""Loading a model whose layers do not stay on the device: the ends are loaded, layers and experts come as they run."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from day0.errors import InputError
from day0.plan.settings import EngineSettings
from day0.profile.tensor_spec import TensorSpec
from day0.profile.tensors import expected_tensors
from day0.runtime.experts import ExpertStore, fetch_experts
from day0.runtime.models.decoder import Decoder
from day0.runtime.models.packed import pack_modules
from day0.runtime.offload import LayerStore
from day0.runtime.placement import wanted_here
from day0.runtime.quant.workspace import Workspace
from day0.runtime.weights import LoadReport, all_parameters, check_present, load_weights
from day0.source.model_files import ModelFiles

TABLES = ("embed.weight", "lm_head.weight")
"""The two tables that are as large as layers: kept as they are stored, on a host where the file lies mapped."""


def load_offloaded(
    modules: dict[str, nn.Module], decoder: Decoder, files: ModelFiles, settings: EngineSettings, device: torch.device
) -> LoadReport:
    """Load what stays and give the decoder a store for the rest; `modules` hold it under "".

    Raises InputError where host memory is the device's own, and what `load_weights` raises.
    """
    if settings.offload == "host" and device.type == "cpu":
        raise InputError("the device is the host already", where="--offload", hint="--offload disk, or none")
    assert files.tensors is not None, "the caller checks that there are weights"
    dtype = decoder.dtype
    workspace = Workspace(dtype, device, settings.workspace_experts, float8=settings.expert_dtype == "fp8")
    pack_modules(modules, decoder.profile, workspace)
    specs = wanted_here(expected_tensors(decoder.profile), all_parameters(modules).keys())
    experts = ExpertStore(specs, files, keep=settings.offload == "host")
    fetch_experts(modules, experts, workspace)
    check_present(specs, files.tensors)
    experts.check_shapes()

    ends = _without_layers(modules, decoder)
    held = all_parameters(ends).keys()
    end_specs = tuple(spec for spec in specs if not _in_a_layer(spec))
    decoder.kept_as_stored = tuple(path for path in TABLES if path in held)
    report = load_weights(ends, end_specs, files, dtype, device, decoder.kept_as_stored)

    in_host = settings.offload == "host"
    budget = settings.weight_budget
    store = LayerStore(decoder, specs, files, experts, dtype, device, budget=budget, in_host=in_host)
    workspace.hot.budget = max(settings.expert_cache_bytes, budget - store.resident_bytes)
    workspace.allocate()
    decoder.workspace, decoder.store = workspace, store
    return replace(report, bytes_held=report.bytes_held + store.resident_bytes + store.largest_layer)


def _without_layers(modules: dict[str, nn.Module], decoder: Decoder) -> dict[str, nn.Module]:
    """Everything but the decoder's layers, by the prefix of its paths."""
    ends = {f"{name}.": child for name, child in decoder.named_children() if name != "layers"}
    return ends | {prefix: module for prefix, module in modules.items() if prefix}


def _in_a_layer(spec: TensorSpec) -> bool:
    return spec.path.startswith("layers.")
