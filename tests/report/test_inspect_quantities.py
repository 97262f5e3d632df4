"""Counts and sizes keep their meaning when they are shortened."""

from __future__ import annotations

import pytest

from day0.report.inspect_quantities import bytes_text, count_text


@pytest.mark.parametrize(
    ("count", "text"),
    (
        (0, "0"),
        (999, "999"),
        (1000, "1K"),
        (596_049_920, "596M"),
        (999_600_000, "1B"),
        (8_030_261_248, "8.03B"),
        (2_779_931_834_976, "2.78T"),
        (2_779_931_834_976_000, "2780T"),
    ),
)
def test_counts(count: int, text: str) -> None:
    assert count_text(count) == text


@pytest.mark.parametrize(
    ("size", "text"),
    (
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (27_648, "27 KiB"),
        (449_372_160, "428.6 MiB"),
        (1_560_860_324_864, "1.42 TiB"),
        (5 * 1024**5, "5120 TiB"),
    ),
)
def test_sizes(size: int, text: str) -> None:
    assert bytes_text(size) == text
