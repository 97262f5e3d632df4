"""Softmax attention with shared key/value heads, and attention to a second stream; what each keeps per token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from day0.profile.cache_parts import CachePlane, StateShape
from day0.profile.positions import RopeSpec

QkNorm = Literal["head", "all", "per_head", "unit"]
"""RMS norm of queries and keys: each head by one weight [head_dim] that all share ("head"), all heads together by a
weight [heads x head_dim] ("all"), each head by a weight of its own ("per_head"), or without a weight ("unit")."""


@dataclass(frozen=True, slots=True)
class OutputGate:
    """A factor on the attention output before o_proj, from the layer's input.

    `per` is "channel" or "head". `in_query` says that q_proj yields it, [query, gate] head by head (Qwen3-Next);
    else it has a projection of its own.
    """

    per: Literal["channel", "head"] = "channel"
    activation: Literal["sigmoid", "softplus"] = "sigmoid"
    in_query: bool = False


@dataclass(frozen=True, slots=True)
class QueryTemperature:
    """Queries grow with the position: times 1 + scale x ln(1 + floor((position + offset) / floor)) (Llama 4)."""

    floor: float
    scale: float
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupedQueryAttention:
    """Softmax attention with shared key/value heads (GQA, Ainslie et al. 2023; MHA and MQA are its ends).

    `window` is how many tokens are seen, the current one among them; `chunked` starts it anew at every multiple
    (Llama 4) instead of sliding. `v_head_dim` None means `head_dim`. `sinks` adds one learnt logit per head to the
    softmax's denominator (gpt-oss). `values_are_keys` takes the values from k_proj too, before norm and rotation;
    `value_norm` and `output_norm` are RMS norms without weight on the values and on each head's output, `value_scale`
    is a factor on the values. `softcap` bounds logits to softcap x tanh(logit / softcap). `cache_of` names the
    earlier layer whose keys and values this one reads, having none of its own.
    """

    kind: ClassVar[str] = "gqa"
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: RopeSpec | None
    scale: float
    qk_norm: QkNorm | None = None
    qkv_bias: bool = False
    o_bias: bool = False
    window: int | None = None
    chunked: bool = False
    v_head_dim: int | None = None
    output_gate: OutputGate | None = None
    sinks: bool = False
    norm_after_rope: bool = False
    values_are_keys: bool = False
    value_norm: bool = False
    output_norm: bool = False
    value_scale: float = 1.0
    softcap: float | None = None
    temperature: QueryTemperature | None = None
    cache_of: int | None = None

    @property
    def value_dim(self) -> int:
        return self.head_dim if self.v_head_dim is None else self.v_head_dim

    @property
    def value_width(self) -> int:
        """Channels that o_proj reads."""
        return self.num_heads * self.value_dim

    def cache_planes(self) -> tuple[CachePlane, ...]:
        if self.cache_of is not None:
            return ()
        heads = self.num_kv_heads
        return (
            CachePlane("k", (heads, self.head_dim), 0, self.window),
            CachePlane("v", (heads, self.value_dim), 0, self.window),
        )

    def state_shapes(self) -> tuple[StateShape, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class CrossAttention:
    """Attention of text to another encoder's rows (Llama 3.2 Vision): keys and values come from those alone.

    Both branches of the layer are multiplied by tanh of a learnt number each. Text tokens leave nothing in the cache;
    every encoder row leaves `encoder_elements` numbers for as long as the sequence lives.
    """

    kind: ClassVar[str] = "cross"
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float

    @property
    def encoder_elements(self) -> int:
        return 2 * self.num_kv_heads * self.head_dim

    def cache_planes(self) -> tuple[CachePlane, ...]:
        return ()

    def state_shapes(self) -> tuple[StateShape, ...]:
        return ()
