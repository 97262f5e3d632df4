from __future__ import annotations

import pytest

from day0.plan.engine_version import is_since, version_numbers


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("0.5.23", (0, 5, 23)), ("0.5.23rc1", (0, 5, 23)), ("1.0", (1, 0)), ("nightly", ()), ("0.21.dev3", (0, 21))],
)
def test_versions_compare_by_their_numbers(version: str, numbers: tuple[int, ...]) -> None:
    assert version_numbers(version) == numbers


def test_no_version_is_the_newest() -> None:
    assert is_since(None, (9, 9)) and is_since("nightly", (9, 9))
    assert is_since("0.21.0", (0, 21)) and not is_since("0.20.9", (0, 21))
