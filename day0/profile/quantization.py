"""How weights are packed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuantizationSpec:
    """How some weights are packed. `format` is "mxfp4"; `targets` names parameter groups of `parameters.py`."""

    method: str
    format: str
    group_size: int
    targets: tuple[str, ...]
