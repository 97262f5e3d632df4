"""Which part of each traced tensor a rank has: all of it, a term of a sum, or pieces along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from day0.profile.feed_forward import FeedForward, RoutedExperts
from day0.profile.grouped_query import GroupedQueryAttention
from day0.profile.mixers import Mixer
from day0.profile.mixers_convolved import ParallelMixers
from day0.profile.mixers_linear import GatedDeltaNet, Mamba2
from day0.profile.mixers_sparse import BlockSparseAttention
from day0.profile.profile import LayerSpec
from day0.runtime.parallel.layout import Layout, Place, even_share
from day0.runtime.parallel.local_specs import is_whole

BY_HEAD = frozenset(
    (
        *("q", "k", "v", "k_nope", "attention", "gate", "gated", "decay_in", "decay", "beta"),
        *("q_conv", "k_conv", "v_conv", "conv", "input_gate", "steps_in", "scan"),
    )
)
"""Points of a mixer whose axis 1 is shared out: heads, or channels in the order of heads."""
BY_HEAD_FIRST = frozenset(("probs", "state"))
"""Those whose axis 0 is."""
BY_GROUP = frozenset(("b", "c"))
BY_INDEX_HEAD = frozenset(("index_q", "index_scores", "topk_blocks"))
TERMS = frozenset(("state_space_out", "attention_out"))
BY_ROW = frozenset(("latent_in", "routed_sum", "latent_norm", "routed_out"))
"""Points of a mixture whose rows are shared out where its experts are dealt whole."""


@dataclass(frozen=True, slots=True)
class TracedShare:
    """`axis` None: the rank has the whole, or, where `summed`, one term of it.

    `pieces` are (start in the whole, length) of what lies along `axis` in the rank's tensor, one after another; several
    ranks may have the same.
    """

    axis: int | None = None
    pieces: tuple[tuple[int, int], ...] = ()
    summed: bool = False

    def of(self, whole: torch.Tensor) -> torch.Tensor:
        """This rank's part of a tensor that is whole; of a sum there is no such part."""
        assert not self.summed, "a term cannot be told from its sum"
        if self.axis is None:
            return whole
        return torch.cat([whole.narrow(self.axis, start, length) for start, length in self.pieces], dim=self.axis)


WHOLE, TERM = TracedShare(), TracedShare(summed=True)


def traced_share(
    layers: Sequence[LayerSpec], layout: Layout, place: Place, name: str, rows: int, shape: Sequence[int] | None = None
) -> TracedShare:
    """What a rank at `place` has of trace point `name`, as docs/trace-points.md lists them.

    `layers` are the model's, uncut; `rows` the tokens of the step; `shape` that of the rank's own tensor, None where
    it is asked for before there is one, which only whole numbers are (choices).
    """
    head, _, rest = name.partition(".")
    if head != "layers" or layout.tp == 1:
        return WHOLE
    number, _, operator = rest.partition(".")
    part, _, point = operator.partition(".")
    layer = layers[int(number)]
    if part == "mixer" and point and not is_whole(layer.mixer):
        return _of_mixer(layer.mixer, layout, place, point, shape)
    if part == "ffn" and point and isinstance(layer.feed_forward, RoutedExperts):
        return _of_experts(layer.feed_forward, layout, place, point, rows)
    return WHOLE


def _of_mixer(mixer: Mixer, layout: Layout, place: Place, point: str, shape: Sequence[int] | None) -> TracedShare:
    attention = mixer.attention if isinstance(mixer, BlockSparseAttention | ParallelMixers) else mixer
    shares, axis = layout.tp, 1
    if isinstance(mixer, ParallelMixers) and point in TERMS:
        return TERM
    if point == "conv_state":
        return _conv_state(mixer, layout, place, shape)
    if isinstance(mixer, BlockSparseAttention) and point in BY_INDEX_HEAD:
        shares = min(shares, mixer.indexer.num_heads)
        if shape is None:
            return _even(mixer.indexer.num_heads // shares, shares, layout, place, axis)
    elif isinstance(attention, GroupedQueryAttention) and point in ("k", "v"):
        shares = min(shares, attention.num_kv_heads)
    elif point in BY_GROUP and (space := _state_space(mixer)) is not None:
        shares = min(shares, space.num_groups)
    elif point in BY_HEAD_FIRST:
        axis = 0
    elif point not in BY_HEAD:
        return WHOLE
    if shape is None:
        return WHOLE
    return _even(shape[axis], shares, layout, place, axis)


def _state_space(mixer: Mixer) -> Mamba2 | None:
    if isinstance(mixer, ParallelMixers):
        return mixer.state_space
    return mixer if isinstance(mixer, Mamba2) else None


def _conv_state(mixer: Mixer, layout: Layout, place: Place, shape: Sequence[int] | None) -> TracedShare:
    """The last inputs of convolutions; where several lie side by side in one axis, each is cut by itself."""
    assert shape is not None, "states are no choices"
    space = _state_space(mixer)
    if space is not None:
        groups = space.num_groups * space.state_size
        kept = min(layout.tp, space.num_groups)
        parts = ((space.width, layout.tp), (groups, kept), (groups, kept))
    elif isinstance(mixer, GatedDeltaNet):
        keys, values = (mixer.key_width, layout.tp), (mixer.value_width, layout.tp)
        parts = (keys, keys, values)
    else:
        axis = 1 if len(shape) == 3 else 0  # three convolutions one behind another, or one
        return _even(shape[axis], layout.tp, layout, place, axis)
    pieces, before = [], 0
    for width, shares in parts:
        length = width // shares
        pieces.append((before + length * (place.slice * shares // layout.tp), length))
        before += width
    return TracedShare(0, tuple(pieces))


def _even(length: int, shares: int, layout: Layout, place: Place, axis: int) -> TracedShare:
    """One of `shares` pieces of a length, in the order of ranks; neighbours have the same where ranks are more."""
    return TracedShare(axis, ((length * (place.slice * shares // layout.tp), length),))


def _of_experts(spec: FeedForward, layout: Layout, place: Place, point: str, rows: int) -> TracedShare:
    assert isinstance(spec, RoutedExperts)
    if point == "shared_out":
        return TERM
    if point in BY_ROW and layout.ep > 1:
        own = even_share(rows, layout.tp, place.slice)
        return TracedShare(0, ((own.start, len(own)),))
    summed_before = spec.latent_norm  # the norm reads the sum of all ranks
    return TERM if point in ("routed_sum", "routed_out") and not summed_before else WHOLE
