from __future__ import annotations

import pytest

from day0.errors import InputError
from day0.plan.engine_version import Release, checked_version, is_since, version_numbers


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("0.5.23", (0, 5, 23)), ("0.5.23rc1", (0, 5, 23)), ("1.0", (1, 0)), ("nightly", ()), ("0.21.dev3", (0, 21))],
)
def test_versions_compare_by_their_numbers(version: str, numbers: tuple[int, ...]) -> None:
    assert version_numbers(version) == numbers


SINCE = Release((0, 21), "2026-05-15")


def test_no_version_is_the_newest() -> None:
    assert is_since(None, SINCE) and is_since("nightly", SINCE)
    assert is_since("0.21.0", SINCE) and not is_since("0.20.9", SINCE)


def test_builds_named_by_their_date_are_compared_by_it() -> None:
    assert is_since("nightly 2026-05-15", SINCE) and is_since("2026-05", SINCE) and is_since("2026-08 fork", SINCE)
    assert not is_since("main 2026-05-14", SINCE) and not is_since("nightly 2025-11", SINCE)


def test_a_number_without_end_is_no_number() -> None:
    assert len(version_numbers("9" * 5000)) == 1


def test_a_word_that_is_no_version_is_not_taken_for_the_newest() -> None:
    for version in (None, "0.26.0", "nightly", "nightly 2026-11", "main"):
        assert checked_version(version) == version
    with pytest.raises(InputError, match="'banana' is no version"):
        checked_version("banana")
