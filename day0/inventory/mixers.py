"""What token mixers need: one rule per spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.inventory.use import Use, linear, use
from day0.profile.profile import (
    ArchitectureProfile,
    GroupedQueryAttention,
    KimiDeltaAttention,
    LatentAttention,
    RopeSpec,
)


def grouped_query(spec: GroupedQueryAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden, eps = profile.hidden_size, profile.norm_eps
    heads, kv_heads, dim = spec.num_heads, spec.num_kv_heads, spec.head_dim
    yield linear("mixer.q_proj", hidden, heads * dim, bias=spec.qkv_bias)
    for axis in "kv":
        yield linear(f"mixer.{axis}_proj", hidden, kv_heads * dim, bias=spec.qkv_bias)
    if spec.qk_norm is not None:
        yield use("qk_norm", "mixer.qk_norm", heads=heads, kv_heads=kv_heads, head_dim=dim, eps=eps, form=spec.qk_norm)
    if spec.rope is not None:
        yield from _rotary(spec.rope, dim, q=heads, k=kv_heads)
    for plane in spec.cache_planes():
        yield use("paged_cache_write", f"mixer.cache.{plane.name}", width=plane.elements)
    yield use(
        "paged_gqa_attention",
        "mixer.attention",
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        scale=spec.scale,
        window=spec.window,
    )
    yield linear("mixer.o_proj", heads * dim, hidden, bias=spec.o_bias)


def _rotary(spec: RopeSpec, head_dim: int, **heads: int) -> Iterator[Use]:
    """The table once, then the rotation of each kind of head."""
    pairs = spec.dim // 2
    yield use("rope_table", "mixer.rope", rope_pairs=pairs, theta=spec.theta, scaling=spec.scaling)
    for kind, count in heads.items():
        yield use("rope", f"mixer.rope.{kind}", heads=count, head_dim=head_dim, rope_pairs=pairs, layout=spec.layout)


def latent(spec: LatentAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden = profile.hidden_size
    heads, latent, rope_dim = spec.num_heads, spec.kv_lora_rank, spec.qk_rope_head_dim
    value, query, eps = heads * spec.v_head_dim, heads * spec.qk_head_dim, spec.latent_norm_eps
    if spec.q_lora_rank is None:
        yield linear("mixer.q_proj", hidden, query)
    else:
        yield linear("mixer.q_a_proj", hidden, spec.q_lora_rank)
        yield use("rms_norm", "mixer.q_a_norm", width=spec.q_lora_rank, eps=eps)
        yield linear("mixer.q_b_proj", spec.q_lora_rank, query)
    yield linear("mixer.kv_a_proj", hidden, latent + rope_dim)
    yield use("rms_norm", "mixer.kv_a_norm", width=latent, eps=eps)
    if spec.rope is not None:
        yield from _rotary(spec.rope, rope_dim, q=heads, k=1)
    for plane in spec.cache_planes():
        yield use("paged_cache_write", f"mixer.cache.{plane.name}", width=plane.elements)
    yield use(
        "head_linear", "mixer.kv_b_proj.keys", heads=heads, in_features=spec.qk_nope_head_dim, out_features=latent
    )
    yield use(
        "paged_mla_attention",
        "mixer.attention",
        heads=heads,
        latent_dim=latent,
        rope_dim=rope_dim,
        cached_dim=latent + rope_dim,
        scale=spec.scale,
    )
    yield use("head_linear", "mixer.kv_b_proj.values", heads=heads, in_features=latent, out_features=spec.v_head_dim)
    if spec.output_gate:
        yield linear("mixer.g_proj", hidden, value)
        yield use("sigmoid_gate", "mixer.gate", width=value)
    yield linear("mixer.o_proj", value, hidden)


def kimi_delta(spec: KimiDeltaAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden = profile.hidden_size
    heads, dim, width, taps = spec.num_heads, spec.head_dim, spec.width, spec.conv_kernel
    for axis in "qkv":
        yield linear(f"mixer.{axis}_proj", hidden, width)
    for axis in "qkv":
        yield use("causal_conv1d", f"mixer.{axis}_conv", width=width, taps=taps, past_taps=taps - 1, activation="silu")
    for axis in "qk":
        yield use("l2_norm", f"mixer.{axis}_norm", heads=heads, head_dim=dim)
    yield linear("mixer.f_a_proj", hidden, dim)
    yield linear("mixer.f_b_proj", dim, width)
    yield linear("mixer.b_proj", hidden, heads)
    yield use("kda_gate", "mixer.decay", heads=heads, head_dim=dim, lower_bound=spec.gate_lower_bound)
    for operator in ("kda_chunk", "kda_recurrent"):
        yield use(operator, "mixer.delta", heads=heads, head_dim=dim, value_dim=dim, scale=dim**-0.5)
    if spec.full_rank_gate:
        yield linear("mixer.g_proj", hidden, width)
    else:
        yield linear("mixer.g_a_proj", hidden, dim)
        yield linear("mixer.g_b_proj", dim, width)
    yield use("gated_rms_norm", "mixer.o_norm", heads=heads, head_dim=dim, eps=spec.norm_eps, activation="sigmoid")
    yield linear("mixer.o_proj", width, hidden)


MIXER_RULES: Mapping[type, Callable[[Any, ArchitectureProfile], Iterator[Use]]] = {
    GroupedQueryAttention: grouped_query,
    LatentAttention: latent,
    KimiDeltaAttention: kimi_delta,
}
"""Called with the spec and the profile it is part of."""
