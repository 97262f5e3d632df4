"""A stored trace: named tensors in a safetensors file, with the token ids they came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from day0.errors import InputError
from day0.numerics.compare import OUTER_POINTS, layer_and_operator

_ID_NAMES = ("input_ids", "token_ids")


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """`tensors` holds `logits` and, of the layers, at least their outputs [tokens, hidden]."""

    token_ids: tuple[int, ...]
    tensors: dict[str, Tensor]


def read_trace(path: Path) -> StoredTrace:
    """Read `input_ids`, `logits` and everything named `layers.{i}.*`, `embed` or `norm`; other names are left."""
    if not path.is_file():
        raise InputError("no such file", where=str(path), hint="a trace is a safetensors file")
    try:
        with safe_open(path, "pt") as file:
            names = list(file.keys())
            id_name = next((name for name in _ID_NAMES if name in names), None)
            if id_name is None or "logits" not in names:
                raise InputError(
                    "a trace needs 'logits' and the 'input_ids' they came from",
                    where=str(path),
                    hint=f"found {len(names)} tensors: {', '.join(names[:6])}",
                )
            ids = file.get_tensor(id_name)
            wanted = [name for name in names if layer_and_operator(name)[0] is not None or name in OUTER_POINTS]
            tensors = {name: file.get_tensor(name) for name in wanted}
    except SafetensorError as fault:
        raise InputError(f"not a readable safetensors file: {fault}", where=str(path)) from None
    if ids.dtype not in (torch.int32, torch.int64) or ids.numel() == 0:
        raise InputError(f"'{id_name}' must be whole numbers, at least one", where=str(path))
    return StoredTrace(tuple(int(token) for token in ids.flatten()), tensors)
