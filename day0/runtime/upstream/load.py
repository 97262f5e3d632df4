"""Safetensors -> a transformers model, every tensor accounted for, tried out before it is used."""

from __future__ import annotations

import time
from typing import Any

import torch

from day0.errors import CannotSay, InputError
from day0.profile.profile import ArchitectureProfile
from day0.runtime.upstream.decoder import UpstreamDecoder
from day0.runtime.upstream.definition import Definition, completed, told_as
from day0.runtime.upstream.limits import Account
from day0.runtime.weights import LoadReport
from day0.source.model_files import ModelFiles


def load_decoder(
    files: ModelFiles,
    profile: ArchitectureProfile,
    definition: Definition,
    dtype: torch.dtype,
    device: torch.device,
    attention: str | None = None,
) -> tuple[UpstreamDecoder, LoadReport]:
    """The model in `dtype` on `device`, with the profile completed by what transformers knows.

    `attention` names one of transformers' implementations, where its own choice is not wanted. Raises InputError
    where tensors are missing or have other shapes, CannotSay where transformers does not load it.
    """
    started = time.perf_counter()
    model, account = load_model(files, definition, dtype, device, attention)
    decoder = UpstreamDecoder(model, completed(profile, files, definition), definition, account)
    held = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    report = LoadReport(
        tensors=len(files.tensors or ()),
        bytes_read=files.weight_bytes or 0,
        bytes_held=held,
        unwritten=(),
        seconds=time.perf_counter() - started,
    )
    return decoder, report


def load_model(
    files: ModelFiles, definition: Definition, dtype: torch.dtype, device: torch.device, attention: str | None = None
) -> tuple[Any, Account]:
    """The transformers model itself, and what became of the stored tensors."""
    if files.tensors is None:
        raise InputError(
            "has no weights in safetensors; pickles (.bin, .pt) run code when they are read and are never read",
            where=files.id,
        )
    _check_packing(files, definition)
    with told_as("transformers does not load the model", files.id):
        model, found = definition.auto.from_pretrained(
            files.folder,
            config=definition.config,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=definition.remote,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # so that they are told by name below
            output_loading_info=True,
            **({} if attention is None else {"attn_implementation": attention}),
        )
        model = model.to(device).eval().requires_grad_(False)
    _check_whole(files, found)
    return model, Account(tuple(sorted(found.get("unexpected_keys", ()))), _packing(definition).get("quant_method"))


def _packing(definition: Definition) -> dict[str, Any]:
    """How the stored weights are packed, in transformers' words; empty for plain ones."""
    try:
        packing = definition.config.quantization_config
    except AttributeError:
        return {}
    return packing if isinstance(packing, dict) else packing.to_dict()


def _check_packing(files: ModelFiles, definition: Definition) -> None:
    """transformers passes over packings that it does not know, which would take bits for numbers."""
    from transformers.quantizers import AutoHfQuantizer

    packing = _packing(definition)
    if packing and not AutoHfQuantizer.supports_quant_method(packing):
        method = packing.get("quant_method")
        raise CannotSay(f"transformers does not read weights packed as {method!r}", where=files.id)


def _check_whole(files: ModelFiles, found: Any) -> None:
    """Parameters that no tensor wrote are random numbers."""
    missing = sorted(found.get("missing_keys", ()))
    if missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise InputError(f"the checkpoint lacks {len(missing)} tensors of transformers' model: {shown}", where=files.id)
    for name, stored, wanted in sorted(found.get("mismatched_keys", ())):
        raise InputError(f"{name} has shape {list(stored)}, the config asks for {list(wanted)}", where=files.id)
