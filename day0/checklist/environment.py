"""Facts about the machine and software of a run, as evidence; nothing that a rerun would choose anew."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from day0.source.model_files import ModelFiles

_PACKAGES = ("day0", "torch", "transformers", "tokenizers", "safetensors", "numpy")
WHOLE_BYTES = 2**28
"""The largest input that is hashed whole; of a larger one its first mebibyte and its size are."""


def package_versions() -> dict[str, str]:
    """Versions of the packages that numbers depend on; those not installed are left out."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def machine_facts() -> dict[str, Any]:
    """Host facts; memory in bytes."""
    return {
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "versions": package_versions(),
    }


def input_hashes(files: ModelFiles) -> dict[str, dict[str, Any]]:
    """SHA-256 and size of every file of the model that lies here, by name; `hashed` says how many bytes went in."""
    if files.folder is None:
        return {}
    there = ((name, files.folder / name) for name in sorted(files.file_names))
    return {name: _hashed(path) for name, path in there if path.is_file()}


def _hashed(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= WHOLE_BYTES:
            return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "bytes": size, "hashed": size}
        start = file.read(2**20)
    return {"sha256": hashlib.sha256(start).hexdigest(), "bytes": size, "hashed": len(start)}
