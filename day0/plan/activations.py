"""Peak bytes of what a forward pass holds besides weights and cache; `docs/memory.md` has the formulas in full."""

from __future__ import annotations

from day0.plan.layout import HEADED, Layout
from day0.plan.memory import RankNeed, element_size
from day0.profile.profile import (
    AttentionResidual,
    DenseFeedForward,
    FeedForward,
    GroupedQueryAttention,
    KimiDeltaAttention,
    LatentAttention,
    Mixer,
    NoFeedForward,
    NoMixer,
    RoutedExperts,
)

SIZED = (*HEADED, NoMixer, DenseFeedForward, RoutedExperts, NoFeedForward)
"""The parts of a layer that the formulas here and in `estimate.py` cover; of any other a plan cannot say."""


def forward_peak(need: RankNeed, tokens: int, inner_bytes: int | None = None) -> int:
    """Bytes while `tokens` pass the dearest layer: the residual stream and that layer's own tensors.

    `inner_bytes` is the size of an element inside a layer, for engines that work in float32 there.
    """
    element = element_size(need.profile)
    inner = inner_bytes or element
    hidden = need.profile.hidden_size
    dearest = max(
        max(
            mixer_elements(layer.mixer, hidden, need.layout),
            feed_forward_elements(layer.feed_forward, hidden, need.layout),
        )
        for layer in need.layers
    )
    return tokens * (element * stream_elements(need) + inner * dearest)


def stream_elements(need: RankNeed) -> int:
    """Per token: the residual sum and the layer input, and the snapshots that attention residuals still read."""
    hidden = need.profile.hidden_size
    return hidden * (2 + snapshots(need))


def snapshots(need: RankNeed) -> int:
    """Snapshots alive at the end of this rank's layers; those of earlier stages travel with the stream."""
    residual = need.profile.residual
    if not isinstance(residual, AttentionResidual):
        return 0
    return need.layers[-1].index // residual.block_size + 1


def mixer_elements(mixer: Mixer, hidden: int, layout: Layout) -> int:
    """Elements per token inside a mixer: projections, what attention reads and its output, on one rank."""
    if not isinstance(mixer, HEADED):
        return 0
    heads = -(-mixer.num_heads // layout.attention_tp)
    match mixer:
        case GroupedQueryAttention():
            kv_heads = -(-mixer.num_kv_heads // layout.attention_tp)
            gate = heads * mixer.value_dim if mixer.output_gate else 0
            return (mixer.head_dim + mixer.value_dim) * (heads + kv_heads) + gate + hidden
        case LatentAttention():
            # query and expanded key at full width, expanded value, output; the low-rank inputs are not cut
            per_head = 2 * mixer.qk_head_dim + 2 * mixer.v_head_dim + (mixer.v_head_dim if mixer.output_gate else 0)
            low_rank = (mixer.q_lora_rank or 0) + mixer.kv_lora_rank + mixer.qk_rope_head_dim
            return heads * per_head + low_rank + hidden
        case KimiDeltaAttention():
            # q, k, v before and after the convolution, float32 decay (two elements' worth), gate and output
            return heads * mixer.head_dim * (3 + 3 + 2 + 1 + 1) + hidden


def feed_forward_elements(spec: FeedForward, hidden: int, layout: Layout) -> int:
    """Elements per token of this rank's own batch: gate and up, their product, and the output."""
    if isinstance(spec, DenseFeedForward):
        return 3 * -(-spec.width // layout.tp) + hidden
    if not isinstance(spec, RoutedExperts):
        return 0
    width = spec.latent_dim or hidden
    # `top_k` rows a token, of all replicas that share the experts, dealt evenly over `ep`
    sharing = max(1, layout.ep * layout.expert_tp // layout.attention_tp)
    rows = spec.router.top_k * sharing / layout.ep
    routed = int(rows * (3 * -(-spec.width // layout.expert_tp) + 2 * width))
    shared = 3 * -(-spec.shared_width // layout.tp) + (hidden if spec.shared_width else 0)
    latent = width if spec.latent_dim else 0
    return routed + shared + latent + hidden


def logits_peak(need: RankNeed, rows: int, bytes_per_logit: int) -> int:
    """Bytes of `rows` rows of logits and what sampling makes of them; only the last stage has any."""
    return rows * need.profile.vocab_size * bytes_per_logit if need.is_last else 0


def stored_attention_bytes(need: RankNeed, rows: int, context: int) -> int:
    """Bytes of attention that stores its scores instead of streaming them, as our reference does, all in float32.

    The scores exist twice, before and after one pointwise step; the cached context of one sequence is gathered once.
    """
    attention = [layer for layer in need.layers if layer.cache_planes()]
    heads = max((layer.mixer.num_heads for layer in attention if isinstance(layer.mixer, HEADED)), default=0)
    gathered = max((sum(plane.elements for plane in layer.cache_planes()) for layer in attention), default=0)
    return 4 * context * (2 * rows * -(-heads // need.layout.attention_tp) + gathered)
