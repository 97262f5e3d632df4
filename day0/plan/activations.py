"""Peak bytes of what a forward pass holds besides weights and cache; `docs/memory.md` has the formulas in full."""

from __future__ import annotations

from day0.plan.layout import Layout
from day0.plan.memory import RankNeed, element_size
from day0.plan.mixer_sizes import SIZED_MIXERS, attention_heads, latent_part, mixer_elements
from day0.profile.mixers_linear import LinearMap
from day0.profile.mixers_sparse import SparseLatentAttention
from day0.profile.profile import (
    AttentionResidual,
    DenseFeedForward,
    FeedForward,
    HyperConnections,
    Mixer,
    NoFeedForward,
    RoutedExperts,
)

SIZED = (*SIZED_MIXERS, DenseFeedForward, RoutedExperts, LinearMap, NoFeedForward)
"""The parts of a layer that the formulas here and in `estimate.py` cover; of any other a plan cannot say."""

SCORES_AT_ONCE = 1 << 24
"""Scores that the runtime's latent attention keeps at a time (`runtime/ops/latent_attention.py`)."""


def forward_peak(need: RankNeed, tokens: int, inner_bytes: int | None = None) -> int:
    """Bytes while `tokens` pass the dearest layer: the residual stream and that layer's own tensors.

    `inner_bytes` is the size of an element inside a layer, for engines that work in float32 there.
    """
    element = element_size(need.profile)
    inner = inner_bytes or element
    hidden = need.profile.hidden_size
    dearest = max(
        max(
            mixer_elements(layer.mixer, hidden, need.layout.attention_tp),
            feed_forward_elements(layer.feed_forward, hidden, need.layout),
        )
        for layer in need.layers
    )
    return tokens * (element * stream_elements(need) + inner * dearest)


def stream_elements(need: RankNeed) -> int:
    """Per token: the residual sum (or sums) and the layer input, and the snapshots attention residuals still read."""
    residual = need.profile.residual
    # mixing several streams makes a second copy of them all
    streams = 2 * residual.streams if isinstance(residual, HyperConnections) else 1
    return need.profile.hidden_size * (1 + streams + snapshots(need))


def snapshots(need: RankNeed) -> int:
    """Snapshots alive at the end of this rank's layers; those of earlier stages travel with the stream."""
    residual = need.profile.residual
    if not isinstance(residual, AttentionResidual):
        return 0
    return need.layers[-1].index // residual.block_size + 1


def feed_forward_elements(spec: FeedForward, hidden: int, layout: Layout) -> int:
    """Elements per token of this rank's own batch: gate and up, their product, and the output."""
    if isinstance(spec, DenseFeedForward):
        return (3 if spec.gated else 2) * -(-spec.width // layout.tp) + hidden
    if not isinstance(spec, RoutedExperts):
        return hidden if isinstance(spec, LinearMap) else 0
    width = spec.latent_dim or hidden
    # `top_k` rows a token, of all replicas that share the experts, dealt evenly over `ep`
    sharing = max(1, layout.ep * layout.expert_tp // layout.attention_tp)
    rows = spec.router.top_k * sharing / layout.ep
    parts = 3 if spec.gated else 2
    routed = int(rows * (parts * -(-spec.width // layout.expert_tp) + 2 * width))
    shared = parts * -(-spec.shared_width // layout.tp) + (hidden if spec.shared_width else 0)
    latent = width if spec.latent_dim else 0
    beside = feed_forward_elements(spec.parallel, hidden, layout) if spec.parallel is not None else 0
    return routed + shared + latent + hidden + beside


def logits_peak(need: RankNeed, rows: int, bytes_per_logit: int) -> int:
    """Bytes of `rows` rows of logits and what sampling makes of them; only the last stage has any."""
    return rows * need.profile.vocab_size * bytes_per_logit if need.is_last else 0


def stored_attention_bytes(need: RankNeed, rows: int, context: int) -> int:
    """Bytes of attention that stores its scores instead of streaming them, as our reference does, all in float32.

    The cached context of one sequence is gathered once, beside what `_stored_scores` counts.
    """
    cut = need.layout.attention_tp
    largest = 0
    for layer in {layer.mixer: layer for layer in need.layers if layer.cache_planes()}.values():
        cached = sum(plane.elements for plane in layer.cache_planes())
        heads = -(-attention_heads(layer.mixer) // cut)
        largest = max(largest, _stored_scores(layer.mixer, heads, cached, rows, context) + context * cached)
    return 4 * largest


def _stored_scores(mixer: Mixer, heads: int, cached: int, rows: int, context: int) -> int:
    """Numbers that exist at once while `rows` tokens attend.

    Scores exist twice, before and after one pointwise step, and once more with a column for sinks. Latent attention
    takes so many rows in turn that their scores are `SCORES_AT_ONCE`: three times in the first turn, and two of the
    turn before beside two of its own in the others. Where an indexer chose, the dearer of its
    products and the chosen rows counts, which are taken in turns as well.
    """
    row = heads * context
    if isinstance(mixer, SparseLatentAttention):
        products = _in_turn(rows, mixer.indexer.num_heads * context) if mixer.indexer is not None else 0
        totals = 2 * products // mixer.indexer.num_heads if mixer.indexer is not None else 0
        return max(products + totals, 3 * _in_turn(rows, mixer.top_k * (heads + cached)))
    if latent_part(mixer) is None:
        return rows * row * (3 if getattr(mixer, "sinks", False) else 2)
    first = _in_turn(rows, row)
    return 2 * first + max(first, 2 * min(first, rows * row - first))


def _in_turn(rows: int, row: int) -> int:
    """Numbers of the rows that are taken at once, one row at the least."""
    return min(rows * row, max(SCORES_AT_ONCE, row))
