"""Statuses follow from measurements and limits; verdicts from statuses; one broken check stops nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from day0.checklist.checklist import (
    PHASES,
    Checklist,
    ChecklistRun,
    CheckResult,
    CheckSpec,
    Measured,
    NotChecked,
    Outcome,
    PhaseResult,
    Probe,
    Status,
    judge,
    phase_status,
    verdict,
    with_baseline,
)
from day0.errors import CannotSay, InputError


@pytest.mark.parametrize(
    ("value", "bounds", "status"),
    [
        (0, {"max": 0}, "pass"),
        (1, {"max": 0}, "fail"),
        (1.0, {"min": 1.0}, "pass"),
        (0.999, {"min": 1.0}, "fail"),
        (True, {"equals": True}, "pass"),
        (False, {"equals": True}, "fail"),
        (1, {"equals": True}, "fail"),
        ("a", {"equals": "b"}, "fail"),
        (3, {"warn_max": 2}, "warn"),
        (3, {"warn_max": 2, "max": 4}, "warn"),
        (5, {"warn_max": 2, "max": 4}, "fail"),
        (1, {"warn_min": 2}, "warn"),
        (1, {"max_of_baseline": 0.1}, "pass"),
    ],
)
def test_a_value_against_its_bounds(value: Any, bounds: dict[str, Any], status: Status) -> None:
    assert judge({"x": value}, {"x": bounds})[0] == status


@pytest.mark.parametrize("value", [math.nan, None, "0", True, []])
@pytest.mark.parametrize("bound", ["max", "min"])
def test_what_is_no_number_is_beyond_every_limit(value: Any, bound: str) -> None:
    assert judge({"x": value}, {"x": {bound: 0}})[0] == "fail"


def test_the_reason_names_value_and_limit() -> None:
    assert judge({"x": 0.5}, {"x": {"max": 0.25}})[1] == "x is 0.5, wanted at most 0.25"


def test_a_failure_outranks_an_earlier_warning() -> None:
    status, reason = judge({"a": 3, "b": 9}, {"a": {"warn_max": 1}, "b": {"max": 1}})
    assert status == "fail" and reason.startswith("b is")


def test_a_limit_on_something_unmeasured_breaks_the_check() -> None:
    with pytest.raises(InputError, match="x: has a limit"):
        judge({}, {"x": {"max": 1}})


def test_baseline_ratio_becomes_a_maximum() -> None:
    limits = {"ms": {"max_of_baseline": 1.5}, "other": {"max": 1}}
    assert with_baseline(limits, None) == limits
    resolved = with_baseline(limits, {"ms": 10.0})
    assert resolved["ms"]["max"] == 15.0 and resolved["ms"]["baseline"] == 10.0
    assert judge({"ms": 16.0, "other": 0}, resolved)[0] == "fail"
    assert judge({"ms": 14.0, "other": 0}, resolved)[0] == "pass"


@pytest.mark.parametrize("before", [{}, {"ms": None}, {"ms": "fast"}, {"ms": True}])
def test_a_baseline_without_the_number_cannot_say(before: dict[str, Any]) -> None:
    with pytest.raises(CannotSay, match="no number for ms"):
        with_baseline({"ms": {"max_of_baseline": 2.0}}, before)


def test_the_tighter_of_baseline_and_fixed_limit_holds() -> None:
    assert with_baseline({"ms": {"max_of_baseline": 2.0, "max": 5.0}}, {"ms": 10.0})["ms"]["max"] == 5.0


def test_a_check_is_required_unless_it_says_otherwise() -> None:
    checks = CheckSpec("x", "text", "x", "fine"), CheckResult("x", "x", "pass", True)
    assert checks[0].required and checks[1].seconds == 0.0


def result(status: Status, required: bool = True) -> CheckResult:
    return CheckResult(id="x", title="x", status=status, required=required)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["pass"], "ready"),
        (["pass", "na", "warn"], "ready"),
        (["warn"], "ready"),
        (["pass", "fail"], "not-ready"),
        (["pass", "fail", "skip", "error"], "not-ready"),
        (["pass", "skip"], "incomplete"),
        (["pass", "error"], "incomplete"),
        (["na"], "incomplete"),
        ([], "incomplete"),
    ],
)
def test_verdict_of_required_checks(statuses: list[Status], expected: str) -> None:
    phase = PhaseResult("text", "pass", tuple(result(status) for status in statuses))
    assert verdict([phase]) == expected


@pytest.mark.parametrize("status", ["fail", "skip", "error"])
def test_optional_checks_leave_the_verdict(status: Status) -> None:
    assert verdict([PhaseResult("text", "pass", (result("pass"), result(status, required=False)))]) == "ready"


def test_optional_checks_alone_prove_nothing() -> None:
    assert verdict([PhaseResult("text", "pass", (result("pass", required=False),))]) == "incomplete"


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ([result("pass"), result("fail"), result("skip")], "fail"),
        ([result("pass"), result("error"), result("skip")], "error"),
        ([result("pass"), result("skip")], "skip"),
        ([result("pass"), result("fail", required=False)], "warn"),
        ([result("pass"), result("skip", required=False)], "pass"),
        ([result("na"), result("na")], "na"),
        ([result("na"), result("skip", required=False)], "skip"),
        ([result("pass"), result("na")], "pass"),
    ],
)
def test_phase_status(checks: list[CheckResult], expected: Status) -> None:
    assert phase_status(checks) == expected


def spec(name: str, phase: str = "text", **changes: Any) -> CheckSpec:
    return CheckSpec(id=f"{phase}.{name}", phase=phase, title=name, probe=name, **changes)


def run_of(checks: list[CheckSpec], probes: dict[str, Probe], **options: Any) -> ChecklistRun:
    options.setdefault("lacks", lambda need: None)
    return ChecklistRun(Checklist("t", "t", tuple(checks)), probes, "context", **options)


def fine(context: object) -> Outcome:
    return Measured(2, {"ok": True}, hint="only shown when something is wrong")


def broken(context: object) -> Outcome:
    raise RuntimeError("boom")


def wrong_input(context: object) -> Outcome:
    raise InputError("no shard", where="model.safetensors", hint="fetch it")


def undecided(context: object) -> Outcome:
    raise CannotSay("no family explains this model")


def empty(context: object) -> Outcome:
    return Measured(0, {"ok": True})


def absent(context: object) -> Outcome:
    return NotChecked("na", "the model has no vision")


def interrupting(context: object) -> Outcome:
    raise KeyboardInterrupt


PROBES = {
    function.__name__: Probe(function)
    for function in (fine, broken, wrong_input, undecided, empty, absent, interrupting)
} | {"needy": Probe(fine, needs=("engine",))}


def test_a_broken_check_is_an_error_and_the_next_one_runs() -> None:
    run = run_of([spec("broken"), spec("wrong_input"), spec("fine")], PROBES)
    (phase,) = run.run()
    assert [check.status for check in phase.checks] == ["error", "error", "pass"]
    assert "RuntimeError: boom" in phase.checks[0].message
    assert phase.checks[1].message == "model.safetensors: no shard" and phase.checks[1].hint == "fetch it"
    assert verdict([phase]) == "incomplete"


def test_what_strangers_say_is_made_printable() -> None:
    def hostile(context: object) -> Outcome:
        return Measured(1, {"said": ["\x1b[31mred", "\ud800"]}, message="line\nbreak \x00\x9b")

    (phase,) = run_of([spec("hostile")], {"hostile": Probe(hostile)}).run()
    (check,) = phase.checks
    assert check.measured["said"] == ["\ufffd[31mred", "\ufffd"]
    assert check.message == "line\nbreak \ufffd\ufffd"


def test_nothing_inspected_is_not_a_pass() -> None:
    (phase,) = run_of([spec("empty", limits={"ok": {"equals": True}})], PROBES).run()
    (check,) = phase.checks
    assert check.status == "skip" and "nothing" in check.message
    assert check.measured["inspected"] == 0


def test_what_cannot_be_said_is_skipped_with_the_reason() -> None:
    (phase,) = run_of([spec("undecided")], PROBES).run()
    assert (phase.checks[0].status, phase.checks[0].message) == ("skip", "no family explains this model")


def test_na_carries_its_reason() -> None:
    (phase,) = run_of([spec("absent")], PROBES).run()
    assert (phase.status, phase.checks[0].message) == ("na", "the model has no vision")


def test_a_capability_that_is_lacking_skips_with_the_reason() -> None:
    run = run_of([spec("needy")], PROBES, lacks=lambda need: f"no {need} here")
    (phase,) = run.run()
    assert (phase.checks[0].status, phase.checks[0].message) == ("skip", "no engine here")


def test_limits_decide_and_are_recorded() -> None:
    limits = {"ok": {"equals": False}}
    (phase,) = run_of([spec("fine", limits=limits)], PROBES).run()
    (check,) = phase.checks
    assert check.status == "fail" and check.limit == limits and check.measured == {"inspected": 2, "ok": True}
    assert check.hint


def test_a_pass_has_no_hint() -> None:
    (phase,) = run_of([spec("fine")], PROBES).run()
    assert phase.checks[0].hint == ""


def test_interrupt_gives_a_partial_result() -> None:
    run = run_of([spec("fine"), spec("interrupting"), spec("broken")], PROBES)
    (phase,) = run.run()
    assert run.interrupted
    assert [check.status for check in phase.checks] == ["pass", "skip", "skip"]
    assert verdict([phase]) == "incomplete"


def test_phases_not_asked_for_are_skipped_and_leave_the_run_incomplete() -> None:
    checks = [spec("fine", "loading"), spec("fine", "text")]
    phases = run_of(checks, PROBES, phases=("text",)).run()
    assert [(phase.name, phase.status) for phase in phases] == [("loading", "skip"), ("text", "pass")]
    assert "--phase" in phases[0].checks[0].message
    assert verdict(phases) == "incomplete"


def test_phases_come_in_the_contracts_order() -> None:
    checks = [spec("fine", phase) for phase in PHASES]
    assert tuple(phase.name for phase in run_of(checks, PROBES).run()) == PHASES


def test_baseline_is_found_by_check_id() -> None:
    limits = {"inspected": {"max_of_baseline": 1.0}}
    run = run_of([spec("fine", limits=limits)], PROBES, before={"text.fine": {"inspected": 1}})
    (phase,) = run.run()
    assert phase.checks[0].status == "fail" and phase.checks[0].limit["inspected"]["baseline"] == 1


def test_listeners_hear_each_check() -> None:
    heard: list[str] = []
    run_of(
        [spec("fine"), spec("broken")],
        PROBES,
        on_start=lambda entry: heard.append(f"start {entry.id}"),
        on_result=lambda entry, found: heard.append(f"{found.status} {entry.id}"),
    ).run()
    assert heard == ["start text.fine", "pass text.fine", "start text.broken", "error text.broken"]
