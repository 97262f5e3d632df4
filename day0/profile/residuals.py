"""Residual streams: how layers read from and add to what runs through the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class PlainResidual:
    """x + f(norm(x)), as in every pre-norm transformer."""

    kind: ClassVar[str] = "plain"


@dataclass(frozen=True, slots=True)
class AttentionResidual:
    """Attention residuals (Kimi K3): each read mixes the running sum with snapshots taken every `block_size` layers."""

    kind: ClassVar[str] = "attention_residual"
    block_size: int


Residual = PlainResidual | AttentionResidual
