"""JSON of strangers: what is refused, with which place, and what is accepted with a finding."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from day0.errors import InputError
from day0.source.json_text import JsonObject, lfs_pointer_size, parse_object


def parse(text: str | bytes) -> JsonObject:
    data = text if isinstance(text, bytes) else text.encode()
    return parse_object(data, where="/models/m/config.json", name="config.json")


def test_plain_object_has_no_findings() -> None:
    parsed = parse('{"a": 1, "b": {"a": [1.5, -2e-5, true, null]}, "note": "NaN, Infinity and \\"a\\": twice"}')
    assert parsed.value["b"]["a"] == [1.5, -2e-5, True, None]
    assert parsed.findings == ()


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_non_finite_number_is_kept_and_located(token: str) -> None:
    parsed = parse('{\n  "limits": [0.0,\n    ' + token + '],\n  "x": 1\n}')
    value = parsed.value["limits"][1]
    assert not math.isfinite(value)
    (finding,) = parsed.findings
    assert finding.code == "json-non-finite-number"
    assert finding.where == "config.json:3:5"
    assert "limits" in finding.message and token in finding.message


def test_repeated_key_is_located_in_its_own_object() -> None:
    text = '{"size": 1,\n "inner": {"size": 2,\n  "size": 3},\n "other": [{"size": 4}, {"size": 5}]}'
    parsed = parse(text)
    assert parsed.value["inner"] == {"size": 3}
    (finding,) = parsed.findings
    assert finding.code == "json-duplicate-key"
    assert finding.where == "config.json:3:3"
    assert "inner.size" in finding.message and "first on line 2" in finding.message


def test_repeated_key_spelled_with_an_escape_is_seen() -> None:
    (finding,) = parse('{"size": 1, "s\\u0069ze": 2}').findings
    assert finding.code == "json-duplicate-key"


def test_byte_order_mark_is_a_finding() -> None:
    parsed = parse(b'\xef\xbb\xbf{"a": 1}')
    assert parsed.value == {"a": 1}
    assert [finding.code for finding in parsed.findings] == ["json-byte-order-mark"]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('{"a": true.\n "b": 1}', ":1:11", "not valid JSON"),
        ('{"a": 1,\n}', ":2:1", "not valid JSON"),
        ('{\n  // width\n  "a": 1}', ":2:3", "not valid JSON"),
        ("{'a': 1}", ":1:2", "not valid JSON"),
        ('{"a": {"b": 1}', ":1:15", "not valid JSON"),
        ("[1, 2]", "", "holds a list"),
        ("null", "", "holds null"),
        ('"text"', "", "holds a string"),
        ("true", "", "holds a boolean"),
        ("", "", "is empty"),
        ("\0" * 64, "", "nothing but blanks"),
        (b'{"a":\n "\xff"}', ":2", "not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "", "UTF-16"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "", "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "", "not usable JSON"),
        ('{"a": "\\ud800"}', "", "surrogate"),
    ],
)
def test_unusable_text_names_file_and_place(text: str | bytes, place: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    if place:
        assert caught.value.where.startswith(f"/models/m/config.json{place}")
    assert caught.value.where.startswith("/models/m/config.json")
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('{\n  // width\n  "a": 1}', "no comments"),
        ("{'a': 1}", "double quotes"),
        ('{"a": {"b": 1}', "cut short"),
    ],
)
def test_common_slips_get_a_hint(text: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert hint in caught.value.hint


def test_whole_surrogate_pair_is_a_character() -> None:
    assert parse('{"a": "\\ud83d\\ude00"}').value == {"a": "\U0001f600"}


def test_lfs_pointer_is_named_with_its_size() -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00ff\nsize 4999802720\n"
    assert lfs_pointer_size(pointer) == 4_999_802_720
    assert lfs_pointer_size(b'{"a": 1}') is None
    with pytest.raises(InputError, match="Git LFS pointer for a file of 4,999,802,720 bytes"):
        parse(pointer)


TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
NUMBERS = st.integers(-(10**30), 10**30) | st.floats()
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(TEXT, VALUES, max_size=5), st.booleans(), st.sampled_from([None, 1]))
def test_the_fast_reader_agrees_with_pythons(value: dict[str, object], ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert repr(parse(text).value) == repr(json.loads(text))


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "cc"]), VALUES), max_size=5))
def test_a_key_given_twice_is_never_missed(pairs: list[tuple[str, object]]) -> None:
    inner = "{" + ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in pairs) + "}"
    keys = [key for key, _ in pairs]
    codes = {finding.code for finding in parse(f'{{"x": {inner}}}').findings}
    assert ("json-duplicate-key" in codes) == (len(set(keys)) != len(keys))
