"""Checklist files: what is read, and that nothing in them is dropped in silence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from day0.checklist.checklist import Measured, Outcome, Probe
from day0.checklist.read import find_checklist, read_checklist, shipped_checklists
from day0.errors import InputError


def probe(context: object, *, count: int = 4, share: float = 0.5, names: list[str] | None = None) -> Outcome:
    return Measured(count, {})


def choosy(context: object, *, wanted: int) -> Outcome:
    return Measured(wanted, {})


PROBES = {"one": Probe(probe), "choosy": Probe(choosy)}


def check(**changes: Any) -> dict[str, Any]:
    return {"id": "text.one", "title": "One", "probe": "one"} | changes


def written(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def text_phase(*checks: dict[str, Any]) -> dict[str, Any]:
    return {"title": "Mine", "phases": {"text": list(checks)}}


def test_reads_a_check_with_everything(tmp_path: Path) -> None:
    entry = check(parameters={"count": 2}, limits={"x": {"max": 1, "warn_max": 0.5}}, required=False)
    found = read_checklist(written(tmp_path, text_phase(entry)), PROBES)
    (spec,) = found.checks
    assert (found.name, found.title) == ("mine", "Mine")
    assert (spec.id, spec.phase, spec.probe, spec.required) == ("text.one", "text", "one", False)
    assert spec.parameters == {"count": 2}
    assert spec.limits == {"x": {"max": 1, "warn_max": 0.5}}


def test_checks_are_required_unless_they_say_otherwise(tmp_path: Path) -> None:
    assert read_checklist(written(tmp_path, text_phase(check())), PROBES).checks[0].required


def test_phases_run_in_the_contracts_order_whatever_the_files(tmp_path: Path) -> None:
    document = {"phases": {"performance": [check(id="b")], "loading": [check(id="a")]}}
    assert [spec.id for spec in read_checklist(written(tmp_path, document), PROBES).checks] == ["a", "b"]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"phases": {"text": [check()]}, "titel": "x"}, "titel"),
        ({"phases": {"texts": [check()]}}, "texts"),
        (text_phase(check(limit={})), "limit"),
        (text_phase(check(parameters={"coutn": 1})), "coutn"),
        (text_phase(check(limits={"x": {"maximum": 1}})), "maximum"),
        (text_phase(check(limits={"x": {"max": "1"}})), "must be a number"),
        (text_phase(check(limits={"x": {"max": True}})), "must be a number"),
        (text_phase(check(limits={"x": {"max": math.nan}})), "nothing could keep or break it"),
        (text_phase(check(limits={"x": {"equals": math.nan}})), "nothing could keep or break it"),
        (text_phase(check(limits={"x": {}})), "a limit needs"),
        (text_phase(check(limits={"x": 3})), "mapping"),
        (text_phase(check(parameters={"count": "many"})), "count"),
        (text_phase(check(parameters={"count": 0})), "must be from 1"),
        (text_phase(check(parameters={"count": -3})), "must be from 1"),
        (text_phase(check(parameters={"count": 10**400})), "must be from 1"),
        (text_phase(check(parameters=[1])), "mapping"),
        (text_phase(check(probe="two")), "two"),
        (text_phase(check(probe="choosy")), "wanted"),
        (text_phase(check(required="yes")), "required"),
        (text_phase(check(id="")), "id"),
        (text_phase({"id": "a", "probe": "one"}), "title"),
        (text_phase(check(), check()), "twice"),
        ({"phases": {"text": check()}}, "list of checks"),
        ({"phases": {}}, "without checks"),
        ({"phases": None}, "mapping"),
        ([], "mapping"),
        ({"phases": {"text": ["one"]}}, "mapping"),
        ({1: 2, "phases": {}}, "keys must be texts"),
    ],
)
def test_what_nobody_would_read_is_refused_with_file_and_key(tmp_path: Path, document: Any, words: str) -> None:
    path = written(tmp_path, document)
    with pytest.raises(InputError) as caught:
        read_checklist(path, PROBES)
    assert words in str(caught.value)
    assert str(path) in caught.value.where


def test_the_place_of_a_wrong_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_checklist(written(tmp_path, text_phase(check(), check(id="b", limits={"x": {"mx": 1}}))), PROBES)
    assert "phases.text[1] (b).limits.x" in caught.value.where
    assert "warn_max" in caught.value.hint


def test_shipped_names_and_own_files_are_found(tmp_path: Path) -> None:
    assert {"quick", "default", "full", "endpoint"} <= set(shipped_checklists())
    assert find_checklist("quick").name == "quick.yaml"
    path = written(tmp_path, {})
    assert find_checklist(str(path)) == path


def test_an_unknown_checklist_names_those_there_are() -> None:
    with pytest.raises(InputError) as caught:
        find_checklist("nightly")
    assert "default" in caught.value.hint
