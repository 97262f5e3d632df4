"""Residual streams: how layers read from and add to what runs through the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from day0.profile.hyper_connections import HyperConnections


@dataclass(frozen=True, slots=True)
class PlainResidual:
    """x + branch_scale f(norm(x)), as in every pre-norm transformer. `branch_scale` is 1 but for Granite's line."""

    kind: ClassVar[str] = "plain"
    branch_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class AttentionResidual:
    """Attention residuals (Kimi K3): each read mixes the running sum with snapshots taken every `block_size` layers."""

    kind: ClassVar[str] = "attention_residual"
    block_size: int


@dataclass(frozen=True, slots=True)
class ScaledResidual:
    """A plain residual whose stream is multiplied by one learnt number after each layer (Gemma 4)."""

    kind: ClassVar[str] = "scaled"


@dataclass(frozen=True, slots=True)
class GatedResidual:
    """Per channel, a x + b f(norm(x)), b = sigmoid(gate / temperature), a = sqrt(max(1 - b^2, eps)) (Muse Spark).

    The gate is a learnt vector for each of a layer's two branches.
    """

    kind: ClassVar[str] = "gated"
    temperature: float
    eps: float = 1e-3


@dataclass(frozen=True, slots=True)
class ParallelResidual:
    """x + mixer(norm(x)) + feed-forward(norm(x)): both branches read one norm and are added at once (GPT-J, Cohere)."""

    kind: ClassVar[str] = "parallel"
    branch_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class WeighedResidual:
    """skip x + branch f(norm(x)) with fixed factors per branch; with `normed`, norm(x) in x's place (MiniMax-01)."""

    kind: ClassVar[str] = "weighed"
    mixer_skip: float
    mixer_branch: float
    ffn_skip: float
    ffn_branch: float
    normed: bool = True


@dataclass(frozen=True, slots=True)
class AffineResidual:
    """a (x + b) + c (f(norm(x)) + d) with learnt vectors, a set for each branch, in float32 (ZAYA).

    The embeddings are shifted and scaled the same way before the first layer.
    """

    kind: ClassVar[str] = "affine"


Residual = (
    PlainResidual
    | AttentionResidual
    | ScaledResidual
    | GatedResidual
    | ParallelResidual
    | HyperConnections
    | WeighedResidual
    | AffineResidual
)
