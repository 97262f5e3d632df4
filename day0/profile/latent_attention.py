"""Multi-head latent attention: keys and values of all heads from one low-rank latent per token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from day0.profile.cache_parts import CachePlane, StateShape
from day0.profile.grouped_query import OutputGate, QueryTemperature
from day0.profile.positions import RopeSpec


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2): keys and values from one low-rank latent per token.

    The shared key slice of `qk_rope_head_dim` channels is rotated by `rope`, or left alone where `rope` is None
    (NoPE). `bias` is on the two down-projections and o_proj. `window` is how many tokens are seen, None for all.
    `sinks` adds one learnt logit per head to the softmax's denominator. `rope_key_norm` is an RMS norm on the shared
    key slice, and `scaled_latents` multiplies each normalised latent by sqrt(hidden / rank) (both dots3).
    `raw_query_latent` lets the query's up-projection read the latent twice, normalised and as it is (A.X-K2).
    """

    kind: ClassVar[str] = "mla"
    num_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    rope: RopeSpec | None
    scale: float
    latent_norm_eps: float
    output_gate: OutputGate | None = None
    bias: bool = False
    window: int | None = None
    sinks: bool = False
    rope_key_norm: bool = False
    scaled_latents: bool = False
    raw_query_latent: bool = False
    temperature: QueryTemperature | None = None

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def value_width(self) -> int:
        """Channels that o_proj reads."""
        return self.num_heads * self.v_head_dim

    def cache_planes(self) -> tuple[CachePlane, ...]:
        return (CachePlane("latent", (self.kv_lora_rank + self.qk_rope_head_dim,), window=self.window),)

    def state_shapes(self) -> tuple[StateShape, ...]:
        return ()
