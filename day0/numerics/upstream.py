"""The same trace from the model's definition in transformers, in float32: a second opinion on our runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from day0.errors import CannotSay

_POINTS = {
    "input_layernorm": "mixer_in",
    "self_attn": "mixer_out",
    "post_attention_layernorm": "ffn_in",
    "mlp": "ffn_out",
    "block_sparse_moe": "ffn_out",
}
"""Submodules of a transformers decoder layer whose output is one of our trace points."""


def knows(folder: Path) -> str | None:
    """Why transformers cannot run the model in `folder` from its own code, or None where it can."""
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as fault:
        return f"transformers does not read this configuration: {_first_line(fault)}"
    if type(config) not in AutoModelForCausalLM._model_mapping:
        return f"transformers has no causal language model for {type(config).__name__}"
    return None


def load_upstream(folder: Path) -> Any:
    """The transformers model in float32 with eager attention, from local files and without remote code."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    reason = knows(folder)
    if reason is not None:
        raise CannotSay(reason, where=str(folder))
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, RuntimeError) as fault:
        raise CannotSay(f"transformers does not load the model: {_first_line(fault)}", where=str(folder)) from fault
    return model.eval()


@torch.no_grad()
def trace_upstream(model: Any, token_ids: Sequence[int]) -> dict[str, Tensor]:
    """Trace points [tokens, ...] of one forward over `token_ids`, in execution order."""
    trace: dict[str, Tensor] = {}
    backbone = model.base_model
    layers = _decoder_layers(backbone)
    handles = [model.get_input_embeddings().register_forward_hook(_keep(trace, "embed"))]
    for index, layer in enumerate(layers):
        for name, child in layer.named_children():
            if name in _POINTS:
                handles.append(child.register_forward_hook(_keep(trace, f"layers.{index}.{_POINTS[name]}")))
        handles.append(layer.register_forward_hook(_keep(trace, f"layers.{index}.output")))
    if isinstance(getattr(backbone, "norm", None), nn.Module):
        handles.append(backbone.norm.register_forward_hook(_keep(trace, "norm")))
    try:
        output = model(torch.tensor([list(token_ids)]), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    trace["logits"] = output.logits[0].float()
    return trace


def _decoder_layers(backbone: Any) -> nn.ModuleList:
    layers = getattr(backbone, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise CannotSay(f"{type(backbone).__name__} has no list of decoder layers to trace")
    return layers


def _keep(trace: dict[str, Tensor], name: str) -> Callable[[nn.Module, Any, Any], None]:
    def hook(module: nn.Module, arguments: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        # [1, tokens, hidden], except experts, which may come flattened to [tokens, hidden].
        trace[name] = first.detach().float().reshape(-1, first.shape[-1]).clone()

    return hook


def _first_line(fault: Exception) -> str:
    return str(fault).strip().split("\n")[0][:200]
