import pytest
import torch

pytest.importorskip("triton")

from day0.runtime.ops import latent_attention as reference
from day0.runtime.ops.kernels import latent_attention, split_attention

CASES = pytest.mark.parametrize(
    ("contexts", "length", "heads", "latent", "rope"),
    [([0], 1, 3, 16, 8), ([70, 5], 1, 20, 24, 16), ([33], 5, 2, 16, 4)],
)


def draw(contexts, length, heads, latent, rope):
    """Sequences whose latents lie scattered over a cache that is NaN elsewhere; a few logits tower over the others."""
    make = torch.Generator().manual_seed(11)
    totals = [context + length for context in contexts]
    places = torch.randperm(2 * sum(totals), generator=make)
    cache = torch.full((len(places), latent + rope), float("nan"))
    slots = torch.zeros(len(contexts), max(totals), dtype=torch.int64)
    for n, total in enumerate(totals):
        own, places = places[:total], places[total:]
        slots[n], slots[n, :total] = own[0], own
        cache[own] = torch.randn(total, latent + rope, generator=make)
        cache[own[:: max(1, total // 3)]] *= 6.0
    q = torch.randn(len(contexts), length, heads, latent + rope, generator=make)
    return (*q.split((latent, rope), dim=-1), cache, slots), torch.tensor(contexts)


def agree(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@CASES
def test_dense(contexts, length, heads, latent, rope):
    arguments, context = draw(contexts, length, heads, latent, rope)
    found = latent_attention.paged_mla_attention(*arguments, context, 0.3)
    agree(found, reference.paged_mla_attention(*arguments, context, 0.3))


@CASES
@pytest.mark.parametrize("window", [None, 1, 19])
def test_window_and_sinks(contexts, length, heads, latent, rope, window):
    arguments, context = draw(contexts, length, heads, latent, rope)
    sinks = torch.linspace(-3.0, 9.0, heads)
    found = latent_attention.window_mla_attention(*arguments, context, 0.3, window, sinks)
    agree(found, reference.window_mla_attention(*arguments, context, 0.3, window, sinks))


@CASES
@pytest.mark.parametrize("chosen", [1, 37])
def test_sparse(contexts, length, heads, latent, rope, chosen):
    """What is chosen stands anywhere between places that are empty, whole blocks of them empty too."""
    arguments, _ = draw(contexts, length, heads, latent, rope)
    make = torch.Generator().manual_seed(2)
    ids = torch.full((len(contexts), length, chosen), -1)
    for n, t in ((n, t) for n in range(len(contexts)) for t in range(length)):
        visible = torch.randperm(contexts[n] + t + 1, generator=make)[: (chosen + 1) // 2]
        ids[n, t, torch.randperm(chosen, generator=make)[: len(visible)]] = visible
    for sinks in (None, torch.linspace(-3.0, 9.0, heads)):
        found = latent_attention.sparse_mla_attention(*arguments, ids, 0.3, sinks)
        agree(found, reference.sparse_mla_attention(*arguments, ids, 0.3, sinks))


def test_parts_are_joined_to_the_whole(monkeypatch):
    """However the past is cut; the sum of a part without a key counts for nothing."""
    arguments, context = draw([90, 0], 1, 4, 16, 8)
    wanted = reference.paged_mla_attention(*arguments, context, 0.3)
    for programs in (1, 8):
        monkeypatch.setattr(latent_attention, "PROGRAMS", programs)
        agree(latent_attention.paged_mla_attention(*arguments, context, 0.3), wanted)


def test_half_precision():
    (q_latent, q_rope, cache, slots), context = draw([40], 2, 4, 32, 16)
    halves = [x.half() for x in (q_latent, q_rope, cache)]
    found = latent_attention.paged_mla_attention(*halves, slots, context, 0.3)
    wanted = reference.paged_mla_attention(*(x.float() for x in halves), slots, context, 0.3)
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.float(), wanted, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(("programs", "keys", "splits"), [(1, 1, 1), (1, 10_000, 128), (200, 10_000, 2), (1000, 64, 1)])
def test_num_splits(programs, keys, splits):
    assert split_attention.num_splits(programs, keys, 64, 264) == splits
