"""Weights on ranks, counted a second time piece by piece: which rank holds which slice of which tensor."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.plan.layout import Layout
from day0.plan.weights import CUT_KINDS, Cuts, WeightRow, WeightTable, weight_table
from day0.profile.profile import ArchitectureProfile
from day0.profile.tensors import TensorSpec, expected_tensors

Profiles = dict[str, ArchitectureProfile]
Piece = tuple[str, int, int]
"""Tensor path, expert, slice."""


def cuts_of(layout: Layout) -> Cuts:
    return Cuts(layout.attention_tp, layout.tp, layout.tp, layout.tp, layout.ep, layout.expert_tp)


def pieces_of_rank(spec: TensorSpec, layout: Layout, rank: int) -> dict[Piece, Fraction]:
    """What a rank of a stage holds of one tensor, by who it is: its place in attention, dense and expert groups."""
    whole = Fraction(spec.nbytes, spec.count)
    kind = CUT_KINDS.get(spec.group)
    if spec.experts:
        place = rank % (layout.ep * layout.expert_tp)
        lot, slice_ = divmod(place, layout.expert_tp)
        each = spec.experts // layout.ep
        return {(spec.path, expert, slice_): whole / layout.expert_tp for expert in range(lot * each, (lot + 1) * each)}
    if spec.shard_axis is None or kind is None:
        return {(spec.path, 0, 0): whole}
    cut = layout.attention_tp if kind == "attention" else layout.tp
    pieces = min(cut, spec.shard_units)
    return {(spec.path, 0, rank % cut * pieces // cut): whole / pieces}


def legal_layouts() -> st.SearchStrategy[Layout]:
    """Layouts whose cuts divide the sizes of the small profiles (12 experts of 4 slices, 12 heads, 2 to 4 kv heads)."""
    shapes = [
        Layout(tp, pp, ep, dp, 1, attention, expert)
        for attention in (1, 2, 4)
        for dp in (1, 2, 3)
        for tp in {attention, attention * dp}
        for ep in (1, 2, 3, 4, 6, 12)
        for expert in (1, 2, 4)
        for pp in (1, 2, 3, 4)
        if attention * dp % (ep * expert) == 0
    ]
    return st.sampled_from(shapes)


def divides(profile: ArchitectureProfile, layout: Layout) -> bool:
    for spec in expected_tensors(profile):
        if spec.shard_axis is None:
            continue
        kind = CUT_KINDS[spec.group]
        cut = {"attention": layout.attention_tp, "experts": layout.expert_tp}.get(kind, layout.tp)
        if spec.shard_units % cut and cut % spec.shard_units:
            return False
        if kind in ("dense", "experts") and spec.shard_units % cut:
            return False
    return True


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(["llama", "moe", "kimi_k3"]), layout=legal_layouts())
def test_ranks_hold_every_piece_and_copies_are_those_declared(small: Profiles, name: str, layout: Layout) -> None:
    profile = small[name]
    if not divides(profile, layout):
        return
    table = weight_table(profile)
    stages = [range(1), range(1, profile.num_layers)] if layout.pp > 1 else [range(profile.num_layers)]
    for number, layers in enumerate(stages):
        is_first, is_last = number == 0, number == len(stages) - 1
        planned = table.stage(
            layers, cuts_of(layout), table.layer_weights(cuts_of(layout)), is_first=is_first, is_last=is_last
        )
        specs = [
            spec
            for spec in expected_tensors(profile)
            if (
                spec.layer in layers
                if spec.layer is not None
                else is_first
                if spec.group in ("embed", "vision")
                else is_last
            )
        ]
        if profile.tie_word_embeddings and is_last and not is_first:
            specs += [spec for spec in expected_tensors(profile) if spec.group == "embed"]
        holders: Counter[Piece] = Counter()
        for rank in range(layout.stage_ranks):
            held: dict[Piece, Fraction] = {}
            for spec in specs:
                held |= pieces_of_rank(spec, layout, rank)
            assert sum(held.values()) == planned.total
            holders.update(held.keys())
        for spec in specs:
            every = {piece for rank in range(layout.stage_ranks) for piece in pieces_of_rank(spec, layout, rank)}
            sizes = {
                piece: size
                for r in range(layout.stage_ranks)
                for piece, size in pieces_of_rank(spec, layout, r).items()
            }
            assert sum(sizes.values()) == spec.nbytes, "all pieces together are the tensor"
            assert len({holders[piece] for piece in every}) == 1, "every piece has as many copies as the next"


def test_one_rank_holds_what_is_stored(profiles: Profiles) -> None:
    for name, profile in profiles.items():
        table = weight_table(profile)
        stored = sum(spec.nbytes for spec in expected_tensors(profile))
        assert table.nbytes == stored, name
        assert (
            table.stage(
                range(profile.num_layers), Cuts(), table.layer_weights(Cuts()), is_first=True, is_last=True
            ).total
            == stored
        )


def test_kimi_k3_is_as_large_as_its_published_index_says(kimi_k3: ArchitectureProfile) -> None:
    assert weight_table(kimi_k3).nbytes == 1_560_860_324_864


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "kimi-k3"]),
    small_tp=st.sampled_from([1, 2, 4]),
    factor=st.sampled_from([2, 4]),
    as_experts=st.booleans(),
)
def test_a_wider_cut_never_needs_more_bytes_each(
    profiles: Profiles, name: str, small_tp: int, factor: int, as_experts: bool
) -> None:
    table = TABLES.setdefault(name, weight_table(profiles[name]))
    layers = range(profiles[name].num_layers)

    def bytes_at(tp: int) -> int:
        cuts = Cuts(tp, tp, tp, tp, tp, 1) if as_experts else Cuts(tp, tp, tp, tp, 1, tp)
        return table.stage(layers, cuts, table.layer_weights(cuts), is_first=True, is_last=True).total

    assert bytes_at(small_tp * factor) <= bytes_at(small_tp)
    assert bytes_at(small_tp * factor) * small_tp * factor >= table.nbytes


TABLES: dict[str, WeightTable] = {}


@pytest.mark.parametrize(
    ("row", "cuts", "held", "copies"),
    [
        (WeightRow("attention", 8, 0, 800), Cuts(attention=4), 200, Fraction(1)),
        (WeightRow("attention", 2, 0, 800), Cuts(attention=4), 400, Fraction(2)),
        (WeightRow(None, 1, 0, 800), Cuts(attention=4), 800, Fraction(4)),
        (WeightRow("experts", 4, 8, 3200), Cuts(ep=2, expert_tp=2), 800, Fraction(1)),
        (WeightRow("embed", 100, 0, 100), Cuts(embed=4), 32, Fraction(128, 100)),
        (WeightRow("embed", 100, 0, 100), Cuts(), 100, Fraction(4)),
    ],
)
def test_rows_are_cut_copied_and_padded(row: WeightRow, cuts: Cuts, held: int, copies: Fraction) -> None:
    assert row.on_rank(cuts) == held
    assert row.copies(cuts, 4) == copies


def test_a_tied_table_is_stored_once_and_copied_to_the_last_stage(small: Profiles) -> None:
    profile = small["llama"]
    assert profile.tie_word_embeddings
    table = weight_table(profile)
    first = table.stage(range(2), Cuts(), table.layer_weights(Cuts()), is_first=True, is_last=False)
    last = table.stage(range(2, 5), Cuts(), table.layer_weights(Cuts()), is_first=False, is_last=True)
    embed = 640 * 96 * 2
    assert first.total + last.total == table.nbytes + embed
    assert first.embed == embed
