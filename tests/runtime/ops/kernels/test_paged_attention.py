import pytest
import torch

pytest.importorskip("triton")

from day0.runtime.ops import paged_attention as reference
from day0.runtime.ops.kernels import paged_attention

CASES = pytest.mark.parametrize(
    ("contexts", "length", "heads", "kv_heads", "dim", "value"),
    [([0], 1, 1, 1, 16, 16), ([70, 5], 1, 6, 2, 24, 40), ([33], 11, 4, 2, 16, 16)],
)


def draw(contexts, length, heads, kv_heads, dim, value):
    """Sequences scattered over caches that are NaN elsewhere, keys and values being parts of one allocation."""
    make = torch.Generator().manual_seed(7)
    totals = [context + length for context in contexts]
    places = torch.randperm(2 * sum(totals), generator=make)
    both = torch.full((len(places), kv_heads, dim + value), float("nan"))
    slots = torch.zeros(len(contexts), max(totals), dtype=torch.int64)
    for n, total in enumerate(totals):
        own, places = places[:total], places[total:]
        slots[n], slots[n, :total] = own[0], own
        both[own] = torch.randn(total, kv_heads, dim + value, generator=make)
        both[own[:: max(1, total // 3)]] *= 6.0
    q = torch.randn(len(contexts), length, heads, dim, generator=make)
    return q, *both.split((dim, value), dim=-1), slots, torch.tensor(contexts)


def agree(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@CASES
@pytest.mark.parametrize("window", [None, 1, 19])
def test_windows(contexts, length, heads, kv_heads, dim, value, window):
    drawn = draw(contexts, length, heads, kv_heads, dim, value)
    found = paged_attention.paged_gqa_attention(*drawn, 0.3, window)
    agree(found, reference.paged_gqa_attention(*drawn, 0.3, window))


@CASES
@pytest.mark.parametrize("options", [{"chunked": True}, {"softcap": 3.0}, {"chunked": True, "softcap": 1e-3}])
def test_variants(contexts, length, heads, kv_heads, dim, value, options):
    drawn = draw(contexts, length, heads, kv_heads, dim, value)
    options |= {"sinks": torch.linspace(-3.0, 9.0, heads)}
    found = paged_attention.paged_gqa_attention_variant(*drawn, 0.3, 8, **options)
    agree(found, reference.paged_gqa_attention_variant(*drawn, 0.3, 8, **options))


def test_several_blocks_of_rows():
    """A window of 8 over 19 new tokens: rows of one block reach further back than those of the next."""
    drawn = draw([40], 19, 4, 2, 16, 16)
    for chunked in (False, True):
        found = paged_attention.paged_gqa_attention_variant(*drawn, 0.3, 8, chunked)
        agree(found, reference.paged_gqa_attention_variant(*drawn, 0.3, 8, chunked))


def test_half_precision():
    q, k_cache, v_cache, slots, context = draw([40], 2, 4, 2, 32, 16)
    halves = [x.half() for x in (q, k_cache, v_cache)]
    found = paged_attention.paged_gqa_attention(*halves, slots, context, 0.3, None)
    wanted = reference.paged_gqa_attention(*(x.float() for x in halves), slots, context, 0.3, None)
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.float(), wanted, rtol=6e-3, atol=6e-3)
