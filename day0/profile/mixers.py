"""Token mixers: what each kind is, and what it keeps between steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from day0.profile.cache_parts import CachePlane, StateShape
from day0.profile.grouped_query import CrossAttention, GroupedQueryAttention
from day0.profile.latent_attention import LatentAttention
from day0.profile.mixers_convolved import ConvolvedMixer
from day0.profile.mixers_linear import LinearMixer
from day0.profile.mixers_sparse import SparseMixer


@dataclass(frozen=True, slots=True)
class KimiDeltaAttention:
    """Kimi Delta Attention: a delta-rule linear attention whose decay is set per head and per key channel.

    `gate_lower_bound` selects the bounded decay gate; None is the softplus gate of Kimi-Linear. The convolution
    runs over q, k and v separately and remembers the last `conv_kernel - 1` inputs of each. The decay and the output
    gate are projections of full rank or through `head_dim` channels. `decay_rates` is how the rate of each head is
    stored: padded to one per channel of a head (Kimi K3), [1, 1, heads, 1] (Kimi-Linear), or [heads].
    """

    kind: ClassVar[str] = "kda"
    num_heads: int
    head_dim: int
    conv_kernel: int
    gate_lower_bound: float | None
    full_rank_gate: bool
    norm_eps: float
    full_rank_decay: bool = False
    decay_rates: Literal["padded", "four_axes", "plain"] = "padded"

    @property
    def width(self) -> int:
        return self.num_heads * self.head_dim

    def cache_planes(self) -> tuple[CachePlane, ...]:
        return ()

    def state_shapes(self) -> tuple[StateShape, ...]:
        return (
            StateShape("recurrent", (self.num_heads, self.head_dim, self.head_dim), "float32"),
            StateShape("conv", (3, self.width, self.conv_kernel - 1), "model", head_axis=1),
        )


@dataclass(frozen=True, slots=True)
class NoMixer:
    """A layer that mixes no tokens: only its feed-forward is there."""

    kind: ClassVar[str] = "none"

    def cache_planes(self) -> tuple[CachePlane, ...]:
        return ()

    def state_shapes(self) -> tuple[StateShape, ...]:
        return ()


Mixer = (
    GroupedQueryAttention
    | CrossAttention
    | LatentAttention
    | SparseMixer
    | KimiDeltaAttention
    | LinearMixer
    | ConvolvedMixer
    | NoMixer
)
