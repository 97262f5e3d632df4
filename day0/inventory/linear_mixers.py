"""What mixers with a state of fixed size need: one rule per spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.inventory.rotary import rotary
from day0.inventory.use import Use, linear, use
from day0.profile.mixers_linear import (
    GatedDeltaNet,
    LightningAttention,
    LinearMap,
    Mamba,
    Mamba2,
    ShortConvolution,
)
from day0.profile.profile import ArchitectureProfile


def gated_delta_net(spec: GatedDeltaNet, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden, keys, values = profile.hidden_size, spec.num_key_heads, spec.num_value_heads
    dim, value_dim = spec.key_head_dim, spec.value_head_dim
    for name, width in (("q", spec.key_width), ("k", spec.key_width), ("v", spec.value_width)):
        yield linear(f"mixer.in_{name}_proj", hidden, width)
    yield linear("mixer.in_z_proj", hidden, spec.value_width)
    yield linear("mixer.in_b_proj", hidden, values)
    yield linear("mixer.in_a_proj", hidden, values)
    yield _convolution("mixer.conv", spec.conv_width, spec.conv_kernel, bias=False, activation="silu")
    for axis in "qk":
        yield use("l2_norm", f"mixer.{axis}_norm", heads=keys, head_dim=dim)
    yield use("gated_delta_gate", "mixer.decay", value_heads=values, strength=2.0 if spec.negative_eigenvalues else 1.0)
    for operator in ("gated_delta_chunk", "gated_delta_recurrent"):
        yield use(
            operator,
            "mixer.delta",
            key_heads=keys,
            value_heads=values,
            head_dim=dim,
            value_dim=value_dim,
            scale=dim**-0.5,
        )
    yield use("gated_rms_norm", "mixer.o_norm", heads=values, head_dim=value_dim, eps=spec.norm_eps, activation="silu")
    yield linear("mixer.out_proj", spec.value_width, hidden)


def lightning(spec: LightningAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden, heads, dim, width = profile.hidden_size, spec.num_heads, spec.head_dim, spec.width
    for axis in "qkv":
        yield linear(f"mixer.in_{axis}_proj", hidden, width, bias=spec.qkv_bias)
        if spec.qkv_activation is not None:
            yield use(spec.qkv_activation, f"mixer.{axis}_activation", width=width)
    if spec.qk_norm:
        yield use("qk_norm", "mixer.qk_norm", heads=heads, kv_heads=heads, head_dim=dim, eps=spec.norm_eps, form="head")
    if spec.rope is not None:
        yield from rotary(spec.rope, dim, q=heads, k=heads)
    for operator in ("lightning_chunk", "lightning_recurrent"):
        yield use(operator, "mixer.attention", heads=heads, head_dim=dim)
    if spec.norm_groups == 1:
        yield use("rms_norm", "mixer.o_norm", width=width, eps=spec.norm_eps)
    else:
        yield use("group_rms_norm", "mixer.o_norm", width=width, eps=spec.norm_eps, norm_groups=spec.norm_groups)
    yield linear("mixer.g_proj", hidden, width)
    yield use("sigmoid_gate", "mixer.gate", width=width)
    yield linear("mixer.out_proj", width, hidden, bias=spec.o_bias)


def mamba(spec: Mamba, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden, width, state, rank = profile.hidden_size, spec.width, spec.state_size, spec.step_rank
    yield linear("mixer.in_proj", hidden, 2 * width, bias=spec.proj_bias)
    yield _convolution("mixer.conv", width, spec.conv_kernel, bias=spec.conv_bias, activation="silu")
    yield linear("mixer.x_proj", width, rank + 2 * state)
    if spec.inner_norms:
        for name, size in (("dt", rank), ("b", state), ("c", state)):
            yield use("rms_norm", f"mixer.{name}_norm", width=size, eps=spec.norm_eps)
    # The bias of this product is added inside the scan.
    yield linear("mixer.dt_proj", rank, width)
    for operator in ("selective_scan", "selective_state_update"):
        yield use(operator, "mixer.scan", width=width, state_size=state)
    yield linear("mixer.out_proj", width, hidden, bias=spec.proj_bias)


def mamba2(spec: Mamba2, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden, width = profile.hidden_size, spec.width
    yield linear("mixer.in_proj", hidden, spec.projection_width, bias=spec.proj_bias)
    yield _convolution("mixer.conv", spec.conv_width, spec.conv_kernel, bias=spec.conv_bias, activation="silu")
    least, most = spec.step_limit
    for operator in ("ssd_chunk_scan", "ssd_state_update"):
        yield use(
            operator,
            "mixer.scan",
            heads=spec.num_heads,
            head_dim=spec.head_dim,
            state_groups=spec.num_groups,
            state_size=spec.state_size,
            step_min=least,
            step_max=most,
        )
    if spec.norm:
        yield use(
            "gated_group_rms_norm",
            "mixer.norm",
            width=width,
            eps=spec.norm_eps,
            norm_groups=spec.num_groups,
            gate_first=not spec.norm_first,
        )
    else:
        yield use("silu_and_mul", "mixer.gate", width=width)
    yield linear("mixer.out_proj", width, hidden, bias=spec.proj_bias)


def short_convolution(spec: ShortConvolution, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden, width = profile.hidden_size, spec.width
    yield linear("mixer.in_proj", hidden, 3 * width, bias=spec.bias)
    yield use("multiply", "mixer.input_gate", width=width)
    yield _convolution("mixer.conv", width, spec.conv_kernel, bias=spec.bias, activation=None)
    yield use("multiply", "mixer.output_gate", width=width)
    yield linear("mixer.out_proj", width, hidden, bias=spec.bias)


def linear_map(spec: LinearMap, profile: ArchitectureProfile) -> Iterator[Use]:
    yield linear("mixer.linear", profile.hidden_size, profile.hidden_size, bias=spec.bias)


def linear_map_feed_forward(spec: LinearMap, profile: ArchitectureProfile) -> Iterator[Use]:
    yield linear("ffn.linear", profile.hidden_size, profile.hidden_size, bias=spec.bias)


def _convolution(place: str, width: int, taps: int, *, bias: bool, activation: str | None) -> Use:
    name = "causal_conv1d_bias" if bias else "causal_conv1d"
    return use(name, place, width=width, taps=taps, past_taps=taps - 1, activation=activation)


LINEAR_MIXER_RULES: Mapping[type, Callable[[Any, ArchitectureProfile], Iterator[Use]]] = {
    GatedDeltaNet: gated_delta_net,
    LightningAttention: lightning,
    Mamba: mamba,
    Mamba2: mamba2,
    ShortConvolution: short_convolution,
    LinearMap: linear_map,
}
"""Called with the spec and the profile it is part of."""
