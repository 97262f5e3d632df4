"""Every fault of the table is hunted down by the comparison itself; sound runs of any kind raise no alarm."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from clean_variants import CLEAN, Clean, clean_report, passes
from fault_switches import weights
from fault_table import FAULTS, TIED, Models, faulty_run
from faults_experts import SOFTMAX, ties_to_the_highest
from hunting import IDS, Fault, load, named_by, points, recorded

from day0.numerics.decisions import CHOICE_POINTS, FED_POINTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fault-table.md"
LEAST = {"layer": 0.98, "operator": 0.95}
"""Share of the faults whose layer and whose operator must be named."""
OTHER_KIND = {"delta-heads-in-turn": "scale"}
"""Kinds that are guessed wrong, and what is guessed."""
ROUTED = "qwen3-30b-a3b"


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("hunted"))


def thirds(cases: tuple[Fault, ...] | tuple[Clean, ...]) -> list[object]:
    """One of three by default, the others marked slow; so are prompts that come token by token."""
    quick = [index % 3 == 0 and "chunks of 1" not in case.id for index, case in enumerate(cases)]
    return [
        pytest.param(case, id=case.id, marks=[] if fast else pytest.mark.slow)
        for case, fast in zip(cases, quick, strict=True)
    ]


@pytest.mark.parametrize("fault", thirds(FAULTS))
def test_the_hunt_names_the_fault(models: Models, fault: Fault, tmp_path: Path) -> None:
    sound = models[fault.model]
    named = named_by(sound.compare(faulty_run(fault, sound, tmp_path)))
    assert named is not None, "not noticed"
    assert (named.layer, named.step, named.point) == (fault.layer, fault.step, fault.point), named
    assert named.kind == OTHER_KIND.get(fault.id, fault.kind), named


@pytest.mark.parametrize("case", thirds(CLEAN))
def test_a_sound_run_raises_no_alarm(models: Models, case: Clean, tmp_path: Path) -> None:
    report = clean_report(case, models[case.model], tmp_path)
    assert passes(case, report), (report.first, [node for node in report.nodes if node.verdict == "not checked"][:4])


def test_the_table_is_as_large_and_as_mixed_as_it_must_be() -> None:
    assert len({fault.id for fault in FAULTS}) == len(FAULTS) >= 60
    assert len({case.id for case in CLEAN}) == len(CLEAN) >= 20
    assert {fault.how for fault in FAULTS} == {"operator", "weights", "config", "engine", "pictures", "ranks"}
    assert min(Counter(fault.model.partition(" ")[0] for fault in FAULTS).values()) >= 1
    assert len({fault.model for fault in FAULTS}) >= 10
    simple = {"scale", "sign", "permutation", "rotary layout", "off by one", "missing term", "transposed", "stale"}
    assert simple | {"NaN origin", "precision only", "decision", "exact tie"} <= {fault.kind for fault in FAULTS}


def test_the_page_is_of_this_table_and_shows_what_is_asked_for() -> None:
    """`scripts/make_fault_table.py` writes the page."""
    text = PAGE.read_text("utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if re.match(r"\| `[\w-]+` \|", line)]
    assert [row[0].strip("| `") for row in rows] == [fault.id for fault in FAULTS]
    assert [row[1] for row in rows] == [fault.what for fault in FAULTS]
    for word, least in LEAST.items():
        hits, of = map(int, re.search(rf"^\| {word} \| (\d+) of (\d+) \|", text, re.M).groups())  # type: ignore[union-attr]
        assert of == len(FAULTS) and hits >= least * of
    alarms, of = map(int, re.search(r"^\| alarms over sound runs \| (\d+) of (\d+) \|", text, re.M).groups())  # type: ignore[union-attr]
    assert (alarms, of) == (0, len(CLEAN))


def test_a_tie_broken_the_other_way_is_told_apart_from_a_fault(models: Models) -> None:
    sound = models["tied router"]
    other = load(sound.folder, {SOFTMAX: ties_to_the_highest})
    TIED(other)
    report = sound.compare(recorded(other))
    decision = next(choice for choice in report.decisions if choice.layer == 2 and choice.step == 0)
    assert (decision.exact_ties, decision.faults, decision.flips) == (len(IDS), 0, len(IDS))
    assert report.verdict == "incomplete" and report.first is None, "what reads such a choice was not compared"
    replayed = recorded(other, points(sound.reference, CHOICE_POINTS))
    assert sound.compare(recorded(other), replayed=replayed).verdict == "equal"


def test_a_fault_behind_a_tie_is_found_with_the_choices_replayed(models: Models) -> None:
    sound = models["tied router"]
    other = load(sound.folder, {SOFTMAX: ties_to_the_highest})
    TIED(other)
    weights(lambda w: w * 1.02, "norm.weight")(other)
    free = recorded(other)
    assert sound.compare(free).verdict == "incomplete"
    first = sound.compare(free, replayed=recorded(other, points(sound.reference, CHOICE_POINTS))).first
    assert first is not None and (first.operator, first.kind) == ("norm", "scale")


def test_added_and_inherited_error_are_told_apart_by_feeding(models: Models) -> None:
    sound = models[ROUTED]
    engine = load(sound.folder)
    weights(lambda w: w * 1.05, "layers.1.mixer.o_proj.weight")(engine)
    fed = recorded(engine, points(sound.reference, FED_POINTS | CHOICE_POINTS))
    nodes = {node.tensor: node for node in sound.compare(recorded(engine), fed=fed).nodes}
    broken, later = nodes["layers.1.mixer_out"], nodes["layers.2.mixer_out"]
    assert broken.added_how == later.added_how == "measured"
    assert broken.added_error is not None and broken.added_error == pytest.approx(0.05, rel=1e-3)
    assert later.error is not None and later.error > 1e-3 and later.added_error == 0.0


def test_ranks_that_differ_are_found_whichever_of_them_is_wrong(models: Models, tmp_path: Path) -> None:
    fault = next(fault for fault in FAULTS if fault.id == "ranks-attention-not-summed")
    report = models[fault.model].compare(faulty_run(fault, models[fault.model], tmp_path))
    assert report.first is not None and "ranks hold different numbers" in report.first.message
    assert torch.isfinite(torch.tensor([node.error or 0.0 for node in report.nodes])).all()
