"""Facts about the machine and software of a run, as evidence; nothing that a rerun would choose anew."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

_PACKAGES = ("day0", "torch", "transformers", "tokenizers", "safetensors", "numpy")


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
