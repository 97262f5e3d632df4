"""Ranks' shares of stored tensors put together are the tensors, at the full sizes of published models."""

from __future__ import annotations

from collections import defaultdict

import pytest

from day0.errors import InputError
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.runtime.parallel.layout import Layout, Place, even_share
from day0.runtime.parallel.local_specs import local_layers, stage_layers
from day0.runtime.parallel.shares import LocalTensor, local_tensors
from day0.source.resolve import resolve

LAYOUTS = {
    "llama-3.1-8b": Layout(tp=8),
    "deepseek-v4-pro": Layout(tp=8, ep=8),
    "gpt-oss-120b": Layout(tp=8, ep=4),
    "kimi-k3": Layout(tp=8, ep=8),
    "qwen3-next-80b-a3b": Layout(tp=2, ep=2),
}


def profile_of(name: str) -> ArchitectureProfile:
    return read_profile(resolve(f"recipe:{name}"))


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_entry_is_somewhere(name: str) -> None:
    """Along the axis that is cut every stored entry is some rank's, and every expert is."""
    profile, layout = profile_of(name), LAYOUTS[name]
    shares: dict[str, list[LocalTensor]] = defaultdict(list)
    for rank in range(layout.ranks):
        for tensor in local_tensors(profile, layout, layout.place(rank)):
            shares[tensor.spec.name].append(tensor)
    cut = 0
    for name_, tensors in shares.items():
        share = tensors[0].share
        if share.pieces is not None:
            held = {entry for one in tensors for piece in one.share.pieces or () for entry in piece}
            assert held == set(range(share.length)), name_
            cut += 1
        if share.experts is not None:
            assert {expert for one in tensors for expert in one.share.experts or ()} == set(
                range(tensors[0].spec.experts)
            )
        assert sum(one.share.counts for one in tensors) in (1, layout.ep, len(tensors)), name_  # once in each lot
    assert cut > profile.num_layers


def test_a_local_tensor_has_the_shape_of_its_pieces() -> None:
    layout = Layout(tp=4)
    for tensor in local_tensors(profile_of("llama-3.1-8b"), layout, layout.place(3)):
        share = tensor.share
        if share.pieces is not None:
            assert tensor.spec.shape[share.axis] == sum(map(len, share.pieces)) == share.length // 4


def test_places_count_slices_first_then_replicas_then_stages() -> None:
    layout = Layout(tp=2, ep=2, pp=2, dp=2)
    assert layout.ranks == 8 and layout.expert_tp == 2
    assert layout.place(0) == Place()
    assert layout.place(7) == Place(rank=7, stage=1, replica=1, slice=1, lot=1, expert_slice=1)
    assert [len(even_share(5, 3, rank)) for rank in range(3)] == [1, 2, 2]
    assert [list(even_share(1, 2, rank)) for rank in range(2)] == [[], [0]]


def test_stages_are_even_and_parted_where_nothing_reads_back() -> None:
    assert [len(own) for own in stage_layers(profile_of("llama-3.1-8b"), Layout(pp=4))] == [8] * 4
    sparse = profile_of("glm-5.2")
    for own in stage_layers(sparse, Layout(pp=2)):
        first = sparse.layers[own.start].mixer
        assert getattr(first, "indexer", None) is not None  # those after it may read its choice
    with pytest.raises(InputError, match="pipeline: 32 layers cannot be parted into 33 stages"):
        stage_layers(profile_of("llama-3.1-8b"), Layout(pp=33))


@pytest.mark.parametrize(
    ("name", "layout", "said"),
    [
        ("llama-3.1-8b", Layout(tp=5), "gqa-heads: 32 gqa heads do not divide by 5 ranks"),
        ("kimi-k3", Layout(tp=7), "heads do not divide by 7 ranks"),
        ("llama-3.1-8b", Layout(tp=2, ep=2), "the model has no routed experts"),
    ],
)
def test_what_cannot_be_cut_is_refused_with_its_numbers(name: str, layout: Layout, said: str) -> None:
    with pytest.raises(InputError, match=said):
        local_layers(profile_of(name), layout)
