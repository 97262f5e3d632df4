import numpy as np
import pytest
import torch

from day0.runtime.ops import latent_attention
from day0.runtime.ops.block_sparse import block_indexer_topk, block_sparse_attention
from day0.runtime.ops.paged_attention import paged_gqa_attention


def by_definition(q, keys, place, top_k, block, local):
    """One head of one token: blocks up to its own, the last `local` first, then (falling best product, number)."""
    products = keys[: place + 1] @ q
    scores = [products[start : start + block].max() for start in range(0, place + 1, block)]
    last = len(scores) - local
    ranked = sorted(range(len(scores)), key=lambda b: (b < last, -scores[b] if b < last else 0.0, b))
    return sorted(ranked[:top_k])


def scattered(rng, contexts, length, *widths):
    """Slots of two sequences, padded with each one's first as the runner does, and NaN in rows that nobody owns."""
    longest = max(contexts) + length
    rows = rng.permutation(2 * longest + 20)
    slots = np.zeros((2, longest), dtype=np.int64)
    cache = np.full((len(rows), *widths), np.nan)
    for n, context in enumerate(contexts):
        count = context + length
        slots[n, :count] = rows[longest * n : longest * n + count]
        slots[n, count:] = slots[n, 0]
        cache[slots[n, :count]] = rng.standard_normal((count, *widths))
    return slots, cache


@pytest.mark.parametrize("local", [0, 1, 2])
@pytest.mark.parametrize("top_k", [2, 3, 7, 100])
@pytest.mark.parametrize("block", [1, 4, 5])
def test_choice_is_by_definition(rng, block, top_k, local):
    contexts, length, heads = (0, 14), 6, 3
    slots, cache = scattered(rng, contexts, length, 5)
    q = rng.standard_normal((2, length, heads, 5))
    arguments = torch.tensor(q).float(), torch.tensor(cache).float(), torch.from_numpy(slots), torch.tensor(contexts)
    found = block_indexer_topk(*arguments, top_k, block, local)
    assert found.shape == (2, length, heads, min(top_k, -(-20 // block)))
    for n, row, head in np.ndindex(2, length, heads):
        wanted = by_definition(q[n, row, head], cache[slots[n]], contexts[n] + row, top_k, block, local)
        kept = found[n, row, head].tolist()
        assert kept == wanted + [-1] * (len(kept) - len(wanted))


def test_equal_scores_go_to_the_lowest_block():
    q, cache = torch.ones(1, 8, 1, 2), torch.ones(8, 2)
    found = block_indexer_topk(q, cache, torch.arange(8)[None], torch.tensor([0]), 2, 2, 1)
    assert found[0, :, 0].tolist() == [[0, -1], [0, -1], [0, 1], [0, 1], [0, 2], [0, 2], [0, 3], [0, 3]]


def test_a_token_behind_the_query_does_not_count():
    """The largest product of block 0 is with token 1, which token 0 does not see; without local blocks it tells."""
    cache = torch.tensor([[1.0], [9.0], [2.0], [3.0], [0.0], [0.0]])
    found = block_indexer_topk(torch.ones(1, 6, 1, 1), cache, torch.arange(6)[None], torch.tensor([0]), 1, 3, 0)
    assert found[0, :, 0, 0].tolist() == [0] * 6
    cache[1] = 0.0
    found = block_indexer_topk(torch.ones(1, 6, 1, 1), cache, torch.arange(6)[None], torch.tensor([0]), 1, 3, 0)
    assert found[0, :, 0, 0].tolist() == [0, 0, 0, 1, 1, 1]


def attention_inputs(rng, length=6, heads=8, kv_heads=4, dim=5):
    contexts = (0, 14)
    slots, k = scattered(rng, contexts, length, kv_heads, dim)
    v = np.where(np.isnan(k), np.nan, rng.standard_normal(k.shape))
    q = rng.standard_normal((2, length, heads, dim))
    tensors = [torch.tensor(t).float() for t in (q, k, v)]
    return *tensors, torch.from_numpy(slots), torch.tensor(contexts)


@pytest.mark.parametrize("index_heads", [1, 2, 4])
def test_each_head_reads_the_blocks_of_its_chooser(rng, index_heads):
    q, k, v, slots, context = attention_inputs(rng)
    block, groups = 4, 8 // index_heads
    ids = torch.full((2, 6, index_heads, 3), -1)
    for n, row, head in np.ndindex(2, 6, index_heads):
        own = int(context[n] + row) // block
        picked = sorted({own, *rng.permutation(own + 1)[:2].tolist()})
        ids[n, row, head, : len(picked)] = torch.tensor(picked)
    found = block_sparse_attention(q, k, v, slots, context, ids, 0.3, block)
    for n, row, head in np.ndindex(2, 6, 8):
        place = int(context[n]) + row
        chosen = [b for b in ids[n, row, head // groups].tolist() if b >= 0]
        seen = [t for t in range(place + 1) if t // block in chosen]
        rows = slots[n, seen]
        weights = torch.softmax(k[rows, head // 2].double() @ q[n, row, head].double() * 0.3, dim=0)
        wanted = weights @ v[rows, head // 2].double()
        torch.testing.assert_close(found[n, row, head].double(), wanted, rtol=1e-5, atol=1e-5)


def test_all_blocks_are_dense_attention_and_rows_may_be_done_in_turn(rng, monkeypatch):
    q, k, v, slots, context = attention_inputs(rng)
    ids = torch.arange(5).expand(2, 6, 4, 5)
    dense = paged_gqa_attention(q, k, v, slots, context, 0.3, None)
    whole = block_sparse_attention(q, k, v, slots, context, ids, 0.3, 4)
    torch.testing.assert_close(whole, dense, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(latent_attention, "BLOCK_ELEMENTS", 1)
    torch.testing.assert_close(block_sparse_attention(q, k, v, slots, context, ids, 0.3, 4), whole, rtol=0, atol=1e-6)
