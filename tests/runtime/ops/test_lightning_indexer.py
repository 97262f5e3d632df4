import numpy as np
import pytest
import torch

from day0.runtime.ops import latent_attention
from day0.runtime.ops.lightning_indexer import choose_entries, entry_tokens, index_scores, lightning_indexer_topk


def by_definition(q, weights, keys, context, top_k, ratio):
    """Token by token: scores of the finished entries, sorted by (falling score, rising number)."""
    length, chosen = q.shape[0], []
    for row in range(length):
        ready = (context + row + 1) // ratio
        scores = [float(weights[row] @ np.maximum(q[row] @ keys[s], 0.0)) for s in range(ready)]
        chosen.append(sorted(sorted(range(ready), key=lambda s: (-scores[s], s))[:top_k]))
    return chosen


def padded(rows, width):
    return [row + [-1] * (width - len(row)) for row in rows]


@pytest.mark.parametrize("ratio", [1, 4])
@pytest.mark.parametrize("top_k", [1, 7, 8, 9, 100])
def test_choice_is_by_definition(rng, top_k, ratio):
    contexts, length, heads, dim = (0, 21), 11, 3, 5
    entries = [(context + length) // ratio for context in contexts]
    rows = rng.permutation(80)
    slots = np.zeros((2, max(entries)), dtype=np.int64)
    cache = np.full((80, dim), np.nan)
    for n, count in enumerate(entries):
        slots[n, :count] = rows[40 * n : 40 * n + count]
        slots[n, count:] = slots[n, 0]  # as the runner pads; what is there must not be chosen twice
        cache[slots[n, :count]] = rng.standard_normal((count, dim))
    q, weights = rng.standard_normal((2, length, heads, dim)), rng.standard_normal((2, length, heads))
    tensors = [torch.tensor(t).float() for t in (q, weights, cache)]
    found = lightning_indexer_topk(*tensors, torch.from_numpy(slots), torch.tensor(contexts), top_k, 0.3, ratio)
    width = min(top_k, max(entries))
    for n in range(2):
        wanted = by_definition(q[n], weights[n], cache[slots[n]], contexts[n], top_k, ratio)
        assert found[n].tolist() == padded(wanted, width)


def test_equal_scores_go_to_the_lowest_number():
    # relu makes exact zeros: every entry but one is as good as the others.
    q = torch.ones(1, 6, 2, 3)
    weights = torch.ones(1, 6, 2)
    keys = -torch.ones(6, 3)
    keys[4] = 1.0
    slots, context = torch.arange(6)[None], torch.tensor([0])
    found = lightning_indexer_topk(q, weights, keys, slots, context, 3, 1.0)
    assert found[0].tolist() == [[0, -1, -1], [0, 1, -1], [0, 1, 2], [0, 1, 2], [0, 1, 4], [0, 1, 4]]


@pytest.mark.parametrize("seed", range(5))
def test_ties_at_the_edge_of_the_choice(seed):
    scores = torch.randint(-2, 3, (40, 30), generator=torch.Generator().manual_seed(seed)).float()
    ready = torch.arange(40).clamp(max=30)
    found = choose_entries(scores, ready, 9)
    for row, count in enumerate(ready.tolist()):
        best = sorted(range(count), key=lambda s: (-float(scores[row, s]), s))[:9]
        assert found[row].tolist() == padded([sorted(best)], 9)[0]


def test_a_negative_zero_is_a_zero():
    found = choose_entries(torch.tensor([[-0.0, 0.0, -0.0]]), torch.tensor([3]), 2)
    assert found.tolist() == [[0, 1]]


def test_nothing_to_choose_from():
    found = choose_entries(torch.empty(2, 0), torch.tensor([0, 0]), 4)
    assert found.shape == (2, 0)


def test_the_unfinished_entry_is_named_last():
    q, weights, cache = torch.ones(1, 5, 1, 2), torch.ones(1, 5, 1), torch.ones(3, 2)
    slots, context = torch.arange(3)[None], torch.tensor([3])
    found = lightning_indexer_topk(q, weights, cache, slots, context, 2, 1.0, ratio=3, keep_tail=True)
    # Tokens 3 .. 7: entries of three tokens, finished with tokens 2, 5 and 8.
    assert found[0].tolist() == [[0, -1, 1], [0, -1, 1], [0, 1, -1], [0, 1, 2], [0, 1, 2]]
    tokens = entry_tokens(found, 3, context)[0]
    read = [[t for t in row if t >= 0] for row in tokens.tolist()]
    assert read == [list(range(end)) for end in (4, 5, 6, 7, 8)]


def test_scores_in_blocks_of_rows(rng, monkeypatch):
    q, weights, keys = (torch.randn(*shape) for shape in ((2, 9, 3, 4), (2, 9, 3), (40, 4)))
    slots, context = torch.arange(40).view(2, 20), torch.tensor([11, 2])
    whole = lightning_indexer_topk(q, weights, keys, slots, context, 5, 1.0)
    seen = []
    # Three rows of 2 sequences x 3 heads x 20 entries.
    monkeypatch.setattr(latent_attention, "BLOCK_ELEMENTS", 3 * 120 + 5)
    monkeypatch.setattr("day0.runtime.ops.lightning_indexer.index_scores", lambda *a: note(seen, index_scores(*a)))
    assert torch.equal(lightning_indexer_topk(q, weights, keys, slots, context, 5, 1.0), whole)
    assert seen == [3, 3, 3]


def note(seen, scores):
    seen.append(scores.shape[1])
    return scores
