"""Feed-forward blocks: dense gated MLPs and mixtures of experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from day0.profile.mixers_linear import LinearMap

Activation = Literal["silu", "gelu", "gelu_tanh", "situ", "swiglu_oai", "silu_clamped", "relu2"]
Scoring = Literal["softmax", "sigmoid", "sqrtsoftplus", "sparsemixer"]
"""Of the router's logits. "sqrtsoftplus" is sqrt(log(1 + exp(x))) (DeepSeek-V4). "sparsemixer" is softmax over the
logits near enough to the largest, one choice at a time (SparseMixer-v2, Phi-3.5-MoE)."""


@dataclass(frozen=True, slots=True)
class ActivationSpec:
    """The gate of a gated linear unit. SiTU bounds both branches: `beta` the gate's, `linear_beta` the other's.

    "swiglu_oai" (gpt-oss) is g sigmoid(alpha g) (u + 1). Where `limit` is a number g and u are clamped at it before
    anything else, u from below too. "silu_clamped" clamps silu(g) instead of g (Ling 3).
    """

    name: Activation
    beta: float | None = None
    linear_beta: float | None = None
    alpha: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class DenseFeedForward:
    """Gated MLP: down(act(gate x) * up x), or down(act(up x)) where it is not `gated`.

    `global_scale` multiplies the output by a learnt number (Inkling), `gate_scale` what the activation reads and
    `down_scale` the output by fixed ones (Falcon-H1).
    """

    kind: ClassVar[str] = "dense"
    width: int
    activation: ActivationSpec
    bias: bool = False
    gated: bool = True
    global_scale: bool = False
    gate_scale: float = 1.0
    down_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class RouterMlp:
    """A router that is more than one matrix (ZAYA): down to `width` channels, RMS norm, two GELU layers, then logits.

    With `carried` the down-projection of the layer before is added, scaled by a learnt vector.
    """

    width: int
    carried: bool


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """How `top_k` of `num_experts` are chosen and weighed.

    With a correction bias the choice uses score + bias and the weights the unbiased scores (DeepSeek-V3). Group
    limiting applies only when `num_groups` > `topk_groups`; a group counts by its two best experts together, or by
    its best one alone where `best_of_group` (DeepSeek-V2).
    `bias` is added to the logits themselves; `logit_scale` multiplies and `logit_softcap` bounds them. `choose_logits`
    adds the correction bias to logits instead of scores. `scaled_input` reads the hidden state after an RMS norm
    without weight, times a learnt vector and hidden_size**-0.5; `expert_scales` multiplies each expert's weight by a
    learnt number (both Gemma 4). `hash_rows` > 0 takes the experts from a stored table of so many rows by token id
    instead of choosing; the scores still weigh them (DeepSeek-V4's first layers).
    `skip` is one more choice that computes nothing (ZAYA). `shared_choices` more rows score the shared experts, which
    are always chosen and share the weights out with the routed ones; `global_scale` multiplies all weights by a learnt
    number (both Inkling).
    """

    num_experts: int
    top_k: int
    scoring: Scoring
    renormalize: bool
    scaling_factor: float = 1.0
    correction_bias: bool = False
    num_groups: int = 1
    topk_groups: int = 1
    bias: bool = False
    logit_scale: float = 1.0
    logit_softcap: float | None = None
    choose_logits: bool = False
    scaled_input: bool = False
    expert_scales: bool = False
    best_of_group: bool = False
    hash_rows: int = 0
    mlp: RouterMlp | None = None
    skip: bool = False
    shared_choices: int = 0
    global_scale: bool = False


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """Mixture of gated MLPs, with shared experts as one MLP of `shared_width` beside them (0: none).

    `latent_dim` is the width the routed experts work at; None means the model's own. `latent_norm` normalises the
    weighted sum in latent space before it is projected back; `latent_input_norm` what enters that space, and
    `expert_norm` each expert's output before it is weighed. `bias` is on the routed experts' projections,
    `shared_bias` on the shared ones'; `shared_gate` multiplies the shared output by sigmoid(one row x) (Qwen2-MoE).
    `weights_on_input` weighs what an expert reads instead of what it gives (Llama 4). `parallel` is a dense MLP that
    reads the same stream beside the experts, each with norms of its own (Gemma 4). Experts, shared ones too, that
    are not `gated` are down(act(up x)). `shared_activation` None means that of the routed experts.
    """

    kind: ClassVar[str] = "moe"
    router: RouterSpec
    width: int
    activation: ActivationSpec
    shared_width: int = 0
    latent_dim: int | None = None
    latent_norm: bool = False
    latent_input_norm: bool = False
    expert_norm: bool = False
    bias: bool = False
    shared_bias: bool = False
    shared_gate: bool = False
    weights_on_input: bool = False
    parallel: DenseFeedForward | None = None
    shared_activation: ActivationSpec | None = None
    gated: bool = True


@dataclass(frozen=True, slots=True)
class NoFeedForward:
    """A layer that is only its mixer."""

    kind: ClassVar[str] = "none"


FeedForward = DenseFeedForward | RoutedExperts | LinearMap | NoFeedForward
