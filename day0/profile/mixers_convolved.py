"""Softmax attention whose projections pass short convolutions, and the convolution of a whole branch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from day0.profile.cache_parts import CachePlane, StateShape
from day0.profile.grouped_query import GroupedQueryAttention
from day0.profile.mixers_linear import Mamba2
from day0.profile.positions import RopeSpec


@dataclass(frozen=True, slots=True)
class CompressedConvolutionalAttention:
    """Attention in a compressed space (CCA, arXiv 2510.04476; ZAYA): heads make up less than the hidden size.

    Queries and keys pass a depthwise causal convolution and one within each head, and keep the mean of both before
    them as a residual. Half of each value head comes from the token before. Queries and keys are brought to length
    sqrt(head_dim), keys times a learnt number per head.
    """

    kind: ClassVar[str] = "cca"
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: RopeSpec | None
    scale: float
    conv_kernels: tuple[int, int]
    bias: bool = False
    window: int | None = None

    @property
    def query_width(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def key_width(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def conv_width(self) -> int:
        """Channels that are convolved: queries and keys."""
        return self.query_width + self.key_width

    def cache_planes(self) -> tuple[CachePlane, ...]:
        shape = (self.num_kv_heads, self.head_dim)
        return CachePlane("k", shape, 0, self.window), CachePlane("v", shape, 0, self.window)

    def state_shapes(self) -> tuple[StateShape, ...]:
        past = sum(kernel - 1 for kernel in self.conv_kernels)
        return (
            StateShape("conv", (self.conv_width, past), "model"),
            StateShape("delayed_value", (self.key_width // 2,), "model"),
        )


@dataclass(frozen=True, slots=True)
class LogTemperature:
    """Queries grow with the number n of tokens seen: times 1 + scale ln(max(1, n / floor))."""

    floor: float
    scale: float


@dataclass(frozen=True, slots=True)
class RelativeConvolvedAttention:
    """Grouped-query attention with short convolutions on keys and values and a learnt bias by distance (Inkling).

    A projection gives each head `relative_dim` numbers per token, which mix that many stored profiles of a bias over
    the last `relative_extent` distances. Queries and keys have a norm per head; nothing is rotated.
    """

    kind: ClassVar[str] = "conv_gqa"
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    conv_kernel: int
    relative_dim: int
    relative_extent: int
    window: int | None = None
    temperature: LogTemperature | None = None

    @property
    def key_width(self) -> int:
        return self.num_kv_heads * self.head_dim

    def cache_planes(self) -> tuple[CachePlane, ...]:
        shape = (self.num_kv_heads, self.head_dim)
        return CachePlane("k", shape, 0, self.window), CachePlane("v", shape, 0, self.window)

    def state_shapes(self) -> tuple[StateShape, ...]:
        shape = (self.key_width, self.conv_kernel - 1)
        return StateShape("k_conv", shape, "model"), StateShape("v_conv", shape, "model")


@dataclass(frozen=True, slots=True)
class ParallelMixers:
    """Attention and a state space that read the same norm; their outputs are added (Falcon-H1, arXiv 2507.22448).

    The factors are fixed numbers on what each reads and gives, on the keys, and on the five parts of the state
    space's input projection (z, x, B, C, step sizes).
    """

    kind: ClassVar[str] = "gqa_mamba2"
    attention: GroupedQueryAttention
    state_space: Mamba2
    attention_in: float = 1.0
    attention_out: float = 1.0
    key_scale: float = 1.0
    state_in: float = 1.0
    state_out: float = 1.0
    projection_scales: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 1.0)

    def cache_planes(self) -> tuple[CachePlane, ...]:
        return self.attention.cache_planes()

    def state_shapes(self) -> tuple[StateShape, ...]:
        return self.state_space.state_shapes()


@dataclass(frozen=True, slots=True)
class BranchConvolution:
    """A short causal convolution with its input added, over what both branches of a layer give."""

    width: int
    conv_kernel: int

    def state_shapes(self) -> tuple[StateShape, ...]:
        shape = (self.width, self.conv_kernel - 1)
        return StateShape("mixer_conv", shape, "model"), StateShape("ffn_conv", shape, "model")


ConvolvedMixer = CompressedConvolutionalAttention | RelativeConvolvedAttention | ParallelMixers
