"""Which files of ours a kernel is made of, and whether evidence still speaks of them and of what is installed here."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
KERNEL_ROOMS = ("day0.runtime.ops", "day0.runtime.quant")
"""Where the code of kernels is; what they import from elsewhere (records, formats) does not change their numbers."""
DIGITS = 12
"""Of a file's SHA-256, enough to see that it changed."""


def kernel_sources(module: str) -> dict[str, str]:
    """The files of a kernel's module and of those it imports, in turn, each with the start of its SHA-256."""
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        path = _file(waiting.pop())
        if path is not None and (name := path.relative_to(PACKAGE.parent).as_posix()) not in found:
            found[name] = _digest(path)
            waiting += _imports(path)
    return dict(sorted(found.items()))


def changed_sources(sources: Mapping[str, str]) -> tuple[str, ...]:
    """Those of the files that are not what they were, or are gone."""
    return tuple(
        name
        for name, digest in sources.items()
        if not (path := PACKAGE.parent / name).is_file() or _digest(path) != digest
    )


def other_versions(versions: Mapping[str, str]) -> tuple[str, ...]:
    """Packages installed here in another version than was measured with: "triton 3.7.1, measured with 3.6.0".

    What a package was built for ("2.11.0+cu130") counts where both tell it: some tell it only when they are imported.
    """
    found = []
    for name, measured in versions.items():
        try:
            here = version(name)
        except PackageNotFoundError:
            continue  # python itself, and what is not installed here
        told = "+" in here and "+" in measured
        if here != measured if told else here.partition("+")[0] != measured.partition("+")[0]:
            found.append(f"{name} {here}, measured with {measured}")
    return tuple(found)


def _file(module: str) -> Path | None:
    path = PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
    return path if path.is_file() else None


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(KERNEL_ROOMS):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:DIGITS]
