"""Flags by version: what is let through, what is refused, and what a refusal says."""

from __future__ import annotations

from typing import Any

import pytest

from day0.engines.flag_table import FlagTable, flag_table
from day0.engines.sglang import launch as launch_sglang
from day0.engines.vllm import launch as launch_vllm

SMALL = FlagTable(
    "engine",
    ("0.1.0", "0.2.0", "0.10.0"),
    {"--always": "xxx", "--gone": "xx.", "--new": "..x", "--brief": ".x.", "--config": "xxx"},
    {"--gone": "--new"},
    {"--always": ["one", "two"]},
    "2026-11",
)


@pytest.mark.parametrize(
    ("words", "version", "complaint"),
    [
        (["--always", "one", "--no-always", "--config.key=2", "value"], None, None),
        (["--always=two"], "0.10.0", None),
        (["--always", "on"], None, "does not take 'on': did you mean one?"),
        (["--always", "--config", "x"], None, "does not take ''"),
        (["--always", "xyz"], None, "known: one, two"),
        (["--always", "four"], "0.2.0", None),  # what it took then is not recorded
        (["--gone"], "0.2.0", None),
        (["--gone"], "0.5.0", None),  # it went somewhere before 0.10.0
        (["--gone"], "0.10.0", "use --new"),
        (["--gone=3"], "0.11.0", "use --new"),
        (["--new"], "0.2.0", "it came by 0.10.0"),
        (["--new"], "0.9", None),
        (["--new"], "nightly 2026-08", None),
        (["--brief"], None, "it was last seen in 0.2.0"),
        (["--made-up"], None, "--made-up is not a flag of engine 0.10.0"),
        (["--new"], "0.0.1", "it came by"),
    ],
)
def test_a_flag_belongs_to_versions(words: list[str], version: str | None, complaint: str | None) -> None:
    found = SMALL.complaints(words, version)
    assert not found if complaint is None else len(found) == 1 and complaint in found[0]


def test_a_record_is_named_with_its_version_and_month() -> None:
    assert SMALL.record(None) == "the flags of engine 0.10.0, recorded 2026-11"
    assert "engine 0.2.0" in SMALL.record("0.2.0")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_what_replaces_a_flag_is_a_flag_of_the_newest(engine: str) -> None:
    table = flag_table(engine)
    for old, new in table.replaced.items():
        words = [f"{word.strip(',;')}=" for word in new.split() if word.startswith("--")]
        assert not [each for each in table.complaints(words, None) if "does not take" not in each], old
        assert table.complaints([old], None), f"{old} is still there"


@pytest.mark.parametrize("version", ["0.11.0", "0.14.1", "0.21.0", "0.26.0", "0.32.0", None])
def test_one_node_of_vllm_starts_on_every_version(request_for: Any, version: str | None) -> None:
    assert launch_vllm(request_for("kimi-k3", "b300:8", "vllm", version, tp=8, ep=8)).argv


def test_several_nodes_need_a_vllm_that_knows_them(request_for: Any) -> None:
    older = launch_vllm(request_for("kimi-k3", "b300:8x2", "vllm", "0.11.0", tp=8, pp=2))
    assert not older.argv and any("--nnodes" in note and "0.14.1" in note for note in older.notes)
    assert launch_vllm(request_for("kimi-k3", "b300:8x2", "vllm", "0.14.1", tp=8, pp=2)).argv


@pytest.mark.parametrize("version", ["0.5.5", "0.5.10", "0.5.16", "0.5.23", None])
def test_dp_attention_of_sglang_starts_on_every_version(request_for: Any, version: str | None) -> None:
    assert launch_sglang(request_for("kimi-k3", "b300:8", "sglang", version, tp=8, dp=8, ep=8)).argv
