"""What this process holds of a model: all of it, or its share where ranks have cut it between them."""

from __future__ import annotations

from dataclasses import replace

import torch

from day0.profile.profile import ArchitectureProfile
from day0.profile.tensors import expected_tensors
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.lead import LeadingEngine
from day0.runtime.models.decoder import Decoder
from day0.runtime.parallel.reading import WHOLE
from day0.runtime.parallel.shares import LocalTensor, local_tensors
from day0.runtime.placement import parameter_paths, wanted_here
from day0.runtime.weights import all_parameters


def parameters_of(engine: Engine) -> dict[str, torch.nn.Parameter]:
    """Every parameter by the path of `profile/tensors.py`."""
    modules: dict[str, torch.nn.Module] = {"": engine.model}
    if engine.vision is not None:
        modules["vision."] = engine.vision
    return all_parameters(modules)


def held_tensors(engine: Engine) -> tuple[LocalTensor, ...]:
    """The stored tensors that this process has something of, and what it has of each: all of it, for one rank."""
    own = parameters_of(engine).keys()
    if not isinstance(engine, LeadingEngine):
        specs = wanted_here(expected_tensors(engine.profile), own)
        return tuple(LocalTensor(spec, WHOLE) for spec in specs)
    layout = engine.layout
    tensors = local_tensors(engine.profile, layout, layout.place(0))
    return tuple(tensor for tensor in tensors if not own.isdisjoint(parameter_paths(tensor.spec)))


def held_profile(engine: Engine) -> ArchitectureProfile:
    """The profile with the layers that this process holds, as it holds them: all of them, for one rank."""
    if isinstance(engine.model, Decoder):
        return replace(engine.profile, layers=engine.model.own_layers)
    return engine.profile
