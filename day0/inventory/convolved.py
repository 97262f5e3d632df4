"""What attention with short convolutions needs, alone or beside a state space: one rule per spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.inventory.grouped_query import grouped_query
from day0.inventory.linear_mixers import mamba2
from day0.inventory.rotary import rotary
from day0.inventory.use import Use, linear, use
from day0.profile.mixers_convolved import (
    BranchConvolution,
    CompressedConvolutionalAttention,
    ParallelMixers,
    RelativeConvolvedAttention,
)
from day0.profile.profile import ArchitectureProfile


def compressed_convolutional(spec: CompressedConvolutionalAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden, width, dim = profile.hidden_size, spec.conv_width, spec.head_dim
    heads, kv_heads = spec.num_heads, spec.num_kv_heads
    half = spec.key_width // 2
    for name, size in (("q", spec.query_width), ("k", spec.key_width), ("v", half), ("v_delayed", half)):
        yield linear(f"mixer.{name}_proj", hidden, size, bias=spec.bias)
    yield use("query_key_mean", "mixer.mean", heads=heads, kv_heads=kv_heads, head_dim=dim)
    first, second = spec.conv_kernels
    yield use("causal_conv1d_bias", "mixer.conv", width=width, taps=first, past_taps=first - 1, activation=None)
    yield use("causal_head_conv1d", "mixer.head_conv", width=width, head_dim=dim, taps=second, past_taps=second - 1)
    yield use("residual_add", "mixer.mean", width=width)
    yield use("token_delay", "mixer.v_delayed", width=half)
    yield use("unit_length_heads", "mixer.key_scale", heads=heads, kv_heads=kv_heads, head_dim=dim)
    if spec.rope is not None:
        yield from rotary(spec.rope, dim, q=heads, k=kv_heads)
    yield from _cache(spec)
    yield use(
        "paged_gqa_attention",
        "mixer.attention",
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        scale=spec.scale,
        window=spec.window,
    )
    yield linear("mixer.o_proj", spec.query_width, hidden, bias=spec.bias)


def _cache(spec: CompressedConvolutionalAttention | RelativeConvolvedAttention) -> Iterator[Use]:
    for plane in spec.cache_planes():
        yield use("paged_cache_write", f"mixer.cache.{plane.name}", width=plane.elements)


def relative_convolved(spec: RelativeConvolvedAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden, heads, kv_heads, dim = profile.hidden_size, spec.num_heads, spec.num_kv_heads, spec.head_dim
    yield linear("mixer.q_proj", hidden, heads * dim)
    for axis in "kv":
        yield linear(f"mixer.{axis}_proj", hidden, spec.key_width)
    yield linear("mixer.r_proj", hidden, heads * spec.relative_dim)
    for axis in "kv":
        yield _residual_convolution(f"mixer.{axis}_conv", spec.key_width, spec.conv_kernel)
    eps = profile.norm_eps
    yield use("qk_norm", "mixer.qk_norm", heads=heads, kv_heads=kv_heads, head_dim=dim, eps=eps, form="head")
    if spec.temperature is not None:
        floor, growth = spec.temperature.floor, spec.temperature.scale
        yield use("log_temperature", "mixer.temperature", heads=heads, head_dim=dim, floor=floor, growth=growth)
    yield from _cache(spec)
    yield use(
        "paged_relative_attention",
        "mixer.attention",
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        profiles=spec.relative_dim,
        extent=spec.relative_extent,
        scale=spec.scale,
        window=spec.window,
    )
    yield linear("mixer.o_proj", heads * dim, hidden)


def _residual_convolution(place: str, width: int, taps: int) -> Use:
    return use("residual_causal_conv1d", place, width=width, taps=taps, past_taps=taps - 1)


def parallel(spec: ParallelMixers, profile: ArchitectureProfile) -> Iterator[Use]:
    """Both mixers, the fixed factors around them where they are not 1, and their sum."""
    attention, state_space, hidden = spec.attention, spec.state_space, profile.hidden_size
    yield from _factor("mixer.state_in", hidden, spec.state_in)
    yield from mamba2(state_space, profile)
    if any(factor != 1.0 for factor in spec.projection_scales):
        yield use("multiply", "mixer.in_proj.scales", width=state_space.projection_width)
    yield from _factor("mixer.state_out", hidden, spec.state_out)
    yield from _factor("mixer.attention_in", hidden, spec.attention_in)
    yield from grouped_query(attention, profile)
    yield from _factor("mixer.keys", attention.num_kv_heads * attention.head_dim, spec.key_scale)
    yield from _factor("mixer.attention_out", hidden, spec.attention_out)
    yield use("residual_add", "mixer.sum", width=hidden)


def _factor(place: str, width: int, factor: float) -> Iterator[Use]:
    if factor != 1.0:
        yield use("constant_scale", place, width=width, factor=factor)


def branch_convolution(branch: str, spec: BranchConvolution) -> Use:
    return _residual_convolution(f"{branch}_conv", spec.width, spec.conv_kernel)


CONVOLVED_RULES: Mapping[type, Callable[[Any, ArchitectureProfile], Iterator[Use]]] = {
    CompressedConvolutionalAttention: compressed_convolutional,
    RelativeConvolvedAttention: relative_convolved,
    ParallelMixers: parallel,
}
"""Called with the spec and the profile it is part of."""
