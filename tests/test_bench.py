"""Baselines: what comes back, and what is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from day0.bench import Baseline, read_baseline
from day0.errors import InputError

KEY = {"model": "tiny", "device": "cpu", "torch": "2.13"}


def test_a_baseline_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    baseline = Baseline(key=KEY, measured={"performance.single": {"tpot_ms": 3.5}})
    path.write_bytes(msgspec.json.encode(baseline))
    assert read_baseline(path, KEY) == baseline


@pytest.mark.parametrize(
    "key", [KEY | {"model": "other"}, KEY | {"torch": "2.14"}, KEY | {"new": "x"}, {"model": "tiny"}]
)
def test_a_foreign_baseline_is_refused(tmp_path: Path, key: dict[str, str]) -> None:
    path = tmp_path / "base.json"
    path.write_bytes(msgspec.json.encode(Baseline(key=KEY, measured={})))
    with pytest.raises(InputError, match="another"):
        read_baseline(path, key)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"key": {}}', b'{"key": {"a": 1}, "measured": {}}'])
def test_what_is_no_baseline_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "base.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a baseline"):
        read_baseline(path, KEY)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_baseline(tmp_path / "absent.json", KEY)
