"""The tensors of latent attention, by paths relative to the layer."""

from __future__ import annotations

from collections.abc import Iterator

from day0.profile.draft import Draft
from day0.profile.latent_attention import LatentAttention

_GROUP = "attention"


def latent_drafts(spec: LatentAttention, hidden: int) -> Iterator[Draft]:
    heads, latent = spec.num_heads, spec.kv_lora_rank
    yield from _query_drafts(spec, hidden)
    yield from _projection("kv_a_proj", latent + spec.qk_rope_head_dim, hidden, spec.bias)
    yield Draft("mixer.kv_a_norm.weight", (latent,), _GROUP)
    if spec.rope_key_norm:
        yield Draft("mixer.k_rope_norm.weight", (spec.qk_rope_head_dim,), _GROUP)
    expanded = heads * (spec.qk_nope_head_dim + spec.v_head_dim)
    yield Draft("mixer.kv_b_proj.weight", (expanded, latent), _GROUP, 0, heads)
    if spec.sinks:
        yield Draft("mixer.sinks", (heads,), _GROUP, 0, heads, dtype="F32", keep_float32=True)
    gate = spec.output_gate
    if gate is not None and not gate.in_query:
        width = heads if gate.per == "head" else spec.value_width
        yield Draft("mixer.g_proj.weight", (width, hidden), _GROUP, 0, heads)
    yield Draft("mixer.o_proj.weight", (hidden, spec.value_width), _GROUP, 1, heads)
    if spec.bias:
        yield Draft("mixer.o_proj.bias", (hidden,), _GROUP)


def _query_drafts(spec: LatentAttention, hidden: int) -> Iterator[Draft]:
    """Queries in one step or through a latent; a gate that the query's projection yields widens it."""
    heads, rank = spec.num_heads, spec.q_lora_rank
    gated = spec.output_gate is not None and spec.output_gate.in_query
    width = heads * (spec.qk_head_dim + (spec.v_head_dim if gated else 0))
    if rank is None:
        yield Draft("mixer.q_proj.weight", (width, hidden), _GROUP, 0, heads)
        return
    yield from _projection("q_a_proj", rank, hidden, spec.bias)
    yield Draft("mixer.q_a_norm.weight", (rank,), _GROUP)
    read = 2 * rank if spec.raw_query_latent else rank
    yield Draft("mixer.q_b_proj.weight", (width, read), _GROUP, 0, heads)


def _projection(name: str, out_features: int, in_features: int, bias: bool) -> Iterator[Draft]:
    """A matrix that every rank holds whole."""
    yield Draft(f"mixer.{name}.weight", (out_features, in_features), _GROUP)
    if bias:
        yield Draft(f"mixer.{name}.bias", (out_features,), _GROUP)
