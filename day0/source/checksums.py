"""Whether downloaded files are the ones that the hub lists: their sizes first, then their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from day0.errors import EnvironmentFault

_READERS = 4


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as the hub lists it: `sha256` of its bytes where Git LFS keeps them, else git's own hash `blob_id`."""

    name: str
    nbytes: int
    blob_id: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file whose bytes gave the digest that the hub lists."""

    name: str
    bytes: int
    algorithm: Literal["sha256", "git-sha1"]
    digest: str


def stored_names(folder: Path) -> frozenset[str]:
    """The files below `folder`, as the repository names them."""
    return frozenset(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def check_files(
    folder: Path, names: Iterable[str], listed: Mapping[str, Listed], *, where: str
) -> tuple[CheckedFile, ...]:
    """Check the named files of a cache snapshot. Those that differ are removed, so that nobody takes them for whole."""

    def check(name: str) -> CheckedFile | str:
        return _check_file(folder / name, name, listed.get(name))

    with ThreadPoolExecutor(_READERS) as pool:  # hashing leaves the interpreter to the other threads
        results = list(pool.map(check, sorted(names)))
    wrong = [result for result in results if isinstance(result, str)]
    if wrong:
        raise EnvironmentFault(
            f"not what the hub lists, and removed from the cache: {'; '.join(wrong)}",
            where=where,
            hint="run again to download it anew; if it happens again, suspect a proxy, a mirror or the disk",
        )
    return tuple(result for result in results if isinstance(result, CheckedFile))


def _check_file(path: Path, name: str, listed: Listed | None) -> CheckedFile | str:
    """The file with its digest, or what is wrong with it, after it was removed."""
    if listed is None:
        wrong = f"{name} (not listed)"
    elif (nbytes := path.stat().st_size) != listed.nbytes:
        wrong = f"{name} ({nbytes:,} bytes for {listed.nbytes:,})"
    else:
        checked = _digest(path, listed)
        if checked.digest == (listed.sha256 or listed.blob_id):
            return checked
        wrong = f"{name} ({checked.algorithm} {checked.digest[:12]} for {(listed.sha256 or listed.blob_id)[:12]})"
    for place in _places(path):
        place.unlink(missing_ok=True)
    return wrong


def _digest(path: Path, listed: Listed) -> CheckedFile:
    with path.open("rb") as file:
        if listed.sha256:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return CheckedFile(listed.name, listed.nbytes, "sha256", digest)
        # git hashes a blob after the word, its length in decimal digits and a zero byte
        start = hashlib.sha1(b"blob %d\0" % listed.nbytes, usedforsecurity=False)
        digest = hashlib.file_digest(file, start.copy).hexdigest()
        return CheckedFile(listed.name, listed.nbytes, "git-sha1", digest)


def _places(path: Path) -> Iterator[Path]:
    """The bytes in the cache, and the name in the snapshot that links to them."""
    yield path.resolve()
    yield path
