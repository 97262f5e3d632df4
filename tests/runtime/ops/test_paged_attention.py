from itertools import pairwise

import numpy as np
import pytest
import torch

from day0.runtime.ops import latent_attention
from day0.runtime.ops import paged_attention as attention

KERNELS = [attention.paged_gqa_attention, attention.paged_gqa_attention_sdpa]


def softmax(x):
    shifted = np.exp(x - x.max())
    return shifted / shifted.sum()


class Paged:
    """A cache whose rows are scattered, with sequences of several lengths and NaN wherever no sequence lies."""

    def __init__(self, rng, contexts, length, shape):
        totals = [context + length for context in contexts]
        rows = rng.permutation(2 * sum(totals))
        starts = np.cumsum([0, *totals])
        self.slots = [rows[a:b] for a, b in pairwise(starts)]
        self.context = torch.tensor(contexts)
        self.cache = np.full((2 * sum(totals), *shape), np.nan)
        self.rows = [rng.standard_normal((total, *shape)) for total in totals]
        self.write(self.rows)
        longest = max(totals)
        # A shorter sequence repeats its first slot, as the runner pads it.
        self.table = torch.tensor(np.array([[*s, *[s[0]] * (longest - len(s))] for s in self.slots]))

    def write(self, rows):
        for slots, values in zip(self.slots, rows, strict=True):
            self.cache[slots] = values

    def like(self, rng):
        """Another plane with the same places."""
        other = np.full_like(self.cache, np.nan)
        rows = [rng.standard_normal(r.shape) for r in self.rows]
        for slots, values in zip(self.slots, rows, strict=True):
            other[slots] = values
        return other, rows


def attend(q, k, v, context, scale, window):
    """One sequence, query by query and head by head: q [length, heads, dim], k and v [total, kv_heads, dim]."""
    length, heads, _ = q.shape
    y = np.zeros((length, heads, v.shape[-1]))
    for t in range(length):
        last = context + t
        first = 0 if window is None else max(0, last - window + 1)
        for h in range(heads):
            kv = h // (heads // k.shape[1])
            y[t, h] = softmax(k[first : last + 1, kv] @ q[t, h] * scale) @ v[first : last + 1, kv]
    return y


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("window", [None, 1, 8, 1000])
@pytest.mark.parametrize(
    ("contexts", "length", "heads", "kv_heads"),
    [([0], 1, 1, 1), ([5, 0, 62], 1, 4, 2), ([0], 63, 6, 3), ([37], 26, 4, 1), ([99], 1, 5, 5)],
)
def test_grouped_query(agrees, rng, kernel, contexts, length, heads, kv_heads, window):
    k = Paged(rng, contexts, length, (kv_heads, 15))
    v, v_rows = k.like(rng)
    q = 2 * rng.standard_normal((len(contexts), length, heads, 15))
    wanted = np.stack([attend(q[n], k.rows[n], v_rows[n], contexts[n], 0.3, window) for n in range(len(contexts))])
    tensors = [torch.tensor(t).float() for t in (q, k.cache, v)]
    agrees("paged_gqa_attention", kernel(*tensors, k.table, k.context, 0.3, window), wanted)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_a_narrower_cache_is_widened(rng, kernel):
    k = Paged(rng, [3], 4, (2, 8))
    v, _ = k.like(rng)
    narrow = [torch.tensor(t).bfloat16() for t in (k.cache, v)]
    q = torch.randn(1, 4, 4, 8)
    found = kernel(q, *narrow, k.table, k.context, 0.3, None)
    assert found.dtype == torch.float32
    assert torch.allclose(found, kernel(q, *(t.float() for t in narrow), k.table, k.context, 0.3, None), atol=1e-6)


@pytest.mark.parametrize("heads", [1, 6])
@pytest.mark.parametrize(("contexts", "length"), [([0], 1), ([5, 0, 62], 1), ([0], 63), ([37], 26)])
def test_latent(agrees, rng, contexts, length, heads):
    cache = Paged(rng, contexts, length, (12 + 4,))
    q_latent, q_rope = (rng.standard_normal((len(contexts), length, heads, size)) for size in (12, 4))
    wanted = []
    for n, rows in enumerate(cache.rows):
        keys = rows[:, None]  # one key for all heads
        q = np.concatenate((q_latent[n], q_rope[n]), axis=-1)
        wanted.append(attend(q, keys, keys[..., :12], contexts[n], 0.25, None))
    tensors = [torch.tensor(t).float() for t in (q_latent, q_rope, cache.cache)]
    found = latent_attention.paged_mla_attention(*tensors, cache.table, cache.context, 0.25)
    agrees("paged_mla_attention", found, np.stack(wanted))


@pytest.mark.parametrize("chunked", [False, True])
def test_what_a_window_hides_is_not_read(rng, chunked):
    """Slots outside of every window may name memory that nobody wrote."""
    k = Paged(rng, [62, 5, 0], 3, (2, 8))
    table, first = attention.within_reach(k.table, k.context, 3, 9, chunked)
    assert table.shape == (3, 9 + 3 - 1)
    assert first.tolist() == [54, 0, 0]  # 62 - 9 + 1, and the multiple of 9 below 62
    q = torch.tensor(rng.standard_normal((3, 3, 4, 8))).float()
    whole = attention.paged_gqa_attention_variant(
        q, *(torch.tensor(k.cache).float(),) * 2, k.table, k.context, 0.3, 9, chunked, torch.zeros(4), 5.0
    )
    hidden = k.cache.copy()
    hidden[k.slots[0][:54]] = np.nan
    spared = attention.paged_gqa_attention_variant(
        q, *(torch.tensor(hidden).float(),) * 2, k.table, k.context, 0.3, 9, chunked, torch.zeros(4), 5.0
    )
    assert torch.isfinite(whole).all()
    assert torch.equal(whole, spared)


def test_visible_keys():
    visible = attention.visible_keys(torch.tensor([2, 0]), 2, 4, None)
    assert visible.int().tolist() == [[[1, 1, 1, 0], [1, 1, 1, 1]], [[1, 0, 0, 0], [1, 1, 0, 0]]]
    windowed = attention.visible_keys(torch.tensor([2]), 2, 4, 2)
    assert windowed.int().tolist() == [[[0, 1, 1, 0], [0, 0, 1, 1]]]
    chunked = attention.visible_keys(torch.tensor([3]), 2, 5, 2, chunked=True)
    assert chunked.int().tolist() == [[[0, 0, 1, 1, 0], [0, 0, 0, 0, 1]]]
    later = attention.visible_keys(torch.tensor([5]), 1, 3, 2, first=torch.tensor([4]))
    assert later.int().tolist() == [[[1, 1, 0]]]


def test_large_scores_do_not_overflow(rng):
    k = Paged(rng, [0], 7, (1, 4))
    q = 1e4 * torch.randn(1, 7, 1, 4)
    tensors = [torch.tensor(t).float() for t in (k.cache, k.cache)]
    for kernel in KERNELS:
        assert torch.isfinite(kernel(q, *tensors, k.table, k.context, 1.0, None)).all()
