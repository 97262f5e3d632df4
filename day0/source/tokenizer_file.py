"""The ids of a tokenizer.json, without building the tokenizer; and small files that are not what their name says."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec

from day0.errors import Finding
from day0.source.json_text import MAX_JSON_BYTES, lfs_pointer_size

TOKENIZER_NAME = "tokenizer.json"
TOKENIZER_NAMES = (TOKENIZER_NAME, "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")
"""Files of which any one makes a tokenizer; tiktoken's vocabularies end in ".tiktoken" or "tiktoken.model"."""

_POINTER_BYTES = 1024
_SMALL_SUFFIXES = (".json", ".model", ".jinja", ".txt", ".tiktoken")


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """`entries` ids are given, the highest is `highest_id`; `added` are tokens beside the vocabulary proper, by id.

    `gaps` are the runs of ids below the highest that no token has, (first, last).
    """

    entries: int
    highest_id: int
    added: Mapping[int, str]
    gaps: tuple[tuple[int, int], ...] = ()


class _Added(msgspec.Struct):
    id: int
    content: str


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[tuple[str, float]] = msgspec.field(default_factory=dict)


class _Tokenizer(msgspec.Struct):
    model: _Model
    added_tokens: list[_Added] = msgspec.field(default_factory=list)


def tokenizer_facts(folder: Path | None) -> TokenizerFacts | None:
    """What tokenizer.json in `folder` says of its ids, None where there is none that can be read."""
    path = folder / TOKENIZER_NAME if folder is not None else None
    try:
        if path is None or not path.is_file() or path.stat().st_size > MAX_JSON_BYTES:
            return None
        parsed = msgspec.json.decode(path.read_bytes(), type=_Tokenizer)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    vocabulary = parsed.model.vocab
    ids = set(vocabulary.values()) if isinstance(vocabulary, dict) else set(range(len(vocabulary)))
    added = {token.id: token.content for token in parsed.added_tokens}
    ids |= added.keys()
    return TokenizerFacts(len(ids), max(ids, default=-1), added, gaps_between(ids))


def gaps_between(ids: Collection[int]) -> tuple[tuple[int, int], ...]:
    """Runs of numbers between the lowest and the highest that are not among `ids`, (first, last)."""
    ordered = sorted(ids)
    if not ordered or ordered[-1] - ordered[0] + 1 == len(ordered):
        return ()
    return tuple((low + 1, high - 1) for low, high in pairwise(ordered) if high - low > 1)


def damaged_files(folder: Path, names: Sequence[str], *, read: Sequence[str]) -> Iterator[Finding]:
    """Small files that are empty or a Git LFS pointer; those in `read` are left out, their reader reports them."""
    for name in names:
        if not name.endswith(_SMALL_SUFFIXES) or name in read:
            continue
        path = folder / name
        try:
            size = path.stat().st_size
            pointed = None
            if size <= _POINTER_BYTES:
                pointed = lfs_pointer_size(path.read_bytes())
        except OSError as error:
            yield Finding("unreadable-file", "warning", name, f"cannot be read: {error.strerror or error}")
            continue
        if size == 0:
            yield Finding("file-empty", "error", name, "has no bytes", "download it again")
        elif pointed is not None:
            text = "is a Git LFS pointer" + (f" for a file of {pointed:,} bytes" if pointed >= 0 else "")
            yield Finding(
                "file-is-pointer", "error", name, text, "run `git lfs pull` in the clone, or download the file"
            )
