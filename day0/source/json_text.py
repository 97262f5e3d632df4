"""JSON written by strangers: strict about what cannot be read, exact about where, and honest about oddities.

Bare NaN and Infinity, a byte-order mark and repeated keys are accepted as Python's own reader accepts them, and
each becomes a finding with its line and column.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from day0.errors import Finding, InputError

MAX_JSON_BYTES = 512 * 1024 * 1024
"""A sharded index of half a million tensors is about 60 MB; nothing honest comes near this."""

_LFS_MARK = b"version https://git-lfs"
_UTF8_BOM = b"\xef\xbb\xbf"
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


@dataclass(frozen=True, slots=True)
class JsonObject:
    """A parsed JSON object and what was odd about its text."""

    value: dict[str, Any]
    findings: tuple[Finding, ...] = ()


def lfs_pointer_size(data: bytes) -> int | None:
    """The size that a Git LFS pointer file declares, None where `data` is no pointer (-1: a pointer without a size)."""
    if not data.startswith(_LFS_MARK):
        return None
    match = re.search(rb"^size (\d+)\s*$", data[:1024], re.MULTILINE)
    return int(match.group(1)) if match else -1


def refuse_lfs_pointer(data: bytes, where: str) -> None:
    """Raise where `data` is the text that Git LFS leaves in place of a file."""
    size = lfs_pointer_size(data)
    if size is None:
        return
    declared = f" for a file of {size:,} bytes" if size >= 0 else ""
    raise InputError(
        f"this is a Git LFS pointer{declared}, not the file itself",
        where=where,
        hint="run `git lfs pull` in the clone, or download the file from the hub",
    )


def parse_object(data: bytes, *, where: str, name: str) -> JsonObject:
    """Parse a JSON object. Errors carry `where` (a full path), findings `name` (as the report shows the file)."""
    plain = _parse_plain(data)
    if plain is not None:
        return JsonObject(plain)
    text, findings = _decode(data, where, name)
    oddities = _Oddities()
    try:
        value = json.loads(
            text,
            object_pairs_hook=oddities.pairs,
            parse_constant=oddities.number,
            parse_float=oddities.number,
        )
    except json.JSONDecodeError as error:
        raise InputError(
            f"not valid JSON: {error.msg}",
            where=f"{where}:{error.lineno}:{error.colno}",
            hint=_syntax_hint(text, error.pos),
        ) from None
    except RecursionError:
        raise InputError("not usable JSON: nested too deeply", where=where) from None
    except ValueError as error:  # an integer of thousands of digits
        raise InputError(f"not usable JSON: {error}", where=where) from None
    if not isinstance(value, dict):
        raise InputError(f"must hold a JSON object, but holds {_kind(value)}", where=where)
    _refuse_half_characters(text, value, where)
    if oddities.seen:
        findings += tuple(_locate_oddities(text, name))
    return JsonObject(value, findings)


def _parse_plain(data: bytes) -> dict[str, Any] | None:
    """The object where the text has no oddity, by a faster reader; None where there may be one to look for.

    Without escapes a text has two quotes for each string, so a repeated key shows as a string that is not there.
    """
    if b"\\" in data:
        return None
    try:
        value = msgspec.json.decode(data)
        plain = isinstance(value, dict) and data.count(b'"') == 2 * _count_strings(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value if plain else None


def _count_strings(value: dict[str, Any] | list[Any]) -> int:
    """Keys and strings of a parsed text."""
    keys = len(value) if isinstance(value, dict) else 0
    values = value.values() if isinstance(value, dict) else value
    if set(map(type, values)) == {str}:  # half a million strings in one object are counted without a loop
        return keys + len(values)
    inside = sum(_count_strings(inner) for inner in values if isinstance(inner, (dict, list)))
    return keys + inside + sum(isinstance(inner, str) for inner in values)


def _decode(data: bytes, where: str, name: str) -> tuple[str, tuple[Finding, ...]]:
    refuse_lfs_pointer(data, where)
    if data.startswith(_WIDE_BOMS):
        raise InputError("not UTF-8: the file starts with a UTF-16 mark", where=where, hint="save it as UTF-8")
    findings: tuple[Finding, ...] = ()
    if data.startswith(_UTF8_BOM):
        data = data[len(_UTF8_BOM) :]
        message = "the file starts with a byte-order mark, which strict JSON readers refuse"
        findings = (Finding("json-byte-order-mark", "note", f"{name}:1:1", message, "save it without the mark"),)
    if not data.strip(b" \t\r\n\0"):
        what = "is empty" if not data else "holds nothing but blanks"
        raise InputError(f"{what} ({len(data):,} bytes)", where=where, hint="the download was interrupted?")
    try:
        return data.decode("utf-8"), findings
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"not UTF-8 text (byte {error.start:,})", where=f"{where}:{line}") from None


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names: dict[type, str] = {list: "a list", str: "a string", int: "a number", float: "a number"}
    return names[type(value)]


def _syntax_hint(text: str, position: int) -> str:
    if position >= len(text.rstrip()):
        return "the text ends too early: was the download cut short?"
    char = text[position]
    before = text[:position].rstrip()
    if text.startswith(("//", "/*", "#"), position):
        return "JSON has no comments"
    if char == "'":
        return "JSON strings take double quotes"
    if before.endswith(",") and char in "}]":
        return "there is a comma too many before this point"
    return ""


def _refuse_half_characters(text: str, value: object, where: str) -> None:
    """An escape such as "\\ud800" alone is no character; nothing that holds one can be written out again."""
    if "\\ud" not in text and "\\uD" not in text:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise InputError("a string holds half of a surrogate pair (\\ud800 to \\udfff)", where=where) from None


@dataclass(slots=True)
class _Oddities:
    """Hooks of `json.loads` that only notice; where it happened is looked up afterwards, if at all."""

    seen: bool = False

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        self.seen |= len(value) != len(pairs)
        return value

    def number(self, token: str) -> float:
        number = float(token)
        self.seen |= not math.isfinite(number)
        return number


@dataclass(slots=True)
class _Frame:
    """One open object or list of the scan; `lines` remembers where each key was first seen."""

    key: str = ""
    lines: dict[str, int] = field(default_factory=dict)


def _locate_oddities(text: str, name: str) -> Iterator[Finding]:
    """Scan valid JSON once more for repeated keys and non-finite numbers, with line, column and dotted key."""
    frames: list[_Frame] = []
    last, last_where = "", ""
    line, line_start, position = 1, 0, 0
    for match in _TOKEN.finditer(text):
        token, start = match.group(), match.start()
        if newlines := text.count("\n", position, start):
            line, line_start = line + newlines, text.rindex("\n", position, start) + 1
        position, where = start, f"{name}:{line}:{start - line_start + 1}"
        if token in "{[":
            frames.append(_Frame())
        elif token in "}]":
            frames.pop()
        elif token == ":":
            frames[-1].key = key = json.loads(last)
            if key in frames[-1].lines:
                yield _repeated(frames, last_where)
            frames[-1].lines.setdefault(key, line)
        elif token[0] not in '",' and _is_not_finite(token):
            yield _non_finite(frames, token, where)
        last, last_where = token, where


def _is_not_finite(token: str) -> bool:
    return token not in ("true", "false", "null") and not math.isfinite(float(token))


def _path(frames: list[_Frame]) -> str:
    return ".".join(frame.key for frame in frames if frame.key)


def _repeated(frames: list[_Frame], where: str) -> Finding:
    first = frames[-1].lines[frames[-1].key]
    message = f"key {_path(frames)} is set twice, first on line {first}; the last value counts"
    return Finding("json-duplicate-key", "warning", where, message, "remove the one that is not meant")


def _non_finite(frames: list[_Frame], token: str, where: str) -> Finding:
    message = f"{_path(frames)} holds {token}, which is not JSON; strict readers (Rust, Go, browsers) refuse the file"
    return Finding("json-non-finite-number", "warning", where, message, "write null or leave the key out")
