import numpy as np
import pytest
import torch

from day0.runtime.ops import latent_attention
from day0.runtime.ops import shared_kv_attention as attention

HEADS, DIM, SCALE = 3, 5, 0.4
SINKS = np.array([0.3, -1.0, 2.0])


class Group:
    """Sequences whose vectors and entries lie scattered over two caches that are NaN elsewhere."""

    def __init__(self, rng, contexts, length, ratio):
        self.contexts, self.context, self.length, self.ratio = contexts, torch.tensor(contexts), length, ratio
        totals = [context + length for context in contexts]
        self.rows, self.window_cache, self.slots = self._scatter(rng, totals)
        self.entries, self.compressed_cache, self.entry_slots = self._scatter(rng, [t // ratio for t in totals])
        self.q = rng.standard_normal((len(contexts), length, HEADS, DIM))

    @staticmethod
    def _scatter(rng, counts):
        free = rng.permutation(2 * sum(counts) + 1)
        cache, slots = np.full((len(free), DIM), np.nan), np.full((len(counts), max(counts)), free[-1])
        rows = []
        for n, count in enumerate(counts):
            own, free = free[:count], free[count:]
            slots[n, :count] = own
            rows.append(rng.standard_normal((count, DIM)))
            cache[own] = rows[-1]
        return rows, torch.tensor(cache).float(), torch.from_numpy(slots)

    def expected(self, window, chosen):
        """Query by query in float64; `chosen(n, place)` names the entries that the token at `place` reads."""
        y = np.zeros(self.q.shape)
        for n, row, head in np.ndindex(*self.q.shape[:3]):
            place = self.contexts[n] + row
            read = [
                *self.rows[n][max(0, place - window + 1) : place + 1],
                *(self.entries[n][e] for e in chosen(n, place)),
            ]
            keys = np.stack(read)
            scores = np.exp(keys @ self.q[n, row, head] * SCALE)
            y[n, row, head] = scores @ keys / (scores.sum() + np.exp(SINKS[head]))
        return y

    def caches(self):
        q, sinks = torch.tensor(self.q).float(), torch.tensor(SINKS).float()
        return q, self.window_cache, self.compressed_cache, sinks


CASES = [([0], 1), ([0], 13), ([6, 0, 21], 1), ([9, 2], 7)]


@pytest.mark.parametrize("window", [1, 4, 100])
@pytest.mark.parametrize(("contexts", "length"), CASES)
def test_window_alone(agrees, rng, contexts, length, window):
    group = Group(rng, contexts, length, 4)
    q, cache, _, sinks = group.caches()
    found = attention.shared_kv_attention(q, cache, sinks, group.slots, group.context, SCALE, window)
    agrees("shared_kv_attention", found, group.expected(window, lambda n, place: []))


@pytest.mark.parametrize("ratio", [2, 4, 9])
@pytest.mark.parametrize(("contexts", "length"), CASES)
def test_all_finished_entries(agrees, rng, contexts, length, ratio):
    group = Group(rng, contexts, length, ratio)
    q, cache, compressed, sinks = group.caches()
    places = group.slots, group.entry_slots, group.context
    found = attention.hca_attention(q, cache, compressed, sinks, *places, SCALE, 3, ratio)
    agrees("hca_attention", found, group.expected(3, lambda n, place: range((place + 1) // ratio)))


@pytest.mark.parametrize("limit", [None, 50])
@pytest.mark.parametrize(("contexts", "length"), CASES)
def test_chosen_entries(agrees, rng, contexts, length, limit, monkeypatch):
    if limit is not None:  # rows in blocks
        monkeypatch.setattr(latent_attention, "BLOCK_ELEMENTS", limit)
    group = Group(rng, contexts, length, 2)
    chosen, ids = {}, np.full((len(contexts), length, 4), -1)
    for n, row in np.ndindex(len(contexts), length):
        place = contexts[n] + row
        own = chosen[n, place] = rng.permutation((place + 1) // 2)[:3]
        ids[n, row, : len(own)] = own
    q, cache, compressed, sinks = group.caches()
    places = group.slots, group.entry_slots, group.context
    found = attention.csa_attention(q, cache, compressed, torch.from_numpy(ids), sinks, *places, SCALE, 3)
    agrees("csa_attention", found, group.expected(3, lambda n, place: chosen[n, place]))
