"""Feed-forward blocks: dense gated MLPs and mixtures of experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

Activation = Literal["silu", "gelu", "gelu_tanh", "situ"]
Scoring = Literal["softmax", "sigmoid"]


@dataclass(frozen=True, slots=True)
class ActivationSpec:
    """The gate of a gated linear unit. SiTU bounds both branches: `beta` the gate's, `linear_beta` the other's."""

    name: Activation
    beta: float | None = None
    linear_beta: float | None = None


@dataclass(frozen=True, slots=True)
class DenseFeedForward:
    """Gated MLP: down(act(gate x) * up x)."""

    kind: ClassVar[str] = "dense"
    width: int
    activation: ActivationSpec
    bias: bool = False


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """How `top_k` of `num_experts` are chosen and weighed.

    With a correction bias the choice uses score + bias and the weights the unbiased scores (DeepSeek-V3). Group
    limiting applies only when `num_groups` > `topk_groups`.
    """

    num_experts: int
    top_k: int
    scoring: Scoring
    renormalize: bool
    scaling_factor: float = 1.0
    correction_bias: bool = False
    num_groups: int = 1
    topk_groups: int = 1


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """Mixture of gated MLPs, with shared experts as one MLP of `shared_width` beside them (0: none).

    `latent_dim` is the width the routed experts work at; None means the model's own. `latent_norm` normalises the
    weighted sum in latent space before it is projected back.
    """

    kind: ClassVar[str] = "moe"
    router: RouterSpec
    width: int
    activation: ActivationSpec
    shared_width: int = 0
    latent_dim: int | None = None
    latent_norm: bool = False


@dataclass(frozen=True, slots=True)
class NoFeedForward:
    """A layer that is only its mixer."""

    kind: ClassVar[str] = "none"


FeedForward = DenseFeedForward | RoutedExperts | NoFeedForward
