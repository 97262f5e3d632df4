"""What grouped-query attention needs, with all that lines of models add to it, and attention to another encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.inventory.rotary import rotary
from day0.inventory.use import Fact, Use, linear, use
from day0.profile.profile import (
    ArchitectureProfile,
    CrossAttention,
    GroupedQueryAttention,
    OutputGate,
    QueryTemperature,
)


def grouped_query(spec: GroupedQueryAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    gate: OutputGate | None = spec.output_gate
    yield from _projections(spec, profile.hidden_size, doubled=gate is not None and gate.in_query)
    if not spec.norm_after_rope:
        yield from _qk_norm(spec, profile.norm_eps)
    if spec.rope is not None:
        # A layer that reads another's cache has nothing to rotate but its queries.
        kinds = {"q": spec.num_heads} if spec.cache_of is not None else {"q": spec.num_heads, "k": spec.num_kv_heads}
        yield from rotary(spec.rope, spec.head_dim, **kinds)
    if spec.norm_after_rope:
        yield from _qk_norm(spec, profile.norm_eps)
    if spec.temperature is not None:
        yield _temperature(spec.temperature, spec.num_heads, spec.head_dim)
    yield from _values(spec, profile.norm_eps)
    for plane in spec.cache_planes():
        yield use("paged_cache_write", f"mixer.cache.{plane.name}", width=plane.elements)
    yield _attention(spec)
    if spec.output_norm:
        yield use("unit_rms_norm", "mixer.o_norm", width=spec.value_dim, eps=profile.norm_eps)
    if gate is not None:
        yield from _gate(gate, spec, profile.hidden_size)
    yield linear("mixer.o_proj", spec.value_width, profile.hidden_size, bias=spec.o_bias)


def _projections(spec: GroupedQueryAttention, hidden: int, *, doubled: bool) -> Iterator[Use]:
    query = spec.num_heads * spec.head_dim
    yield linear("mixer.q_proj", hidden, 2 * query if doubled else query, bias=spec.qkv_bias)
    if spec.cache_of is not None:
        return
    yield linear("mixer.k_proj", hidden, spec.num_kv_heads * spec.head_dim, bias=spec.qkv_bias)
    if not spec.values_are_keys:
        yield linear("mixer.v_proj", hidden, spec.num_kv_heads * spec.value_dim, bias=spec.qkv_bias)


def _qk_norm(spec: GroupedQueryAttention, eps: float) -> Iterator[Use]:
    if spec.qk_norm is not None:
        sizes = {"heads": spec.num_heads, "kv_heads": spec.num_kv_heads, "head_dim": spec.head_dim}
        yield use("qk_norm", "mixer.qk_norm", **sizes, eps=eps, form=spec.qk_norm)


def _temperature(spec: QueryTemperature, heads: int, head_dim: int) -> Use:
    return use(
        "query_temperature",
        "mixer.temperature",
        heads=heads,
        head_dim=head_dim,
        floor=spec.floor,
        growth=spec.scale,
        offset=spec.offset,
    )


def _values(spec: GroupedQueryAttention, eps: float) -> Iterator[Use]:
    if spec.value_norm and spec.cache_of is None:
        yield use("unit_rms_norm", "mixer.v_norm", width=spec.value_dim, eps=eps)
    if spec.value_scale != 1.0:
        yield use("constant_scale", "mixer.v_scale", width=spec.num_kv_heads * spec.value_dim, factor=spec.value_scale)


def _attention(spec: GroupedQueryAttention) -> Use:
    place, value_dim, softcap = "mixer.attention", spec.value_dim, spec.softcap
    facts: dict[str, Fact] = {
        "heads": spec.num_heads,
        "kv_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "scale": spec.scale,
        "window": spec.window,
    }
    traits: dict[str, Fact] = {"chunked": spec.chunked, "sinks": spec.sinks, "softcap": softcap}
    if value_dim == spec.head_dim and softcap is None and not (spec.chunked or spec.sinks):
        return use("paged_gqa_attention", place, **facts)
    return use("paged_gqa_attention_variant", place, value_dim=value_dim, **facts, **traits)


def _gate(gate: OutputGate, spec: GroupedQueryAttention, hidden: int) -> Iterator[Use]:
    width = spec.value_width if gate.per == "channel" else spec.num_heads
    if not gate.in_query:
        yield linear("mixer.g_proj", hidden, width)
    if gate.per == "channel":
        yield use(f"{gate.activation}_gate", "mixer.gate", width=width)
    else:
        yield use(f"head_{gate.activation}_gate", "mixer.gate", heads=spec.num_heads, head_dim=spec.value_dim)


def cross_attention(spec: CrossAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    """Keys and values of the images once, with the prompt; both branches of the layer go through a gate."""
    hidden, heads, kv_heads, dim = profile.hidden_size, spec.num_heads, spec.num_kv_heads, spec.head_dim
    yield linear("mixer.cross.q_proj", hidden, heads * dim)
    for axis in "kv":
        yield linear(f"mixer.cross.{axis}_proj", hidden, kv_heads * dim)
    yield use(
        "qk_norm",
        "mixer.cross.qk_norm",
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        eps=profile.norm_eps,
        form="head",
    )
    yield use(
        "cross_attention", "mixer.cross.attention", heads=heads, kv_heads=kv_heads, head_dim=dim, scale=spec.scale
    )
    yield linear("mixer.cross.o_proj", heads * dim, hidden)
    for gate in ("attention_gate", "ffn_gate"):
        yield use("tanh_gate", f"mixer.cross.{gate}", width=hidden, single=1)


GROUPED_QUERY_RULES: Mapping[type, Callable[[Any, ArchitectureProfile], Iterator[Use]]] = {
    GroupedQueryAttention: grouped_query,
    CrossAttention: cross_attention,
}
