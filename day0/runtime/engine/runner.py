"""Chunks of sequences -> one flat batch -> logits."""

from __future__ import annotations

import numpy as np
import torch

from day0.runtime.batch import ForwardBatch, ImageSpan, SequenceGroup
from day0.runtime.cache.entries import Entries
from day0.runtime.cache.manager import CacheManager
from day0.runtime.engine.scheduler import Chunk
from day0.runtime.models.decoder import Decoder
from day0.runtime.trace import Trace
from day0.runtime.upstream.decoder import UpstreamDecoder


class Runner:
    """Runs the decoder over scheduled chunks. Those of one token must come first: they are computed together."""

    def __init__(self, model: Decoder | UpstreamDecoder, cache: CacheManager, device: torch.device) -> None:
        self.model = model
        self.cache = cache
        self.device = device
        self._has_axes = isinstance(model, Decoder) and model.has_axes
        self._follows_length = isinstance(model, Decoder) and bool(model.length_ropes)

    @torch.inference_mode()
    def run(self, chunks: list[Chunk], *, every_row: bool = False, trace: Trace | None = None) -> torch.Tensor:
        """Logits [wanted, vocab] float32 of the chunks that reach their end, in order; of every row if asked."""
        if self.cache.debug:
            for chunk in chunks:
                self.cache.check(chunk.sequence.held)
        return self.model(self._batch(chunks, every_row, trace), self.cache.storage)

    def _batch(self, chunks: list[Chunk], every_row: bool, trace: Trace | None) -> ForwardBatch:
        ids: list[int] = []
        slots: list[np.ndarray] = []
        rows: list[int] = []
        for chunk in chunks:
            sequence, start = chunk.sequence, chunk.sequence.computed
            end = start + chunk.length
            ids += sequence.token_ids[start:end]
            slots.append(sequence.held.slots(start, end))
            if every_row:
                rows += range(len(ids) - chunk.length, len(ids))
            elif chunk.reaches_end:
                rows.append(len(ids) - 1)
        image_rows, image_embeddings = self._images(chunks)
        return ForwardBatch(
            token_ids=self._tensor(ids),
            positions=self._tensor(self._positions(chunks)),
            write_slots=self._tensor(np.concatenate(slots)),
            rows=self._tensor(rows),
            groups=self._groups(chunks),
            lengths=self._lengths(chunks) if self._follows_length else None,
            image_rows=image_rows,
            image_embeddings=image_embeddings,
            trace=trace,
        )

    def _positions(self, chunks: list[Chunk]) -> np.ndarray:
        """Where each row stands, [tokens]; [axes, tokens] where images stand apart from a line."""
        spans = [(chunk.sequence, chunk.sequence.computed, chunk.sequence.computed + chunk.length) for chunk in chunks]
        if not self._has_axes or all(sequence.positions.lie_on_a_line for sequence, _, _ in spans):
            return np.concatenate([np.arange(start, end) for _, start, end in spans])
        return np.concatenate([sequence.positions.on_axes(start, end) for sequence, start, end in spans], axis=1)

    def _lengths(self, chunks: list[Chunk]) -> torch.Tensor:
        """All tokens of each row's sequence: a prompt in chunks turns from its first chunk on as its whole does."""
        whole = [len(chunk.sequence.token_ids) for chunk in chunks]
        return self._tensor(np.repeat(whole, [chunk.length for chunk in chunks]))

    def _groups(self, chunks: list[Chunk]) -> tuple[SequenceGroup, ...]:
        singles = [chunk for chunk in chunks if chunk.length == 1]
        assert chunks[: len(singles)] == singles, "chunks of one token come first"
        groups = [self._group(0, singles)] if singles else []
        start = len(singles)
        for chunk in chunks[len(singles) :]:
            groups.append(self._group(start, [chunk]))
            start += chunk.length
        return tuple(groups)

    def _group(self, start: int, chunks: list[Chunk]) -> SequenceGroup:
        length = chunks[0].length
        totals = [chunk.sequence.computed + length for chunk in chunks]
        kv_slots = np.empty((len(chunks), max(totals)), dtype=np.int64)
        for row, chunk in enumerate(chunks):
            own = chunk.sequence.held.slots(0, totals[row])
            # Padding repeats a slot that the sequence has written, so that no foreign memory is ever read.
            kv_slots[row, : totals[row]], kv_slots[row, totals[row] :] = own, own[0]
        context = np.array([chunk.sequence.computed for chunk in chunks], dtype=np.int64)
        return SequenceGroup(
            start=start,
            sequences=len(chunks),
            length=length,
            context=self._tensor(context),
            kv_slots=self._tensor(kv_slots),
            state_slots=self._tensor([chunk.sequence.held.state_slot for chunk in chunks]),
            entries={
                stride: Entries.of(kv_slots, context, length, stride, self.device)
                for stride in self.cache.storage.strides
            },
        )

    def _images(self, chunks: list[Chunk]) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Rows of this step that images fill, and the embeddings for them."""
        rows: list[int] = []
        parts: list[torch.Tensor] = []
        first_row = 0
        for chunk in chunks:
            start = chunk.sequence.computed
            for span in chunk.sequence.request.images:
                low, high = _overlap(span, start, start + chunk.length)
                if low < high:
                    rows += range(first_row + low - start, first_row + high - start)
                    parts.append(span.embeddings[low - span.start : high - span.start])
            first_row += chunk.length
        if not parts:
            return None, None
        return self._tensor(rows), torch.cat(parts).to(self.device)

    def _tensor(self, values: list[int] | np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.asarray(values, dtype=np.int64)).to(self.device)


def _overlap(span: ImageSpan, start: int, end: int) -> tuple[int, int]:
    return max(span.start, start), min(span.start + span.embeddings.shape[0], end)
