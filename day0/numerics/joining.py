"""A prompt that ran in chunks, put together again: then it compares with one that ran whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from day0.numerics.joining_ranks import Load
from day0.numerics.reading import Recording
from day0.numerics.recording import Entry

UNSEEN = float("-inf")
"""Stands where a chunk had not got so far; the reference's numbers there are left out of the comparison."""
GROWING: Mapping[str, tuple[int, float]] = {
    "mixer.index_scores": (0, UNSEEN),
    "mixer.topk_ids": (0, -1),
    "mixer.topk_blocks": (0, -1),
    "mixer.probs": (1, 0.0),
}
"""Points whose last axis grows with the past: the axis of tokens, and what fills the places a chunk lacks."""
LEFT_OUT = "mixer.topk_ids"
"""A chunk that reads every token has no such choice; it is the tokens up to each."""


def whole_prompt(recording: Recording) -> Recording:
    """Join the steps of the prompt into one; later steps are numbered on from it.

    Rows of tokens are put one after another, what is narrower in earlier chunks is filled (`GROWING`). Of what a step
    leaves behind (states) that of the last chunk stays, and so does what only came before (pictures).
    """
    length = len(recording.prompt_ids or ())
    spans = {e.step: (e.start, e.length) for e in recording.entries if e.start + e.length <= length}
    if len(spans) < 2:
        return recording
    last = max(spans)
    parts: dict[str, dict[int, Entry]] = defaultdict(dict)
    for entry in recording.entries:
        if entry.step <= last:
            parts[entry.name][entry.step] = entry
    entries: list[Entry] = []
    sources: dict[str, dict[int, Entry]] = {}
    for before in parts.values():
        if last not in before:
            final = before[max(before)]
            entries.append(replace(final, step=0, order=len(entries)))
            sources[entries[-1].key] = {final.step: final}
    for name in dict.fromkeys(entry.name for entry in recording.entries if entry.step == last):
        joined = _joined(parts[name], spans, length)
        entries.append(replace(joined, order=len(entries)))
        sources[joined.key] = parts[name] if joined.length == length else {last: parts[name][last]}
    for entry in recording.entries:
        if entry.step > last:
            moved = replace(entry, step=entry.step - last, order=len(entries))
            entries.append(moved)
            sources[moved.key] = {entry.step: entry}

    def whole(load: Load) -> Load:
        return lambda key: _of_chunks(sources[key], spans, load)

    return replace(
        recording,
        entries=tuple(entries),
        load=whole(recording.load),
        alone={rank: whole(load) for rank, load in recording.alone.items()},
        held=_held(recording, sources),
    )


def _held(recording: Recording, sources: Mapping[str, Mapping[int, Entry]]) -> dict[str, tuple[Entry, ...]]:
    """Who has what of each joined tensor, whose keys these are; rows that were shared out chunk by chunk are left."""
    found = {}
    for key, own in sources.items():
        parts = tuple(part for entry in own.values() for part in recording.held.get(entry.key, ()))
        if len(own) == 1 or not any(part.shard_axis == 0 for part in parts):
            found[key] = parts
    return found


def _of_chunks(own: Mapping[int, Entry], spans: Mapping[int, tuple[int, int]], load: Load) -> Tensor:
    step, entry = next(iter(own.items()))
    if len(own) == 1 and (step not in spans or entry.operator != LEFT_OUT):
        return load(entry.key)
    return _filled(own, spans, load)


def _joined(parts: Mapping[int, Entry], spans: Mapping[int, tuple[int, int]], length: int) -> Entry:
    """One entry for the chunks'; "nothing" is kept where one of them lacks the tensor."""
    final = parts[max(parts)]
    axis, _ = GROWING.get(final.operator, (0, 0.0))
    by_token = all(len(part.shape) > axis and part.shape[axis] == part.length for part in parts.values())
    if not by_token:
        return replace(final, step=0, start=0, statistics=None)
    complete = len(parts) == len(spans) or final.operator == LEFT_OUT
    kept = {part.kept for part in parts.values()}
    shape = (*final.shape[:axis], length, *final.shape[axis + 1 :])
    whole = final.kept if complete and len(kept) == 1 else "nothing"
    return replace(final, step=0, start=0, length=length, shape=shape, statistics=None, kept=whole)


def _filled(own: Mapping[int, Entry], spans: Mapping[int, tuple[int, int]], load: Load) -> Tensor:
    """The chunks one after another, each as wide as the last."""
    final = own[max(own)]
    axis, fill = GROWING.get(final.operator, (0, 0.0))
    width = final.shape[-1]
    tensors = []
    for step, (start, length) in sorted(spans.items()):
        if step in own:
            tensor = load(own[step].key)
        else:
            places, rows = torch.arange(width), torch.arange(start, start + length)[:, None]
            tensor = torch.where(places <= rows, places, -1)
        tensors.append(torch.nn.functional.pad(tensor, (0, width - tensor.shape[-1]), value=fill))
    return torch.cat(tensors, dim=axis)
