import numpy as np
import pytest
import torch

from day0.runtime.ops import latent_attention as attention

LATENT, ROPE, HEADS = 6, 2, 3


class Group:
    """Sequences whose latents lie scattered over a cache that is NaN elsewhere."""

    def __init__(self, rng, contexts, length):
        totals = [context + length for context in contexts]
        rows = rng.permutation(2 * sum(totals))
        self.context, longest = torch.tensor(contexts), max(totals)
        slots, cache = np.zeros((len(contexts), longest), dtype=np.int64), np.full((len(rows), LATENT + ROPE), np.nan)
        self.rows = []
        for n, total in enumerate(totals):
            own, rows = rows[:total], rows[total:]
            slots[n, :total], slots[n, total:] = own, own[0]
            self.rows.append(rng.standard_normal((total, LATENT + ROPE)))
            cache[own] = self.rows[-1]
        self.slots, self.cache = torch.from_numpy(slots), torch.tensor(cache).float()
        self.q = rng.standard_normal((len(contexts), length, HEADS, LATENT + ROPE))

    def queries(self):
        return [torch.tensor(part).float() for part in np.split(self.q, [LATENT], axis=-1)]

    def attend(self, reads, scale, sinks=None):
        """Query by query in float64; `reads(n, place)` gives the places read by the token at `place`."""
        y = np.zeros((*self.q.shape[:3], LATENT))
        for n, row, head in np.ndindex(*self.q.shape[:3]):
            rows = self.rows[n][reads(n, int(self.context[n]) + row)]
            scores = np.exp(rows @ self.q[n, row, head] * scale)
            total = scores.sum() + (0.0 if sinks is None else np.exp(sinks[head]))
            y[n, row, head] = scores @ rows[:, :LATENT] / total
        return y


@pytest.mark.parametrize("sinks", [None, np.array([0.3, -1.0, 2.0])])
@pytest.mark.parametrize("window", [None, 1, 7, 100])
@pytest.mark.parametrize(("contexts", "length"), [([0], 1), ([5, 0, 20], 1), ([9], 14)])
def test_window(agrees, rng, contexts, length, window, sinks):
    group = Group(rng, contexts, length)
    first = (lambda place: 0) if window is None else (lambda place: max(0, place - window + 1))
    wanted = group.attend(lambda n, place: range(first(place), place + 1), 0.4, sinks)
    logits = None if sinks is None else torch.tensor(sinks).float()
    found = attention.window_mla_attention(
        *group.queries(), group.cache, group.slots, group.context, 0.4, window, logits
    )
    agrees("window_mla_attention", found, wanted)


@pytest.mark.parametrize("sinks", [None, np.array([0.3, -1.0, 2.0])])
@pytest.mark.parametrize(("contexts", "length"), [([0], 1), ([5, 0, 20], 1), ([9], 14)])
def test_sparse(agrees, rng, contexts, length, sinks):
    group = Group(rng, contexts, length)
    chosen = {}
    ids = np.full((len(contexts), length, 5), -1)
    for n, row in np.ndindex(len(contexts), length):
        place = contexts[n] + row
        own = chosen[n, place] = rng.permutation(place + 1)[:4]
        ids[n, row, : len(own)] = own
        ids[n, row] = ids[n, row][rng.permutation(5)]  # -1 may stand anywhere
    wanted = group.attend(lambda n, place: chosen[n, place], 0.4, sinks)
    logits = None if sinks is None else torch.tensor(sinks).float()
    found = attention.sparse_mla_attention(
        *group.queries(), group.cache, group.slots, torch.from_numpy(ids), 0.4, logits
    )
    agrees("sparse_mla_attention", found, wanted)


def test_all_tokens_chosen_is_dense(rng):
    group = Group(rng, [6], 9)
    visible = torch.arange(15) <= torch.arange(6, 15)[:, None]
    ids = torch.where(visible, torch.arange(15), -1)[None]
    sparse = attention.sparse_mla_attention(*group.queries(), group.cache, group.slots, ids, 0.4)
    dense = attention.paged_mla_attention(*group.queries(), group.cache, group.slots, group.context, 0.4)
    torch.testing.assert_close(sparse, dense, rtol=1e-6, atol=1e-6)


def test_rows_in_blocks_give_the_same(rng, monkeypatch):
    group = Group(rng, [6, 3], 9)
    ids = torch.arange(4).expand(2, 9, 4)
    arguments = *group.queries(), group.cache, group.slots
    whole = attention.sparse_mla_attention(*arguments, ids, 0.4)
    dense = attention.paged_mla_attention(*arguments, group.context, 0.4)
    monkeypatch.setattr(attention, "BLOCK_ELEMENTS", 100)
    torch.testing.assert_close(attention.sparse_mla_attention(*arguments, ids, 0.4), whole)
    torch.testing.assert_close(attention.paged_mla_attention(*arguments, group.context, 0.4), dense)


def test_row_blocks(monkeypatch):
    monkeypatch.setattr(attention, "BLOCK_ELEMENTS", 10)
    assert [(b.start, b.stop) for b in attention.row_blocks(7, 3)] == [(0, 3), (3, 6), (6, 7)]
    assert [(b.start, b.stop) for b in attention.row_blocks(2, 1000)] == [(0, 1), (1, 2)]


def test_a_choice_as_a_mask():
    mask = attention.chosen_keys(torch.tensor([[0, 3, -1], [-1, -1, 1]]), 4)
    assert mask.int().tolist() == [[1, 0, 0, 1], [0, 1, 0, 0]]
