"""Traces of several processes, put together, are the trace of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rank_models import Model, prompt, settings

from day0.cli.trace_run import OtherRun, TracedPrompt, record_steps
from day0.numerics.floor import measured_floor
from day0.numerics.reading import Recording, read_recording
from day0.numerics.recording import Keep, Recorder
from day0.numerics.walk import Report, Sides, compare_recordings
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.lead import World
from day0.runtime.engine.load import load_engine

CUT, DEALT, STAGES, REPLICAS = {"tp": 2}, {"tp": 2, "ep": 2}, {"pp": 2}, {"dp": 2, "ep": 2}
CASES = [
    ("llama-3.1-8b", CUT),
    ("qwen3-30b-a3b", DEALT),
    ("kimi-k3", REPLICAS),
    ("minimax_m3", CUT),
    ("qwen3-next-80b-a3b", CUT),
    *(
        pytest.param(name, layout, marks=pytest.mark.slow)
        for name, layout in (
            ("qwen3-30b-a3b", STAGES),
            ("kimi-k3", DEALT),
            ("gpt_oss", CUT),
            ("deepseek-v4-pro", CUT),
            ("kimi-k2-thinking", CUT),
            ("nemotron_h", CUT),
        )
    ),
]
IDS = tuple(prompt(24))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    started = World.start(2, "cpu")
    yield started
    started.stop()


def recorded(engine: Engine, out: Path, chunk: int | None = None, other: OtherRun | None = None) -> Recording:
    recorder = Recorder(Keep())
    steps = list(record_steps(engine, IDS, (), TracedPrompt(IDS, (), 2, chunk), recorder, other))
    recorder.write(out, IDS, tuple(step.next_id for step in steps if step.ends), {})
    return read_recording(out)


def compared(world: World, model: Model, out: Path, layout: dict[str, int], chunk: int | None = None) -> Report:
    """Several ranks against one, within the noise of bfloat16 scaled to float32."""
    reference = recorded(model.engine, out / "one")
    coarse = load_engine(model.files, model.profile, replace(settings(), dtype="bfloat16"))
    floor = measured_floor(reference, recorded(coarse, out / "floor", other=OtherRun(reference, choices_only=True)))
    engine = world.load(model.files, model.profile, settings(**layout))
    found = recorded(engine, out / "ranks", chunk)
    engine.close()
    return compare_recordings(Sides(reference, found, floor))


@pytest.mark.parametrize(("name", "layout"), CASES, ids=lambda case: case if isinstance(case, str) else str(case))
def test_the_ranks_together_are_one(
    world: World, model_of: Callable[[str], Model], tmp_path: Path, name: str, layout: dict[str, int]
) -> None:
    report = compared(world, model_of(name), tmp_path, layout)
    assert report.verdict == "equal", (report.first, report.missing_candidate, report.missing_reference)
    assert all(node.verdict != "not checked" for node in report.nodes)


@pytest.mark.slow
def test_chunks_of_ranks_are_put_together_too(world: World, model_of: Callable[[str], Model], tmp_path: Path) -> None:
    report = compared(world, model_of("qwen3-30b-a3b"), tmp_path, DEALT, chunk=7)
    assert report.verdict == "equal", (report.first, report.missing_candidate, report.missing_reference)
