"""The same trace from the definition in transformers, in float32 on the CPU: a second opinion on our runtime."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from day0.profile.profile import ArchitectureProfile
from day0.runtime.trace import Trace
from day0.runtime.upstream.decoder import UpstreamDecoder
from day0.runtime.upstream.definition import find_definition, told_as
from day0.runtime.upstream.load import load_decoder
from day0.runtime.upstream.sessions import CacheUse, Session
from day0.source.model_files import ModelFiles


def load_reference(files: ModelFiles, profile: ArchitectureProfile) -> UpstreamDecoder:
    """The definition with eager attention, computing every sequence whole; a repository's own code is never run.

    Raises CannotSay where transformers has no definition or does not load the model.
    """
    definition = find_definition(files, trust_remote_code=False)
    decoder, _ = load_decoder(files, profile, definition, torch.float32, torch.device("cpu"), attention="eager")
    decoder.cache_use = CacheUse.NEVER
    return decoder


@torch.no_grad()
def reference_trace(decoder: UpstreamDecoder, token_ids: Sequence[int], where: str = "") -> dict[str, Tensor]:
    """Trace points [tokens, ...] of one forward over `token_ids`, in execution order; the last is `logits`."""
    trace = Trace()
    with told_as("transformers does not run the model", where):
        decoder.advance(Session(list(token_ids)), len(token_ids), trace)
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in trace.tensors.items()}
