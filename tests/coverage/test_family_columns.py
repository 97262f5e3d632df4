"""Columns of a family of devices, of single phases, and constraints on what follows from a need's facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from day0.coverage import Verdict, judge, read_whitelist
from day0.errors import InputError
from day0.inventory import OperatorNeed

DEVICES = {
    "old": {"family": "gpu", "facts": {"level": 8.0}},
    "new": {"family": "gpu", "facts": {"level": 9.0}},
}
CLAIM = {"status": "unverified", "reason": "claimed"}


@pytest.fixture
def verdict(tmp_path: Path) -> Callable[..., Verdict]:
    """The verdict on attention with 8 query and 2 key/value heads of 64, in both phases."""

    def judged(columns: Mapping[str, Mapping[str, Any]], device: str = "new", **shapes: int) -> Verdict:
        entries = [{"operator": "paged_gqa_attention", "provider": name, "devices": of} for name, of in columns.items()]
        path = tmp_path / "list.yaml"
        path.write_text(yaml.safe_dump({"devices": DEVICES, "entries": entries}))
        sizes = {"heads": 8, "kv_heads": 2, "head_dim": 64} | shapes
        facts = {"scale": 0.1, "window": None}
        need = OperatorNeed("paged_gqa_attention", (0,), ("prefill", "decode"), sizes, facts, "bfloat16", ("x",))
        return judge([need], read_whitelist(path), device).verdicts[0]

    return judged


def bounded(**constraints: Any) -> dict[str, Any]:
    return CLAIM | {"constraints": constraints}


def test_a_column_of_a_family_holds_on_each_of_its_devices(verdict) -> None:
    for device in DEVICES:
        assert verdict({"acme": {"gpu": CLAIM}}, device).status == "unverified"


def test_facts_of_the_device_are_under_constraints(verdict) -> None:
    columns = {"acme": {"gpu": bounded(level={"min": 9.0})}}
    assert verdict(columns, "new").status == "unverified"
    found = verdict(columns, "old")
    assert (found.status, found.provider, found.reason) == ("constraint", "acme", "level 8.0 is below 9.0")


def test_the_device_s_own_column_stands_before_the_family_s(verdict) -> None:
    columns = {"acme": {"gpu": bounded(head_dim={"max": 32}), "new": CLAIM | {"reason": "better here"}}}
    assert verdict(columns, "new").reason == "better here"
    assert verdict(columns, "old").status == "constraint"


def test_ratios_are_under_constraints(verdict) -> None:
    columns = {"acme": {"gpu": bounded(group={"one_of": [1, 4]})}}
    assert verdict(columns).status == "unverified"
    assert verdict(columns, kv_heads=1).reason == "group 8 is not one of 1, 4"


def test_every_provider_s_broken_constraint_is_named(verdict) -> None:
    columns = {"one": {"gpu": bounded(head_dim={"one_of": [128]})}, "two": {"gpu": bounded(heads={"max": 4})}}
    found = verdict(columns)
    assert (found.status, found.provider) == ("constraint", "one, two")
    assert found.reason == "one: head_dim 64 is not one of 128; two: heads 8 is above 4"


class TestPhases:
    prefill, decode = CLAIM | {"phases": ["prefill"]}, CLAIM | {"phases": ["decode"]}

    def test_one_phase_alone_is_a_gap_that_says_which(self, verdict) -> None:
        found = verdict({"acme": {"gpu": self.decode}})
        assert (found.status, found.provider) == ("gap", None)
        assert found.reason == "nobody offers prefill; acme has the rest"

    def test_two_providers_make_a_whole(self, verdict) -> None:
        found = verdict({"one": {"gpu": self.prefill}, "two": {"gpu": self.decode}})
        assert (found.status, found.provider) == ("unverified", "one, two")
        assert found.reason == "prefill by one: claimed; decode by two: claimed"

    def test_one_provider_for_all_is_preferred_where_it_is_as_good(self, verdict) -> None:
        found = verdict({"one": {"gpu": self.prefill}, "two": {"gpu": self.decode}, "both": {"gpu": CLAIM}})
        assert (found.provider, found.reason) == ("both", "claimed")

    def test_two_providers_come_before_one_that_cannot(self, verdict) -> None:
        both = bounded(head_dim={"max": 32})
        found = verdict({"both": {"gpu": both}, "one": {"gpu": self.prefill}, "two": {"gpu": self.decode}})
        assert (found.status, found.provider) == ("unverified", "one, two")

    def test_a_phase_that_breaks_a_constraint_is_the_verdict(self, verdict) -> None:
        broken = self.decode | {"constraints": {"heads": {"max": 4}}}
        found = verdict({"one": {"gpu": self.prefill}, "two": {"gpu": broken}})
        assert (found.status, found.reason) == ("constraint", "decode by two: heads 8 is above 4")


class TestRefusals:
    @pytest.mark.parametrize(
        ("column", "says"),
        (
            (bounded(speed={"min": 1}), "unknown key 'speed'"),
            (CLAIM | {"phases": ["load"]}, "unknown phase 'load'"),
            ({"status": "verified"}, "verified column without evidence"),
            (CLAIM | {"evidence": [{"shape": {}, "worst_error": {}, "ratio": {}, "run": "r"}]}, "a whole family"),
        ),
    )
    def test_columns(self, verdict, column: dict[str, Any], says: str) -> None:
        with pytest.raises(InputError, match=says):
            verdict({"acme": {"gpu": column}})

    def test_a_family_is_no_device(self, verdict) -> None:
        with pytest.raises(InputError, match="family of devices") as caught:
            verdict({"acme": {"gpu": CLAIM}}, "gpu")
        assert "old" in caught.value.hint and "new" in caught.value.hint
