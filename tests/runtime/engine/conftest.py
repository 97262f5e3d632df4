"""A decoder whose next token is an exact function of all tokens before, told by the paged cache and by the state.

It reads what a real model reads, so a wrong slot, a stale state or a page shared by two shows as a wrong token; and
it costs so little that thousands of steps can be tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from day0.plan.settings import EngineSettings
from day0.profile.profile import (
    ActivationSpec,
    ArchitectureProfile,
    CachePlane,
    DenseFeedForward,
    GroupedQueryAttention,
    KimiDeltaAttention,
    LayerSpec,
    PlainResidual,
    StateShape,
)
from day0.runtime.batch import ForwardBatch
from day0.runtime.cache.manager import CacheManager
from day0.runtime.cache.pages import PageAllocator
from day0.runtime.cache.prefix import Snapshots
from day0.runtime.cache.states import SlotAllocator
from day0.runtime.cache.storage import CacheStorage
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.memory import MemoryFigures
from day0.runtime.weights import LoadReport

VOCAB = 101
END = 7
_PRIME = 997


def next_token(ids: Sequence[int]) -> int:
    """What the decoder says after these tokens."""
    chain = total = 0
    for position, token in enumerate(ids):
        chain = (chain * 31 + token + 1) % _PRIME
        total += (token + 1) * (position + 1)
    return (chain * 13 + total) % VOCAB


def continuation(prompt: Sequence[int], count: int, stops: frozenset[int] = frozenset()) -> list[int]:
    """Up to `count` tokens after a prompt, the last of them a stop token if one comes."""
    ids = list(prompt)
    while len(ids) < len(prompt) + count:
        ids.append(next_token(ids))
        if ids[-1] in stops:
            break
    return ids[len(prompt) :]


@dataclass(frozen=True, slots=True)
class PoolingMixer:
    """Keeps one entry per `stride` tokens, made of them and the `stride` before."""

    kind: ClassVar[str] = "pooling"
    stride: int

    def cache_planes(self) -> tuple[CachePlane, ...]:
        tail = StateShape("pool_tail", (2 * self.stride - 1, 1), "model")
        return (CachePlane("pool", (1,), stride=self.stride, tail=tail),)

    def state_shapes(self) -> tuple[StateShape, ...]:
        return ()


class ChainDecoder(torch.nn.Module):
    """Layer 0 keeps each token in a page, layer 1 a running number per sequence, layer 2 sums that tokens share."""

    def __init__(self, max_tokens: int, stride: int) -> None:
        super().__init__()
        feed_forward = DenseFeedForward(1, ActivationSpec("silu"))
        attention = GroupedQueryAttention(num_heads=1, num_kv_heads=1, head_dim=1, rope=None, scale=1.0)
        linear = KimiDeltaAttention(1, 1, 2, gate_lower_bound=None, full_rank_gate=False, norm_eps=1e-6)
        self.profile = ArchitectureProfile(
            family="chain",
            model_type="chain",
            architectures=(),
            dtype="F32",
            hidden_size=1,
            vocab_size=VOCAB,
            norm_eps=1e-6,
            tie_word_embeddings=True,
            max_position=None,
            max_position_field=None,
            layers=tuple(
                LayerSpec(i, mixer, feed_forward, PlainResidual())
                for i, mixer in enumerate((attention, linear, PoolingMixer(stride)))
            ),
            residual=PlainResidual(),
            eos_token_ids=(END,),
        )
        self.max_tokens = max_tokens
        self.stride = stride
        self.steps: list[int] = []

    def forward(self, batch: ForwardBatch, cache: CacheStorage) -> torch.Tensor:
        assert 0 < batch.num_tokens <= self.max_tokens, "the step is larger than its budget"
        assert len(set(batch.write_slots.tolist())) == batch.num_tokens, "two rows write one slot"
        self.steps.append(batch.num_tokens)
        keys = cache.plane(0, "k")
        keys[batch.write_slots, 0, 0] = (batch.token_ids + 1).float()
        answers = torch.full((batch.num_tokens,), -1)
        for group in batch.groups:
            for place in range(group.sequences):
                self._sequence(batch, cache, keys, group, place, answers)
            if self.stride > 1:
                self._pool(batch, cache, keys, group)
        return torch.nn.functional.one_hot(answers[batch.rows], VOCAB).float() * 10

    def _sequence(self, batch, cache, keys, group, place, answers) -> None:
        context, slots = int(group.context[place]), group.kv_slots[place]
        state = cache.state(1, "recurrent")[group.state_slots[place]]
        for row in range(group.length):
            at = group.start + place * group.length + row
            assert int(batch.positions[at]) == context + row
            seen = keys[slots[: context + row + 1], 0, 0]
            assert torch.isfinite(seen).all(), "a page was read that nobody wrote"
            assert torch.isfinite(state).all(), "a state was read that nobody set"
            chain = (int(state) * 31 + int(batch.token_ids[at]) + 1) % _PRIME
            state[:] = chain
            total = sum(int(value) * (position + 1) for position, value in enumerate(seen.tolist()))
            answers[at] = (chain * 13 + total) % VOCAB

    def _pool(self, batch, cache, keys, group) -> None:
        """An entry is the sum of its own tokens and those of the one before; all of them are held to the keys."""
        entries, tails = group.entries[self.stride], cache.state(2, "pool_tail")
        new = (batch.token_ids[group.start : group.end] + 1).float().view(group.sequences, group.length, 1)
        inputs, tail = entries.inputs(tails[group.state_slots], new)
        tails[group.state_slots] = tail
        entries.write(cache.plane(2, "pool"), inputs.sum(dim=1))
        found = entries.gather(cache.plane(2, "pool"))
        for place in range(group.sequences):
            seen = keys[group.kv_slots[place], 0, 0][: int(group.context[place]) + group.length]
            whole = len(seen) // self.stride
            sums = seen[: whole * self.stride].view(whole, self.stride).sum(dim=1)
            sums[1:] += sums[:-1].clone()
            wanted = torch.zeros(found.shape[1])
            wanted[:whole] = sums
            assert torch.equal(found[place, :, 0], wanted), "an entry is not what its tokens make"


ChainEngineMaker = Callable[..., Engine]


@pytest.fixture(scope="session")
def chain_engine() -> ChainEngineMaker:
    """An engine in debug mode around the decoder; `budget` is in tokens a step, `seats` in sequences at once.

    `snapshots` is how many states are kept for sequences with the same beginning, None for no reuse at all.
    """

    def make(
        num_pages: int,
        page_size: int,
        seats: int,
        budget: int,
        max_queue: int = 1000,
        snapshots: int | None = None,
        watermark: float = 0.0,
    ) -> Engine:
        stride = next(divisor for divisor in (2, 3, 5, 1) if page_size % divisor == 0)
        decoder = ChainDecoder(budget, stride)
        cpu = torch.device("cpu")
        storage = CacheStorage(decoder.profile.layers, num_pages, page_size, seats, torch.float32, torch.float32, cpu)
        storage.poison_pages(range(num_pages))
        for slot in range(seats):
            storage.poison_state(slot)
        pages, slots = PageAllocator(num_pages, page_size), SlotAllocator(seats)
        kept = None if snapshots is None else Snapshots(snapshots * storage.slot_bytes)
        cache = CacheManager(storage, pages, slots, debug=True, snapshots=kept)
        settings = EngineSettings(
            device="cpu",
            page_size=page_size,
            max_num_seqs=seats,
            max_num_batched_tokens=budget,
            max_queue=max_queue,
            watermark=watermark,
        )
        report, memory = LoadReport(0, 0, 0, (), 0.0), MemoryFigures(0, 0, 0, 0, num_pages)
        return Engine(decoder, None, settings, cache, num_pages * page_size, report, memory, cpu)

    return make


@pytest.fixture(scope="session")
def chain_continuation() -> Callable[..., list[int]]:
    return continuation
