"""What must hold for any model and layout: random sizes, every engine, layouts that obey its rules."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from day0.plan.accounting import ACCOUNTINGS, accounting_for
from day0.plan.cluster import parse_cluster
from day0.plan.layout import Layout
from day0.plan.plan import Planner
from day0.plan.plan_changes import changes
from day0.plan.plan_file import read_plan, write_plan
from day0.plan.workload import make_workload
from day0.profile.profile import ArchitectureProfile

from .conftest import SMALL_LLAMA, SMALL_MOE, profile_of

CONTEXT = 512


@st.composite
def profiles_of_any_size(draw: st.DrawFn) -> ArchitectureProfile:
    """Dense and routed models whose heads, widths, experts and vocabulary need not divide by anything."""
    kv_heads = draw(st.sampled_from([1, 2, 4, 6, 8]))
    config: dict[str, Any] = dict(draw(st.sampled_from([SMALL_LLAMA, SMALL_MOE])))
    config |= {
        "hidden_size": 16 * draw(st.integers(2, 12)),
        "vocab_size": draw(st.integers(65, 2000)),
        "num_hidden_layers": draw(st.integers(1, 9)),
        "num_key_value_heads": kv_heads,
        "num_attention_heads": kv_heads * draw(st.sampled_from([1, 2, 4])),
        "head_dim": draw(st.sampled_from([8, 16])),
        "intermediate_size": 8 * draw(st.integers(1, 40)),
        "tie_word_embeddings": draw(st.booleans()),
    }
    if "num_experts" in config:
        config |= {
            "num_experts": draw(st.sampled_from([4, 12, 16])),
            "moe_intermediate_size": 8 * draw(st.integers(1, 12)),
        }
    return profile_of(config)


def made_planner(profile: ArchitectureProfile, engine: str, gpus: int, concurrency: int = 3) -> Planner:
    workload = make_workload(profile, context=CONTEXT, concurrency=concurrency)
    return Planner(profile, parse_cluster(f"h100:{gpus}"), accounting_for(engine), workload)


def legal(planner: Planner) -> list[Layout]:
    layouts = planner.accounting.layouts(planner.profile, planner.cluster)
    return [layout for layout in layouts if not planner.check(layout)]


def heaviest(planner: Planner, layout: Layout) -> int:
    """Bytes of weights and of the asked cache on the rank that holds most."""
    needs = planner.needs(layout, planner.table)  # type: ignore[arg-type]
    return max(need.weights.total + need.sequences * need.cache.sequence_bytes(CONTEXT) for need in needs)


@pytest.mark.parametrize("engine", sorted(ACCOUNTINGS))
@settings(max_examples=40, deadline=None)
@given(profile=profiles_of_any_size(), gpus=st.sampled_from([1, 2, 4, 8]), data=st.data())
def test_lines_add_up_and_weights_are_covered(
    engine: str, profile: ArchitectureProfile, gpus: int, data: st.DataObject
) -> None:
    planner = made_planner(profile, engine, gpus)
    layouts = legal(planner)
    assume(layouts)
    layout = data.draw(st.sampled_from(layouts))
    plan = planner.plan(layout)
    for rank in plan.ranks:
        lines = (
            rank.weights,
            rank.workspace,
            rank.activations,
            rank.state_pool,
            rank.kv_pool,
            rank.comm,
            rank.overhead,
        )
        assert min(lines) >= 0 and sum(lines) + rank.free == rank.total
    table, cuts = planner.table, planner.accounting.cuts(layout)
    assert table is not None
    for place in (table.first, table.vision, *table.layers, table.last):
        assert all(row.copies(cuts, layout.stage_ranks) >= 1 for row in place), "every byte is on some rank"
    held = sum(need.weights.total for need in planner.needs(layout, table)) * layout.stage_ranks
    assert held >= table.nbytes


def finer(layout: Layout) -> list[Layout]:
    """Twice the GPUs, spent on one way to share: tensors, stages, or replicas that deal the experts further."""
    tensors = Layout(2 * layout.tp, layout.pp, layout.ep, layout.dp, 1, 2 * layout.attention_tp, 2 * layout.expert_tp)
    dense = Layout(2 * layout.tp, layout.pp, layout.ep, layout.dp, 1, 2 * layout.attention_tp, layout.expert_tp)
    stages = Layout(layout.tp, 2 * layout.pp, layout.ep, layout.dp, 1, layout.attention_tp, layout.expert_tp)
    lots = Layout(layout.tp, layout.pp, 2 * layout.ep, 2 * layout.dp, 1, layout.attention_tp, layout.expert_tp)
    dealt = Layout(2 * layout.tp, layout.pp, 2 * layout.ep, layout.dp, 1, 2 * layout.attention_tp, layout.expert_tp)
    return [tensors, dense, stages, lots, dealt]


@pytest.mark.parametrize("engine", sorted(ACCOUNTINGS))
@settings(max_examples=60, deadline=None)
@given(profile=profiles_of_any_size(), gpus=st.sampled_from([1, 2, 4]), data=st.data())
def test_twice_the_gpus_never_need_more_bytes_each(
    engine: str, profile: ArchitectureProfile, gpus: int, data: st.DataObject
) -> None:
    """No exception is known: what cannot be cut is copied and costs a rank as much as before."""
    few, many = made_planner(profile, engine, gpus), made_planner(profile, engine, 2 * gpus)
    layouts = legal(few)
    assume(layouts)
    layout = data.draw(st.sampled_from(layouts))
    others = set(finer(layout)) & set(legal(many))
    assume(others)
    for other in others:
        assert heaviest(many, other) <= heaviest(few, layout), (layout, other)


@pytest.mark.parametrize("engine", sorted(ACCOUNTINGS))
@settings(max_examples=15, deadline=None)
@given(profile=profiles_of_any_size(), gpus=st.sampled_from([1, 2, 4]), concurrency=st.integers(1, 500), data=st.data())
def test_a_plan_written_and_read_is_the_same_plan(
    engine: str,
    profile: ArchitectureProfile,
    gpus: int,
    concurrency: int,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    planner = made_planner(profile, engine, gpus, concurrency)
    layouts = legal(planner)
    assume(layouts)
    plan = planner.plan(data.draw(st.sampled_from(layouts)))
    path: Path = tmp_path_factory.getbasetemp() / f"random-{engine}.yaml"
    demand = {"cluster": planner.cluster, "workload": planner.workload}
    path.write_text(write_plan(plan, model="org/model", revision=None, version=None, **demand))  # type: ignore[arg-type]
    saved = read_plan(path)
    again = Planner(profile, saved.cluster, accounting_for(saved.engine), saved.workload)
    assert changes(saved, again, again.plan(saved.layout), "org/model", None) == ()
    assert saved.predicted == tuple(asdict(rank) for rank in plan.ranks) and saved.settings == plan.settings
