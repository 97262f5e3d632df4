"""Mixers with a state of fixed size: linear attention, state spaces and short convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from day0.profile.cache_parts import CachePlane, StateShape
from day0.profile.positions import RopeSpec


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """Gated delta rule (Yang et al., arXiv 2412.06464): a linear attention whose decay is one number per head.

    A head's state is decayed by exp(-exp(A_log) softplus(a + dt_bias)) and corrected towards v with strength
    sigmoid(b), or twice that with `negative_eigenvalues`. Value heads share the key heads in groups. q, k and v pass
    a causal convolution and silu, q and k are brought to unit length. The output is normalised per head and
    multiplied by silu(z).
    """

    kind: ClassVar[str] = "gated_deltanet"
    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    norm_eps: float
    negative_eigenvalues: bool = False

    @property
    def key_width(self) -> int:
        return self.num_key_heads * self.key_head_dim

    @property
    def value_width(self) -> int:
        return self.num_value_heads * self.value_head_dim

    @property
    def conv_width(self) -> int:
        """Channels that are convolved: queries, keys and values."""
        return 2 * self.key_width + self.value_width

    def cache_planes(self) -> tuple[CachePlane, ...]:
        return ()

    def state_shapes(self) -> tuple[StateShape, ...]:
        recurrent = (self.num_value_heads, self.key_head_dim, self.value_head_dim)
        return (
            StateShape("recurrent", recurrent, "float32"),
            StateShape("conv", (self.conv_width, self.conv_kernel - 1), "model"),
        )


@dataclass(frozen=True, slots=True)
class LightningAttention:
    """Linear attention with a fixed decay per head (Lightning Attention, arXiv 2401.04658; MiniMax-01, 2501.08313).

    The decay follows from head and layer number and is not stored. The output is normalised in `norm_groups` equal
    groups of channels and multiplied by sigmoid of a projection of the layer's input. `qkv_activation` is applied
    to q, k and v; `qk_norm` normalises q and k per head, `rope` rotates them.
    """

    kind: ClassVar[str] = "lightning"
    num_heads: int
    head_dim: int
    norm_groups: int
    norm_eps: float
    qkv_activation: Literal["silu"] | None = None
    qk_norm: bool = False
    rope: RopeSpec | None = None
    qkv_bias: bool = False
    o_bias: bool = False

    @property
    def width(self) -> int:
        return self.num_heads * self.head_dim

    def cache_planes(self) -> tuple[CachePlane, ...]:
        return ()

    def state_shapes(self) -> tuple[StateShape, ...]:
        return (StateShape("recurrent", (self.num_heads, self.head_dim, self.head_dim), "float32"),)


@dataclass(frozen=True, slots=True)
class Mamba:
    """Selective state space (Mamba, arXiv 2312.00752): a diagonal state of `state_size` numbers per channel.

    `inner_norms` normalises the step size, B and C before use (Jamba, arXiv 2403.19887).
    """

    kind: ClassVar[str] = "mamba"
    width: int
    state_size: int
    step_rank: int
    conv_kernel: int
    conv_bias: bool
    proj_bias: bool
    inner_norms: bool
    norm_eps: float

    def cache_planes(self) -> tuple[CachePlane, ...]:
        return ()

    def state_shapes(self) -> tuple[StateShape, ...]:
        return (
            StateShape("recurrent", (self.width, self.state_size), "float32"),
            StateShape("conv", (self.width, self.conv_kernel - 1), "model"),
        )


@dataclass(frozen=True, slots=True)
class Mamba2:
    """State space dual (Mamba-2, arXiv 2405.21060): one decay per head, B and C shared by groups of heads.

    The output is normalised in `num_groups` groups together with its gate silu(z); `norm` False leaves only the
    gate, `norm_first` normalises before the gate is applied. `step_limit` bounds the step size after softplus.
    """

    kind: ClassVar[str] = "mamba2"
    num_heads: int
    head_dim: int
    num_groups: int
    state_size: int
    conv_kernel: int
    conv_bias: bool
    proj_bias: bool
    norm_eps: float
    norm: bool = True
    norm_first: bool = False
    step_limit: tuple[float, float | None] = (0.0, None)

    @property
    def width(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def conv_width(self) -> int:
        """Channels that are convolved: the inputs of all heads, B and C."""
        return self.width + 2 * self.num_groups * self.state_size

    @property
    def projection_width(self) -> int:
        """What the layer's input is projected to: the gate, what is convolved, and a step size per head."""
        return self.width + self.conv_width + self.num_heads

    def cache_planes(self) -> tuple[CachePlane, ...]:
        return ()

    def state_shapes(self) -> tuple[StateShape, ...]:
        return (
            StateShape("recurrent", (self.num_heads, self.head_dim, self.state_size), "float32"),
            StateShape("conv", (self.conv_width, self.conv_kernel - 1), "model"),
        )


@dataclass(frozen=True, slots=True)
class ShortConvolution:
    """Gated short convolution (LFM2, arXiv 2511.23404): out(C * conv(B * x)), B, C, x from one projection."""

    kind: ClassVar[str] = "short_conv"
    width: int
    conv_kernel: int
    bias: bool = False

    def cache_planes(self) -> tuple[CachePlane, ...]:
        return ()

    def state_shapes(self) -> tuple[StateShape, ...]:
        return (StateShape("conv", (self.width, self.conv_kernel - 1), "model"),)


@dataclass(frozen=True, slots=True)
class LinearMap:
    """One matrix of the hidden size in a branch's place: what a search put where attention or MLP were not worth it.

    It mixes no tokens and remembers nothing (Puzzle, arXiv 2411.19146).
    """

    kind: ClassVar[str] = "linear_map"
    bias: bool = False

    def cache_planes(self) -> tuple[CachePlane, ...]:
        return ()

    def state_shapes(self) -> tuple[StateShape, ...]:
        return ()


LinearMixer = GatedDeltaNet | LightningAttention | Mamba | Mamba2 | ShortConvolution | LinearMap
