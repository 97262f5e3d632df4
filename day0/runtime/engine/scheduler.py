"""What runs in the next step: decoding first, then prefill in chunks, within a budget of tokens and pages."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from day0.runtime.batch import FinishReason
from day0.runtime.cache.manager import CacheManager
from day0.runtime.cache.prefix import Prefix
from day0.runtime.engine.fair_queue import FairQueue
from day0.runtime.engine.sequence import QueueFull, Sequence


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next `length` tokens of one sequence."""

    sequence: Sequence
    length: int

    @property
    def reaches_end(self) -> bool:
        """Whether the step sees the sequence's last token, so that a new one can be sampled."""
        return self.length == self.sequence.num_pending


class Scheduler:
    """Whose turn it is says FairQueue; of one client, first come, first served.

    When pages run out, the sequence that came last gives up its own and waits again.

    A new sequence is let in only if `watermark` of the pages stays free beside those that run.
    """

    def __init__(
        self,
        cache: CacheManager,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_queue: int,
        watermark: float = 0.0,
    ) -> None:
        self.cache = cache
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_queue = max_queue
        self.reserve = ceil(watermark * cache.pages.num_pages)
        self.waiting = FairQueue(max_queue)
        self.running: list[Sequence] = []
        self.num_preemptions = 0

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; raises QueueFull past the limit."""
        self.waiting.check(sequence.request.client)
        self.waiting.append(sequence)

    def check_queue(self, waiting: int) -> None:
        """Raise QueueFull where so many waiting requests are all that are taken."""
        if waiting >= self.max_queue:
            raise QueueFull(f"{waiting} requests are waiting, the limit is {self.max_queue}")

    def schedule(self) -> list[Chunk]:
        """The chunks of the next step, those of one token first; pages for them are taken."""
        budget = self.max_num_batched_tokens
        chunks: list[Chunk] = []
        self._void_what_turns_anew()
        preempted = self.num_preemptions
        # Decoding sequences come before prefill, so that a long prompt does not stall those being answered.
        for sequence in sorted(self.running, key=lambda s: s.num_pending > 1):
            if budget == 0:
                break
            if sequence not in self.running:
                continue  # preempted by one before it in this very step
            length = sequence.next_length(budget)
            if self._make_room(sequence, length):
                chunks.append(Chunk(sequence, length))
                budget -= length
        if self.num_preemptions == preempted:
            chunks += self._admit(budget)
        else:  # who just had to go would only be in the way again: nobody is let in
            chunks = [chunk for chunk in chunks if chunk.sequence in self.running]
        for chunk in chunks:
            self.waiting.charge(chunk.sequence.request.client, chunk.length)
        return sorted(chunks, key=lambda chunk: chunk.length > 1)

    def _make_room(self, sequence: Sequence, length: int) -> bool:
        """Pages for the next tokens, preempting the latest comers; False if the sequence itself had to go."""
        tokens = sequence.computed + length
        while not self.cache.can_grow(sequence.held, tokens):
            latest = self.running[-1]
            self._preempt(latest)
            if latest is sequence:
                return False
        self.cache.grow(sequence.held, tokens)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._put_back(sequence)
        self.num_preemptions += 1

    def _void_what_turns_anew(self) -> None:
        """Sequences that have grown into another era begin again; what they had before is kept for shorter ones."""
        for sequence in reversed(self.running.copy()):
            shorter_ones_turn_so = not any(sequence.eras)
            if sequence.enter_era():
                self._put_back(sequence, shorter_ones_turn_so)

    def _put_back(self, sequence: Sequence, keep: bool = True) -> None:
        """Let a sequence wait, first in the queue, to be computed anew."""
        self.running.remove(sequence)
        self._close(sequence, keep)
        sequence.computed, sequence.stops = 0, ()
        self.waiting.put_back(sequence)

    def _admit(self, budget: int) -> list[Chunk]:
        """Start waiting sequences while there is budget, a seat, and room for all their tokens at once."""
        chunks = []
        while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            sequence = self.waiting.first()
            prefix = self.cache.match(sequence.names, sequence.token_ids)
            reserve = self.reserve if self.running else 0
            if not self.cache.can_open(len(sequence.token_ids), prefix, reserve):
                break
            self.waiting.pop()
            self._start(sequence, prefix)
            length = sequence.next_length(budget)
            chunks.append(Chunk(sequence, length))
            budget -= length
        return chunks

    def _start(self, sequence: Sequence, prefix: Prefix) -> None:
        sequence.lease = self.cache.open(prefix)
        sequence.computed, sequence.stops = prefix.tokens, prefix.stops
        if sequence.reused is None:
            sequence.reused = prefix.tokens
        # All pages at once: a half-prefilled sequence that then starves would block those behind it.
        self.cache.grow(sequence.lease, len(sequence.token_ids))
        self.running.append(sequence)

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """Take a sequence out, running or waiting, and free what it holds."""
        sequence.finish_reason = reason
        if sequence in self.running:
            self.running.remove(sequence)
            self._close(sequence, keep=reason != "error")
        else:
            self.waiting.remove(sequence)

    def _close(self, sequence: Sequence, keep: bool = True) -> None:
        self.cache.close(sequence.held, keep)
        sequence.lease = None
