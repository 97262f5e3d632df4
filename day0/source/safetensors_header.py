"""The header of a safetensors file, read without its weights and checked as input from a stranger.

A file is an 8-byte little-endian length, that many bytes of JSON (`name -> dtype, shape, data_offsets`), then the
tensors one after another without gaps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from day0.errors import InputError
from day0.source.json_text import refuse_lfs_pointer
from day0.source.model_files import DTYPE_BITS, TensorHeader

MAX_HEADER_BYTES = 100_000_000
"""The limit of the format's reference reader."""

PREFIX_BYTES = 8
_METADATA = "__metadata__"
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Entry(msgspec.Struct, gc=False):
    dtype: str
    shape: tuple[_Count, ...]
    data_offsets: tuple[_Count, _Count]


class _KnownEntry(_Entry, gc=False):
    """An entry of a dtype that we know: one string for all that share it, which is quicker than one for each."""

    dtype: Literal[tuple(DTYPE_BITS)]  # type: ignore[valid-type]


_ENTRIES = msgspec.json.Decoder(dict[str, _KnownEntry])
_RAW_ENTRIES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRY = msgspec.json.Decoder(_Entry)
_TEXT_MAP = msgspec.json.Decoder(dict[str, str])


@dataclass(frozen=True, slots=True)
class ShardHeader:
    """All tensors of one shard by name, the bytes that they take together, and the free text its writer left."""

    tensors: Mapping[str, TensorHeader]
    nbytes: int
    metadata: Mapping[str, str]


def read_header(path: Path, *, shard: str) -> ShardHeader:
    """Read and check the header of a local file. `shard` is the name its tensors will carry."""
    where = str(path)
    if not path.is_file():
        raise InputError("is not a file" if path.exists() else "no such file", where=where)
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            prefix = file.read(PREFIX_BYTES)
            if prefix[:7] == b"version":
                refuse_lfs_pointer(prefix + file.read(1024), where)
            return parse_header(prefix + file.read(header_length(prefix, size, where)), size, shard=shard, where=where)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=where) from None


def header_length(prefix: bytes, file_size: int, where: str) -> int:
    """The length of the JSON header, from the first bytes of a file of `file_size` bytes."""
    if file_size < PREFIX_BYTES or len(prefix) < PREFIX_BYTES:
        what = "is empty" if file_size == 0 else f"has {file_size} bytes, too few for a safetensors file"
        raise InputError(f"{what} (truncated?)", where=where, hint="download the file again")
    length = int.from_bytes(prefix[:PREFIX_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        raise InputError(
            f"declares a header of {length:,} bytes, more than the {MAX_HEADER_BYTES:,} the format allows",
            where=where,
            hint="this is probably not a safetensors file",
        )
    if PREFIX_BYTES + length > file_size:
        raise InputError(
            f"is truncated inside its header: {file_size:,} bytes, at least {PREFIX_BYTES + length:,} expected",
            where=where,
            hint="download the file again",
        )
    return length


def parse_header(data: bytes, file_size: int, *, shard: str, where: str) -> ShardHeader:
    """Check the first bytes of a file (`data` holds prefix and header at least) of `file_size` bytes in all."""
    refuse_lfs_pointer(data, where)
    length = header_length(data, file_size, where)
    assert len(data) >= PREFIX_BYTES + length, "the caller reads the whole header"
    text = data[PREFIX_BYTES : PREFIX_BYTES + length]
    entries, metadata = _decode_header(text, where)
    _refuse_duplicates(text, entries, metadata, where)
    data_start = PREFIX_BYTES + length
    tensors, end = _place_tensors(entries, data_start, shard, where)
    if end != file_size:
        _check_coverage(tensors, data_start, file_size, where)
    return ShardHeader(tensors, file_size - data_start, metadata)


def _decode_header(text: bytes, where: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Entries and metadata: all at once where the text is as writers write it, else one by one to name the culprit."""
    if not text.startswith(b"{"):
        raise InputError("the header is not a JSON object: not a safetensors file", where=where)
    try:
        metadata, rest = _cut_metadata(text)
        return _ENTRIES.decode(rest), metadata
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_one_by_one(text, where)


def _cut_metadata(text: bytes) -> tuple[dict[str, str], bytes]:
    """The metadata where it stands first, and the header without it."""
    start = b'{"%s":' % _METADATA.encode()
    end = text.find(b"}") + 1
    if not text.startswith(start) or text[end : end + 2] != b',"':
        return {}, text
    return _TEXT_MAP.decode(text[len(start) : end]), b"{" + text[end + 1 :]


def _decode_one_by_one(text: bytes, where: str) -> tuple[dict[str, _Entry], dict[str, str]]:
    try:
        raw = _RAW_ENTRIES.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the header is not valid JSON: {error}", where=where) from None
    metadata = _decode_metadata(raw.pop(_METADATA, None), where)
    entries: dict[str, _Entry] = {}
    for name, entry in raw.items():
        try:
            entries[name] = _ENTRY.decode(entry)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"tensor {name}: {error}", where=where) from None
    return entries, metadata


def _decode_metadata(raw: msgspec.Raw | None, where: str) -> dict[str, str]:
    if raw is None:
        return {}
    try:
        return _TEXT_MAP.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise InputError(f"{_METADATA} must map text to text", where=where) from None


def _refuse_duplicates(text: bytes, entries: Mapping[str, _Entry], metadata: Mapping[str, str], where: str) -> None:
    """A name given twice hides a tensor. Counting one field of each entry is enough to see that all is well."""
    mentions = text.count(b'"data_offsets"') - ("data_offsets" in entries) - ("data_offsets" in metadata)
    if mentions == len(entries) and b"\\" not in text:
        return

    def refuse(pairs: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InputError(f"the header names {key!r} twice", where=where)
            seen.add(key)

    try:
        json.loads(text, object_pairs_hook=refuse)
    except (ValueError, RecursionError) as error:  # in a field that nothing else reads
        raise InputError(f"the header is not valid JSON: {error}", where=where) from None


def _place_tensors(
    entries: dict[str, Any], data_start: int, shard: str, where: str
) -> tuple[dict[str, TensorHeader], int | None]:
    """The tensors, and where in the file the last one ends; None where they do not follow each other in this order."""
    tensors = entries  # each entry gives way to its tensor: no second table of names
    # A model has few kinds of tensors: each is sized once, and half a million entries share its dtype and shape.
    kinds: dict[tuple[str, tuple[int, ...]], tuple[str, tuple[int, ...], int]] = {}
    position, in_order = 0, True
    for name, entry in entries.items():
        kind = kinds.get((entry.dtype, entry.shape))
        if kind is None:
            kind = (entry.dtype, entry.shape, _stored_bytes(entry, name, where))
            kinds[entry.dtype, entry.shape] = kind
        dtype, shape, expected = kind
        begin, end = entry.data_offsets
        if end - begin != expected:
            raise InputError(
                f"tensor {name}: {dtype} {list(shape)} takes {expected:,} bytes,"
                f" but its offsets [{begin}, {end}] hold {end - begin:,}",
                where=where,
            )
        if begin != position:
            in_order = False
        position = end
        tensors[name] = TensorHeader(dtype, shape, shard, data_start + begin, data_start + end)
    return tensors, data_start + position if in_order else None


def _stored_bytes(entry: _Entry, name: str, where: str) -> int:
    bits_each = DTYPE_BITS.get(entry.dtype)
    if bits_each is None:
        known = ", ".join(DTYPE_BITS)
        raise InputError(f"tensor {name}: unknown dtype {entry.dtype!r}", where=where, hint=f"known: {known}")
    bits = prod(entry.shape) * bits_each
    if bits % 8:
        raise InputError(f"tensor {name}: {entry.dtype} {list(entry.shape)} does not fill whole bytes", where=where)
    return bits // 8


def _check_coverage(tensors: Mapping[str, TensorHeader], data_start: int, file_size: int, where: str) -> None:
    """Every byte after the header belongs to exactly one tensor."""
    position, previous = data_start, ""
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != position:
            relation = "overlaps" if tensor.begin < position else "leaves a hole after"
            raise InputError(f"tensor {name} {relation} {previous or 'the header'}", where=where)
        position, previous = tensor.end, f"tensor {name}"
    if position > file_size:
        raise InputError(
            f"is truncated: {file_size:,} bytes, its header describes {position:,}",
            where=where,
            hint="download the file again",
        )
    if position < file_size:
        raise InputError(
            f"has {file_size - position:,} bytes that no tensor owns: {file_size:,} bytes,"
            f" its header describes {position:,}",
            where=where,
        )
