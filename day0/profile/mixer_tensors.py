"""The tensors of each token mixer, by paths relative to the layer: one function per spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.profile.convolved_tensors import CONVOLVED_DRAFTS
from day0.profile.draft import Draft
from day0.profile.grouped_query import CrossAttention, GroupedQueryAttention
from day0.profile.grouped_query_tensors import cross_attention_drafts, grouped_query_drafts
from day0.profile.latent_attention import LatentAttention
from day0.profile.latent_tensors import latent_drafts
from day0.profile.linear_tensors import LINEAR_DRAFTS
from day0.profile.mixers import KimiDeltaAttention, NoMixer
from day0.profile.sparse_tensors import SPARSE_DRAFTS


def kimi_delta_drafts(spec: KimiDeltaAttention, hidden: int) -> Iterator[Draft]:
    group, heads, width, dim = "linear_mixer", spec.num_heads, spec.width, spec.head_dim
    for axis in "qkv":
        yield Draft(f"mixer.{axis}_proj.weight", (width, hidden), group, 0, heads)
    for axis in "qkv":
        shape = (width, 1, spec.conv_kernel)
        yield Draft(f"mixer.{axis}_conv.weight", shape, group, 0, heads, dtype="F32", keep_float32=True)
    yield from _delta_projection("f", spec.full_rank_decay, spec, hidden)
    yield Draft("mixer.b_proj.weight", (heads, hidden), group, 0, heads)
    yield _decay_rates(spec)
    yield Draft("mixer.dt_bias", (width,), group, 0, heads, dtype="F32", keep_float32=True)
    yield from _delta_projection("g", spec.full_rank_gate, spec, hidden)
    yield Draft("mixer.o_norm.weight", (dim,), group, dtype="F32", keep_float32=True)
    yield Draft("mixer.o_proj.weight", (hidden, width), group, 1, heads)


def _delta_projection(name: str, full_rank: bool, spec: KimiDeltaAttention, hidden: int) -> Iterator[Draft]:
    group, heads, width, dim = "linear_mixer", spec.num_heads, spec.width, spec.head_dim
    if full_rank:
        yield Draft(f"mixer.{name}_proj.weight", (width, hidden), group, 0, heads)
    else:
        yield Draft(f"mixer.{name}_a_proj.weight", (dim, hidden), group)
        yield Draft(f"mixer.{name}_b_proj.weight", (width, dim), group, 0, heads)


def _decay_rates(spec: KimiDeltaAttention) -> Draft:
    path, group, heads = "mixer.A_log", "linear_mixer", spec.num_heads
    match spec.decay_rates:
        case "four_axes":
            return Draft(path, (1, 1, heads, 1), group, 2, heads, dtype="F32", keep_float32=True)
        case "plain":
            return Draft(path, (heads,), group, 0, heads, dtype="F32", keep_float32=True)
        case "padded":
            # One entry per channel of a head, or per head if there are more; only the first `heads` are live.
            size = max(heads, spec.head_dim)
            return Draft(path, (size,), group, None, 1, heads, "F32", keep_float32=True, zero_tail=True)


MIXER_DRAFTS: Mapping[type, Callable[[Any, int], Iterator[Draft]]] = {
    GroupedQueryAttention: grouped_query_drafts,
    CrossAttention: cross_attention_drafts,
    LatentAttention: latent_drafts,
    **SPARSE_DRAFTS,
    KimiDeltaAttention: kimi_delta_drafts,
    NoMixer: lambda spec, hidden: iter(()),
    **LINEAR_DRAFTS,
    **CONVOLVED_DRAFTS,
}
"""Called with the spec and the model's hidden size."""
