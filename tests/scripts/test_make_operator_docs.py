"""The page about operators says what the code says."""

from __future__ import annotations

from make_operator_docs import PAGE, page

from day0.operators import AXES, OPERATORS


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run python scripts/make_operator_docs.py"


def test_the_page_has_every_operator_and_every_axis() -> None:
    text = page()
    assert all(f"\n### {name}\n" in text for name in OPERATORS)
    assert all(f"| `{axis}` |" in text for axis in AXES)
