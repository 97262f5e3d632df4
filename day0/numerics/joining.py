"""A prompt that ran in chunks, put together again: then it compares with one that ran whole."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import torch
from torch import Tensor

from day0.numerics.reading import Recording
from day0.numerics.recording import Entry


def whole_prompt(recording: Recording) -> Recording:
    """Join the steps of the prompt into one; later steps are numbered on from it.

    Rows of tokens are put one after another, choices of different widths filled with -1. Of what a step leaves behind
    (states) that of the last chunk stays. What has another width in every chunk (scores of a growing past) is left out.
    """
    length = len(recording.prompt_ids or ())
    chunks = sorted({entry.step for entry in recording.entries if entry.start + entry.length <= length})
    if len(chunks) < 2:
        return recording
    last = chunks[-1]
    parts: dict[str, list[Entry]] = defaultdict(list)
    for entry in recording.entries:
        if entry.step <= last:
            parts[entry.name].append(entry)
    entries: list[Entry] = []
    sources: dict[str, list[Entry]] = {}
    for name in dict.fromkeys(entry.name for entry in recording.entries if entry.step == last):
        if (joined := _joined(parts[name], len(chunks), length)) is not None:
            entries.append(replace(joined, order=len(entries)))
            own = parts[name]
            sources[joined.key] = own if joined.length == length else own[-1:]  # of a state, the last chunk's
    for entry in recording.entries:
        if entry.step > last:
            moved = replace(entry, step=entry.step - last, order=len(entries))
            entries.append(moved)
            sources[moved.key] = [entry]

    def load(key: str) -> Tensor:
        own = sources[key]
        if len(own) == 1:
            return recording.load(own[0].key)
        return _concatenated([recording.load(entry.key) for entry in own])

    return replace(recording, entries=tuple(entries), load=load)


def _joined(parts: list[Entry], chunks: int, length: int) -> Entry | None:
    """One entry for those of all chunks, None where they do not join."""
    final = parts[-1]
    if not all(part.shape and part.shape[0] == part.length for part in parts):
        return replace(final, step=0, start=0, length=final.length, statistics=None)
    widths = {part.shape[1:] for part in parts}
    choices = final.dtype.startswith("int")
    kept = {part.kept for part in parts}
    if len(parts) != chunks or len(kept) > 1 or (len(widths) > 1 and not choices):
        return None
    shape = (length, *max(widths))
    return replace(final, step=0, start=0, length=length, shape=shape, statistics=None)


def _concatenated(tensors: list[Tensor]) -> Tensor:
    width = max(tensor.shape[-1] for tensor in tensors)
    padded = [torch.nn.functional.pad(tensor, (0, width - tensor.shape[-1]), value=-1) for tensor in tensors]
    return torch.cat(padded)
