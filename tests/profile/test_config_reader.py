from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.text("abcxyz_", min_size=1, max_size=4)
READERS = {
    "integer": int,
    "number": float,
    "flag": bool,
    "word": str,
    "integers": tuple,
    "numbers": tuple,
    "words": tuple,
}


def reader(**values) -> ConfigReader:
    return ConfigReader(values, "config.json")


@given(value=JSON)
@pytest.mark.parametrize("method", READERS)
def test_any_value_is_read_or_refused_with_file_and_field(method: str, value) -> None:
    section = ConfigReader({"outer": {"key": value}}, "config.json").required_section("outer")
    try:
        found = getattr(section, method)("key")
    except InputError as error:
        assert error.where == "config.json: outer.key"
        assert len(error.message) < 200
        return
    assert type(found) is READERS[method]


@pytest.mark.parametrize("value", [4096, 4096.0])
def test_integers_may_be_written_as_floats(value) -> None:
    assert reader(a=value).integer("a") == 4096
    assert type(reader(a=value).integer("a")) is int


@pytest.mark.parametrize("value", [True, False, 1.5, "1", [1], {}, math.nan, math.inf])
def test_what_is_no_integer(value) -> None:
    with pytest.raises(InputError, match="must be an integer"):
        reader(a=value).integer("a")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400])
def test_numbers_are_finite(value) -> None:
    with pytest.raises(InputError, match="must be finite"):
        reader(a=value).number("a")


@pytest.mark.parametrize("value", [True, "1.0", [1.0]])
def test_what_is_no_number(value) -> None:
    with pytest.raises(InputError, match="must be a number"):
        reader(a=value).number("a")


@pytest.mark.parametrize("value", [2**63, 10**400])
def test_an_integer_beyond_64_bits_is_no_size(value: int) -> None:
    with pytest.raises(InputError, match="must be at most"):
        reader(a=value).integer("a")
    with pytest.raises(InputError, match="beyond"):
        reader(a=[1, -value - 1]).integers("a")


@pytest.mark.parametrize("value", [math.nan, 10**400])
def test_lists_of_numbers_are_finite(value: float) -> None:
    with pytest.raises(InputError, match="must be finite"):
        reader(a=[1.0, value]).numbers("a")


def test_limits_are_named() -> None:
    with pytest.raises(InputError, match="at least 1, got 0"):
        reader(a=0).integer("a")
    assert reader(a=0).integer("a", minimum=0) == 0
    with pytest.raises(InputError, match="at most 10, got 11"):
        reader(a=11).integer("a", maximum=10)


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_flags_are_true_or_false(value) -> None:
    with pytest.raises(InputError):
        reader(a=value).flag("a")


@pytest.mark.parametrize("value", [[1, True], [1.0], "12", 3, [None], [[1]]])
def test_lists_of_integers(value) -> None:
    with pytest.raises(InputError, match="a list of integers"):
        reader(a=value).integers("a")


def test_null_counts_as_missing() -> None:
    found = reader(a=None)
    assert not found.has("a")
    assert found.integer("a", 5) == 5
    assert found.optional_integer("a") is None
    assert found.section("a") is None
    with pytest.raises(InputError, match="is missing"):
        found.integer("a")
    assert found.defaulted == ("a",)


def test_a_default_that_was_needed_is_remembered() -> None:
    found = reader(a=1, s={})
    section = found.required_section("s")
    assert (found.integer("a", 7), found.integer("b", 7), section.word("c", "x")) == (1, 7, "x")
    found.optional_number("d")
    assert found.defaulted == ("b", "s.c")


def test_choice_lists_what_is_known() -> None:
    known = {"silu": 1, "gelu": 2}
    assert reader(a="gelu").choice("a", known) == 2
    assert reader().choice("a", known, "silu") == 1
    with pytest.raises(InputError, match="'relu' is not known here") as caught:
        reader(a="relu").choice("a", known)
    assert caught.value.hint == "known: gelu, silu"


def test_a_section_must_be_one() -> None:
    with pytest.raises(InputError, match="must be an object"):
        reader(a=[1]).section("a")
    with pytest.raises(InputError, match="is missing"):
        reader().required_section("a")


def test_unused_keys_below_sections() -> None:
    found = reader(a=1, b=2, opened={"x": 1, "y": {"z": 1}}, shut={"x": 1}, kept={"x": 1})
    found.integer("a")
    opened = found.required_section("opened")
    opened.integer("x")
    found.ignore("kept")
    assert found.unused() == ("b", "opened.y", "shut")
    opened.required_section("y")
    assert found.unused() == ("b", "shut"), "a section that was asked for and has nothing read in it is its reader's"
    opened.section("y").ignore_all()
    assert found.unused() == ("b", "shut")


def test_an_overlay_reads_for_the_section_it_lies_on() -> None:
    found = reader(s={"a": 1, "b": 2})
    section = found.required_section("s")
    layer = section.overlaid({"a": 9})
    assert (layer.integer("a"), layer.integer("b"), layer.integer("c", 3)) == (9, 2, 3)
    assert section.integer("a") == 1
    assert found.unused() == ()
    assert found.defaulted == ("s.c",)
    assert layer.where("a") == "config.json: s.a"


@given(st.dictionaries(KEYS, st.integers(1, 9), max_size=12), st.sets(KEYS, max_size=8))
def test_every_key_is_used_or_reported(values: dict[str, int], asked: set[str]) -> None:
    found = ConfigReader(values, "config.json")
    for key in asked:
        found.integer(key, 1)
    assert set(found.unused()) == values.keys() - asked
    assert set(found.defaulted) == asked - values.keys()
