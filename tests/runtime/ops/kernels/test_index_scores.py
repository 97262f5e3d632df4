import pytest
import torch

pytest.importorskip("triton")

from day0.runtime.ops import lightning_indexer as reference
from day0.runtime.ops.kernels import index_scores, select


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(select, "BLOCK_OF_FEW", 32)
    monkeypatch.setattr(index_scores, "BLOCK_ENTRIES", 16)
    monkeypatch.setattr(index_scores, "TOKENS", 4)


def draw(contexts, length, heads, dim, ratio=1, dtype=torch.float32):
    """Sequences whose keys lie scattered over a cache that is NaN elsewhere; small integers, so that scores tie."""
    make = torch.Generator().manual_seed(5)
    entries = [(context + length) // ratio for context in contexts]
    longest = max(entries)
    places = torch.randperm(2 * sum(entries) + 2, generator=make)
    cache = torch.full((len(places), dim), float("nan"), dtype=dtype)
    slots = torch.zeros(len(contexts), longest, dtype=torch.int64)
    for n, count in enumerate(entries):
        own, places = places[: max(count, 1)], places[max(count, 1) :]
        slots[n], slots[n, :count] = own[0], own[:count]
        cache[own] = torch.randint(-2, 3, (len(own), dim), generator=make).to(dtype)
    q = torch.randint(-2, 3, (len(contexts), length, heads, dim), generator=make).to(dtype)
    weights = torch.randint(-2, 3, (len(contexts), length, heads), generator=make).float()
    return q, weights, cache, slots, torch.tensor(contexts)


@pytest.mark.parametrize(
    ("contexts", "length", "heads", "dim", "top_k", "ratio", "keep_tail", "dtype"),
    [
        ([70], 1, 4, 16, 9, 1, False, torch.float32),
        ([0, 51, 100], 1, 3, 20, 32, 1, False, torch.float16),
        ([7, 40], 3, 2, 16, 5, 1, False, torch.float32),
        ([3, 61], 5, 5, 32, 4, 4, True, torch.float16),
        ([0], 1, 2, 16, 4, 4, True, torch.float32),
    ],
)
def test_as_the_reference(contexts, length, heads, dim, top_k, ratio, keep_tail, dtype):
    """Small integers are exact in any order of summation, so every tie is a tie in both."""
    drawn = draw(contexts, length, heads, dim, ratio, dtype)
    found = index_scores.lightning_indexer_topk(*drawn, top_k, 0.125, ratio, keep_tail)
    assert torch.equal(found, reference.lightning_indexer_topk(*drawn, top_k, 0.125, ratio, keep_tail))


def test_tokens_in_turn_choose_the_same(monkeypatch):
    drawn = draw([20, 33], 3, 2, 16)
    whole = index_scores.lightning_indexer_topk(*drawn, 6, 1.0)
    monkeypatch.setattr(index_scores, "SCORE_ELEMENTS", 2 * 36 * 2)
    assert torch.equal(index_scores.lightning_indexer_topk(*drawn, 6, 1.0), whole)


def test_scores():
    q, weights, cache, slots, context = draw([30], 3, 4, 24)
    q = (q + 0.37)[:, :, :, ::2].contiguous().expand(1, 3, 4, 12)
    scores, ready = index_scores.visible_scores(
        q, weights.mT.contiguous().mT, cache[:, :12], slots, context, 0.3, 1, slice(1, 3)
    )
    wanted = reference.index_scores(q, weights, cache[:, :12][slots], 0.3)
    assert ready.tolist() == [[32, 33]]
    torch.testing.assert_close(scores[0, 0, :32], wanted[0, 1, :32])
    torch.testing.assert_close(scores[0, 1], wanted[0, 2])
