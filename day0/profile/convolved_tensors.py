"""The tensors of attention with short convolutions, by paths relative to the layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from day0.profile.draft import Draft
from day0.profile.grouped_query_tensors import grouped_query_drafts
from day0.profile.linear_tensors import mamba2_drafts
from day0.profile.mixers_convolved import (
    BranchConvolution,
    CompressedConvolutionalAttention,
    ParallelMixers,
    RelativeConvolvedAttention,
)

_CONV = "linear_mixer"


def compressed_convolutional_drafts(spec: CompressedConvolutionalAttention, hidden: int) -> Iterator[Draft]:
    """The projections into the compressed space count with the convolutions, what follows as attention."""
    heads, kv_heads, half = spec.num_heads, spec.num_kv_heads, spec.key_width // 2
    for name, width, units in (
        ("q_proj", spec.query_width, heads),
        ("k_proj", spec.key_width, kv_heads),
        ("v_proj", half, kv_heads),
        ("v_delayed_proj", half, kv_heads),
    ):
        yield Draft(f"mixer.{name}.weight", (width, hidden), _CONV, 0, units)
        if spec.bias:
            yield Draft(f"mixer.{name}.bias", (width,), _CONV, 0, units)
    first, second = spec.conv_kernels
    # Channels are queries, then keys: cut between heads of both.
    yield Draft("mixer.conv.weight", (spec.conv_width, 1, first), _CONV, 0, kv_heads)
    yield Draft("mixer.conv.bias", (spec.conv_width,), _CONV, 0, kv_heads)
    yield Draft("mixer.head_conv.weight", (spec.conv_width, spec.head_dim, second), _CONV, 0, kv_heads)
    yield Draft("mixer.head_conv.bias", (spec.conv_width,), _CONV, 0, kv_heads)
    yield Draft("mixer.key_scale", (kv_heads,), "attention", 0, kv_heads)
    yield Draft("mixer.o_proj.weight", (hidden, spec.query_width), "attention", 1, heads)
    if spec.bias:
        yield Draft("mixer.o_proj.bias", (hidden,), "attention")


def relative_convolved_drafts(spec: RelativeConvolvedAttention, hidden: int) -> Iterator[Draft]:
    heads, kv_heads, query = spec.num_heads, spec.num_kv_heads, spec.num_heads * spec.head_dim
    for name, width, units in (
        ("q", query, heads),
        ("k", spec.key_width, kv_heads),
        ("v", spec.key_width, kv_heads),
        ("r", heads * spec.relative_dim, heads),
    ):
        yield Draft(f"mixer.{name}_proj.weight", (width, hidden), "attention", 0, units)
    yield Draft("mixer.o_proj.weight", (hidden, query), "attention", 1, heads)
    for axis in "kv":
        yield Draft(f"mixer.{axis}_conv.weight", (spec.key_width, 1, spec.conv_kernel), _CONV, 0, kv_heads)
    for axis in "qk":
        yield Draft(f"mixer.{axis}_norm.weight", (spec.head_dim,), "attention")
    yield Draft("mixer.distance_profiles", (spec.relative_dim, spec.relative_extent), "attention")


def parallel_drafts(spec: ParallelMixers, hidden: int) -> Iterator[Draft]:
    """Those of both, each under a name of its own within the mixer."""
    for name, drafts in (
        ("attention", grouped_query_drafts(spec.attention, hidden)),
        ("state_space", mamba2_drafts(spec.state_space, hidden)),
    ):
        for draft in drafts:
            yield replace(draft, path=f"mixer.{name}." + draft.path.removeprefix("mixer."))


def branch_convolution_drafts(spec: BranchConvolution) -> Iterator[Draft]:
    for branch in ("mixer", "ffn"):
        yield Draft(f"{branch}_conv.weight", (spec.width, 1, spec.conv_kernel), _CONV, 0, spec.width)


CONVOLVED_DRAFTS: Mapping[type, Callable[[Any, int], Iterator[Draft]]] = {
    CompressedConvolutionalAttention: compressed_convolutional_drafts,
    RelativeConvolvedAttention: relative_convolved_drafts,
    ParallelMixers: parallel_drafts,
}
"""Called with the spec and the model's hidden size."""
