"""The baseline record that later runs are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from day0.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Measurements of an earlier run by check id. `key` says of what: model, device, versions, checklist."""

    schema: str = "day0.baseline/1"
    key: dict[str, str]
    measured: dict[str, dict[str, Any]]


def read_baseline(path: Path, key: Mapping[str, str]) -> Baseline:
    """Read a baseline; one of another model, device, version or checklist is refused."""
    try:
        baseline = msgspec.json.decode(path.read_bytes(), type=Baseline)
    except OSError as fault:
        raise InputError(f"cannot read the baseline: {fault.strerror}", where=str(path)) from fault
    except msgspec.DecodeError as fault:
        raise InputError(f"not a baseline: {fault}", where=str(path)) from None
    for name in sorted({*key, *baseline.key}):
        if key.get(name) != baseline.key.get(name):
            raise InputError(
                f"the baseline is of another {name}: {baseline.key.get(name)!r}, this run is {key.get(name)!r}",
                where=str(path),
                hint="compare like with like, or write a new one with --save-baseline",
            )
    return baseline
