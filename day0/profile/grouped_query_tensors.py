"""The tensors of grouped-query attention, by paths relative to the layer."""

from __future__ import annotations

from collections.abc import Iterator

from day0.profile.draft import Draft
from day0.profile.grouped_query import CrossAttention, GroupedQueryAttention, OutputGate


def grouped_query_drafts(spec: GroupedQueryAttention, hidden: int) -> Iterator[Draft]:
    heads, kv_heads, value = spec.num_heads, spec.num_kv_heads, spec.value_width
    gate = spec.output_gate
    in_query = gate is not None and gate.in_query
    yield from _projection("q", heads * spec.head_dim * (2 if in_query else 1), hidden, heads, spec.qkv_bias)
    if spec.cache_of is None:
        yield from _projection("k", kv_heads * spec.head_dim, hidden, kv_heads, spec.qkv_bias)
        if not spec.values_are_keys:
            yield from _projection("v", kv_heads * spec.value_dim, hidden, kv_heads, spec.qkv_bias)
    if gate is not None and not in_query:
        yield Draft("mixer.g_proj.weight", (_gate_width(gate, spec), hidden), "attention", 0, heads)
    yield Draft("mixer.o_proj.weight", (hidden, value), "attention", 1, heads)
    if spec.o_bias:
        yield Draft("mixer.o_proj.bias", (hidden,), "attention")
    if spec.sinks:
        yield Draft("mixer.sinks", (heads,), "attention", 0, heads)
    yield from _norms(spec)


def _projection(name: str, width: int, hidden: int, units: int, bias: bool) -> Iterator[Draft]:
    yield Draft(f"mixer.{name}_proj.weight", (width, hidden), "attention", 0, units)
    if bias:
        yield Draft(f"mixer.{name}_proj.bias", (width,), "attention", 0, units)


def _gate_width(gate: OutputGate, spec: GroupedQueryAttention) -> int:
    return spec.num_heads if gate.per == "head" else spec.value_width


def _norms(spec: GroupedQueryAttention) -> Iterator[Draft]:
    """The weights of the norms on queries and keys; those over all heads are cut with the heads."""
    sides = {"q": spec.num_heads} if spec.cache_of is not None else {"q": spec.num_heads, "k": spec.num_kv_heads}
    for name, heads in sides.items():
        path = f"mixer.{name}_norm.weight"
        match spec.qk_norm:
            case "head":
                yield Draft(path, (spec.head_dim,), "attention")
            case "all":
                yield Draft(path, (heads * spec.head_dim,), "attention", 0, heads)
            case "per_head":
                yield Draft(path, (heads, spec.head_dim), "attention", 0, heads)
            case "unit" | None:
                pass


def cross_attention_drafts(spec: CrossAttention, hidden: int) -> Iterator[Draft]:
    heads, kv_heads, dim = spec.num_heads, spec.num_kv_heads, spec.head_dim
    path = "mixer.cross"
    yield Draft(f"{path}.q_proj.weight", (heads * dim, hidden), "attention", 0, heads)
    for name in "kv":
        yield Draft(f"{path}.{name}_proj.weight", (kv_heads * dim, hidden), "attention", 0, kv_heads)
    yield Draft(f"{path}.o_proj.weight", (hidden, heads * dim), "attention", 1, heads)
    for name in ("q_norm", "k_norm"):
        yield Draft(f"{path}.{name}.weight", (dim,), "attention")
    for branch in ("attention_gate", "ffn_gate"):
        yield Draft(f"{path}.{branch}", (1,), "attention")
