"""What token mixers need: one rule per spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.inventory.block_sparse import BLOCK_SPARSE_RULES
from day0.inventory.compressed import COMPRESSED_RULES
from day0.inventory.convolved import CONVOLVED_RULES
from day0.inventory.grouped_query import GROUPED_QUERY_RULES
from day0.inventory.latent import LATENT_RULES
from day0.inventory.linear_mixers import LINEAR_MIXER_RULES
from day0.inventory.use import Use, linear, use
from day0.profile.profile import (
    ArchitectureProfile,
    KimiDeltaAttention,
)


def kimi_delta(spec: KimiDeltaAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden = profile.hidden_size
    heads, dim, width, taps = spec.num_heads, spec.head_dim, spec.width, spec.conv_kernel
    for axis in "qkv":
        yield linear(f"mixer.{axis}_proj", hidden, width)
    for axis in "qkv":
        yield use("causal_conv1d", f"mixer.{axis}_conv", width=width, taps=taps, past_taps=taps - 1, activation="silu")
    for axis in "qk":
        yield use("l2_norm", f"mixer.{axis}_norm", heads=heads, head_dim=dim)
    yield from _delta_projection("f", spec.full_rank_decay, spec, hidden)
    yield linear("mixer.b_proj", hidden, heads)
    yield use("kda_gate", "mixer.decay", heads=heads, head_dim=dim, lower_bound=spec.gate_lower_bound)
    for operator in ("kda_chunk", "kda_recurrent"):
        yield use(operator, "mixer.delta", heads=heads, head_dim=dim, value_dim=dim, scale=dim**-0.5)
    yield from _delta_projection("g", spec.full_rank_gate, spec, hidden)
    yield use("gated_rms_norm", "mixer.o_norm", heads=heads, head_dim=dim, eps=spec.norm_eps, activation="sigmoid")
    yield linear("mixer.o_proj", width, hidden)


def _delta_projection(name: str, full_rank: bool, spec: KimiDeltaAttention, hidden: int) -> Iterator[Use]:
    if full_rank:
        yield linear(f"mixer.{name}_proj", hidden, spec.width)
    else:
        yield linear(f"mixer.{name}_a_proj", hidden, spec.head_dim)
        yield linear(f"mixer.{name}_b_proj", spec.head_dim, spec.width)


MIXER_RULES: Mapping[type, Callable[[Any, ArchitectureProfile], Iterator[Use]]] = {
    **GROUPED_QUERY_RULES,
    **LATENT_RULES,
    **COMPRESSED_RULES,
    **BLOCK_SPARSE_RULES,
    KimiDeltaAttention: kimi_delta,
    **LINEAR_MIXER_RULES,
    **CONVOLVED_RULES,
}
"""Called with the spec and the profile it is part of."""
