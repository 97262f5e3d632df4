"""The tensors of each part of a decoder layer, by our paths: one function per spec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from day0.errors import InputError
from day0.profile.profile import (
    ArchitectureProfile,
    AttentionResidual,
    DenseFeedForward,
    GroupedQueryAttention,
    KimiDeltaAttention,
    LatentAttention,
    LayerSpec,
    QuantizationSpec,
    RoutedExperts,
)


@dataclass(frozen=True, slots=True)
class Draft:
    """A tensor by our path, before its checkpoint name is known; fields mean what they mean in `TensorSpec`.

    `parameters` None means every element is one. `dtype` "" is the checkpoint's main dtype.
    """

    path: str
    shape: tuple[int, ...]
    group: str
    shard_axis: int | None = None
    shard_units: int = 1
    parameters: int | None = None
    dtype: str = ""
    experts: int = 0
    keep_float32: bool = False
    zero_tail: bool = False

    @property
    def num_parameters(self) -> int:
        return prod(self.shape) if self.parameters is None else self.parameters


def layer_drafts(profile: ArchitectureProfile, layer: LayerSpec) -> Iterator[Draft]:
    """All tensors of one layer, with paths relative to it."""
    hidden = profile.hidden_size
    yield Draft("mixer_norm.weight", (hidden,), "norm")
    yield Draft("ffn_norm.weight", (hidden,), "norm")
    if isinstance(layer.residual, AttentionResidual):
        for site in ("mixer_res", "ffn_res"):
            yield from residual_site(site, hidden)
    match layer.mixer:
        case GroupedQueryAttention():
            yield from _grouped_query(layer.mixer, hidden)
        case LatentAttention():
            yield from _latent(layer.mixer, hidden)
        case KimiDeltaAttention():
            yield from _kimi_delta(layer.mixer, hidden)
    match layer.feed_forward:
        case DenseFeedForward():
            yield from _gated_mlp("ffn", hidden, layer.feed_forward.width, "dense_mlp", layer.feed_forward.bias)
        case RoutedExperts():
            yield from _routed(layer.feed_forward, hidden, profile.quantization)


def residual_site(path: str, hidden: int) -> Iterator[Draft]:
    """One read of the attention residual: a norm over the candidates and one scoring row."""
    yield Draft(f"{path}.norm.weight", (hidden,), "residual_mixing")
    yield Draft(f"{path}.proj.weight", (1, hidden), "residual_mixing")


def _grouped_query(spec: GroupedQueryAttention, hidden: int) -> Iterator[Draft]:
    query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    for name, width, units in (
        ("q", query, spec.num_heads),
        ("k", key, spec.num_kv_heads),
        ("v", key, spec.num_kv_heads),
    ):
        yield Draft(f"mixer.{name}_proj.weight", (width, hidden), "attention", 0, units)
        if spec.qkv_bias:
            yield Draft(f"mixer.{name}_proj.bias", (width,), "attention", 0, units)
    yield Draft("mixer.o_proj.weight", (hidden, query), "attention", 1, spec.num_heads)
    if spec.o_bias:
        yield Draft("mixer.o_proj.bias", (hidden,), "attention")
    if spec.qk_norm:
        yield Draft("mixer.q_norm.weight", (spec.head_dim,), "attention")
        yield Draft("mixer.k_norm.weight", (spec.head_dim,), "attention")


def _latent(spec: LatentAttention, hidden: int) -> Iterator[Draft]:
    heads, query = spec.num_heads, spec.num_heads * spec.qk_head_dim
    value = heads * spec.v_head_dim
    if spec.q_lora_rank is None:
        yield Draft("mixer.q_proj.weight", (query, hidden), "attention", 0, heads)
    else:
        yield Draft("mixer.q_a_proj.weight", (spec.q_lora_rank, hidden), "attention")
        yield Draft("mixer.q_a_norm.weight", (spec.q_lora_rank,), "attention")
        yield Draft("mixer.q_b_proj.weight", (query, spec.q_lora_rank), "attention", 0, heads)
    yield Draft("mixer.kv_a_proj.weight", (spec.kv_lora_rank + spec.qk_rope_head_dim, hidden), "attention")
    yield Draft("mixer.kv_a_norm.weight", (spec.kv_lora_rank,), "attention")
    yield Draft(
        "mixer.kv_b_proj.weight",
        (heads * (spec.qk_nope_head_dim + spec.v_head_dim), spec.kv_lora_rank),
        "attention",
        0,
        heads,
    )
    if spec.output_gate:
        yield Draft("mixer.g_proj.weight", (value, hidden), "attention", 0, heads)
    yield Draft("mixer.o_proj.weight", (hidden, value), "attention", 1, heads)


def _kimi_delta(spec: KimiDeltaAttention, hidden: int) -> Iterator[Draft]:
    group, heads, width, dim = "linear_mixer", spec.num_heads, spec.width, spec.head_dim
    for axis in "qkv":
        yield Draft(f"mixer.{axis}_proj.weight", (width, hidden), group, 0, heads)
    for axis in "qkv":
        shape = (width, 1, spec.conv_kernel)
        yield Draft(f"mixer.{axis}_conv.weight", shape, group, 0, heads, dtype="F32", keep_float32=True)
    yield Draft("mixer.f_a_proj.weight", (dim, hidden), group)
    yield Draft("mixer.f_b_proj.weight", (width, dim), group, 0, heads)
    yield Draft("mixer.b_proj.weight", (heads, hidden), group, 0, heads)
    # Stored one entry per channel of a head, or per head if there are more; only the first `heads` are live.
    decay = Draft("mixer.A_log", (max(heads, dim),), group, None, 1, heads, "F32", keep_float32=True, zero_tail=True)
    yield decay
    yield Draft("mixer.dt_bias", (width,), group, 0, heads, dtype="F32", keep_float32=True)
    if spec.full_rank_gate:
        yield Draft("mixer.g_proj.weight", (width, hidden), group, 0, heads)
    else:
        yield Draft("mixer.g_a_proj.weight", (dim, hidden), group)
        yield Draft("mixer.g_b_proj.weight", (width, dim), group, 0, heads)
    yield Draft("mixer.o_norm.weight", (dim,), group, dtype="F32", keep_float32=True)
    yield Draft("mixer.o_proj.weight", (hidden, width), group, 1, heads)


def _gated_mlp(path: str, hidden: int, width: int, group: str, bias: bool = False) -> Iterator[Draft]:
    for name in ("gate", "up"):
        yield Draft(f"{path}.{name}_proj.weight", (width, hidden), group, 0, width)
        if bias:
            yield Draft(f"{path}.{name}_proj.bias", (width,), group, 0, width)
    yield Draft(f"{path}.down_proj.weight", (hidden, width), group, 1, width)
    if bias:
        yield Draft(f"{path}.down_proj.bias", (hidden,), group)


def _routed(spec: RoutedExperts, hidden: int, quantization: QuantizationSpec | None) -> Iterator[Draft]:
    experts = spec.router.num_experts
    yield Draft("ffn.router.weight", (experts, hidden), "router")
    if spec.router.correction_bias:
        yield Draft("ffn.router.correction_bias", (experts,), "router", dtype="F32", keep_float32=True)
    latent = hidden if spec.latent_dim is None else spec.latent_dim
    if spec.latent_dim is not None:
        yield Draft("ffn.latent_down.weight", (latent, hidden), "latent_moe_proj")
        yield Draft("ffn.latent_up.weight", (hidden, latent), "latent_moe_proj")
        if spec.latent_norm:
            yield Draft("ffn.latent_norm.weight", (latent,), "latent_moe_proj")
    if spec.shared_width:
        yield from _gated_mlp("ffn.shared", hidden, spec.shared_width, "shared_experts")
    packed = quantization if quantization and "routed_experts" in quantization.targets else None
    for name, shape, axis in (
        ("gate", (spec.width, latent), 0),
        ("up", (spec.width, latent), 0),
        ("down", (latent, spec.width), 1),
    ):
        yield from _expert_matrix(f"ffn.experts.{name}", shape, axis, experts, packed)


def _expert_matrix(
    path: str, shape: tuple[int, int], axis: int, experts: int, packed: QuantizationSpec | None
) -> Iterator[Draft]:
    """One projection of every expert, plain or packed (two 4-bit values a byte, one scale byte a group)."""
    group, (rows, columns) = "routed_experts", shape
    if packed is None:
        yield Draft(f"{path}.weight", shape, group, axis, shape[axis], experts=experts)
        return
    if columns % packed.group_size:
        raise InputError(
            f"rows of {columns} values do not split into groups of {packed.group_size} ({packed.format})",
            where=path,
            hint="the widths of the routed experts and the quantisation section contradict each other",
        )
    # The expert's inner width is cut, and down's groups run along it: a cut must fall between groups.
    units = shape[axis] // packed.group_size
    yield Draft(f"{path}.packed", (rows, columns // 2), group, axis, units, rows * columns, "U8", experts)
    yield Draft(f"{path}.scale", (rows, columns // packed.group_size), group, axis, units, 0, "U8", experts)
