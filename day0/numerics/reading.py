"""Reads recorded traces back: ours, with or without their lines of JSON; tensors come one at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from safetensors import SafetensorError, safe_open
from torch import Tensor

from day0.errors import InputError
from day0.numerics.compare import execution_order, layer_and_operator
from day0.numerics.joining_ranks import Load, join_ranks
from day0.numerics.recording import GENERATED_NAME, ID_NAME, Entry, trace_paths

RANKS_DIFFER = "ranks_differ"
"""In a recording's facts: the tensors that every rank ought to have alike, and has not."""
_OTHER_ID_NAMES = ("token_ids", "prompt_ids")


@dataclass(frozen=True, slots=True)
class Recording:
    """A trace to compare: what it has, in execution order, and how to get at a tensor by its key.

    `prompt_ids` and `generated_ids` are None where the trace does not say them. Of a trace of several ranks the tensors
    are put together; `alone` loads them with one rank's numbers wherever it has some, `held` says who has what.
    """

    where: str
    entries: tuple[Entry, ...]
    load: Load
    prompt_ids: tuple[int, ...] | None = None
    generated_ids: tuple[int, ...] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    alone: Mapping[int, Load] = field(default_factory=dict)
    held: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)

    def by_key(self) -> dict[str, Entry]:
        return {entry.key: entry for entry in self.entries}

    def tensor(self, entry: Entry) -> Tensor | None:
        """What was kept of an entry; None where only its statistics were."""
        return None if entry.kept == "nothing" else self.load(entry.key)


def read_recording(path: Path) -> Recording:
    """Read OUT.safetensors (or OUT) with OUT.jsonl and OUT.json where they lie beside it.

    Raises InputError for a file that is none of ours or that its lines contradict.
    """
    safetensors, lines, about = trace_paths(path)
    if not safetensors.is_file():
        raise InputError(
            "no such file", where=str(safetensors), hint="a trace is OUT.safetensors, or a folder of dumps"
        )
    try:
        with safe_open(safetensors, "pt") as file:
            names = list(file.keys())
            ids = {name: tuple(file.get_tensor(name).flatten().tolist()) for name in names if _is_id_name(name)}
            keys = [name for name in names if not _is_id_name(name)]
            if not lines.is_file():
                whole = {key: file.get_tensor(key) for key in keys}
    except SafetensorError as fault:
        raise InputError(f"not a readable safetensors file: {fault}", where=str(safetensors)) from None
    entries = _read_lines(lines) if lines.is_file() else plain_entries(whole)
    for entry in entries:
        if entry.kept != "nothing" and entry.key not in keys:
            raise InputError(f"has no tensor {entry.key!r}, which its lines name", where=str(safetensors))
    prompt = next((ids[name] for name in (ID_NAME, *_OTHER_ID_NAMES) if name in ids), None)

    def load(key: str) -> Tensor:
        with safe_open(safetensors, "pt") as file:
            return file.get_tensor(key)

    facts = json.loads(about.read_text("utf-8")) if about.is_file() else {}
    known = (prompt, ids.get(GENERATED_NAME), facts)
    joined = join_ranks(entries, load, str(safetensors))
    if joined is None:
        return Recording(str(safetensors), entries, load, *known)
    return Recording(str(safetensors), joined.entries, joined.load, *known, joined.alone, joined.held)


def _is_id_name(name: str) -> bool:
    return name in (ID_NAME, GENERATED_NAME, *_OTHER_ID_NAMES)


def _read_lines(path: Path) -> tuple[Entry, ...]:
    entries = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            entries.append(msgspec.json.decode(line, type=Entry))
        except msgspec.MsgspecError as fault:
            raise InputError(f"line {number}: {fault}", where=str(path)) from None
    return tuple(sorted(entries, key=lambda entry: entry.order))


def plain_entries(tensors: Mapping[str, Tensor]) -> tuple[Entry, ...]:
    """Entries of tensors that come without lines: one step, and the order of our trace points."""
    entries = []
    for order, name in enumerate(sorted(tensors, key=execution_order)):
        tensor = tensors[name]
        layer, operator = layer_and_operator(name)
        length = tensor.shape[0] if tensor.dim() else 1
        dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
        entries.append(Entry(name, order, layer, operator, 0, 0, length, dtype, shape, tuple(tensor.stride()), None))
    return tuple(entries)
