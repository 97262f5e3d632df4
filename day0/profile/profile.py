"""The one description of a model: an `ArchitectureProfile` with one entry per layer, made of small typed specs.

Everything else (tensors, parameter counts, operators, cache and state sizes, shards, modules) is derived from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from day0.errors import Finding

RopeLayout = Literal["neox", "interleaved"]
Activation = Literal["silu", "gelu", "gelu_tanh", "situ"]
Scoring = Literal["softmax", "sigmoid"]


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding over the first `dim` channels of a head.

    `scaling` names the frequency rule ("none", "linear", "llama3", "yarn"); `parameters` are its numbers, sorted
    by name. "neox" rotates channel i with i + dim/2, "interleaved" rotates neighbours.
    """

    theta: float
    dim: int
    layout: RopeLayout = "neox"
    scaling: str = "none"
    parameters: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class CachePlane:
    """What one layer keeps per token in the paged cache: `shape` elements, e.g. (kv_heads, head_dim).

    `head_axis` is the axis that tensor parallelism may cut, None where every rank holds all of it (latents).
    `window` is the number of last tokens that can still be read, None for all.
    """

    name: str
    shape: tuple[int, ...]
    head_axis: int | None = None
    window: int | None = None

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True, slots=True)
class StateShape:
    """What one layer keeps per sequence whatever its length. `dtype` is "float32" or "model" (the model's own)."""

    name: str
    shape: tuple[int, ...]
    dtype: Literal["float32", "model"]
    head_axis: int | None = 0

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True, slots=True)
class GroupedQueryAttention:
    """Softmax attention with shared key/value heads (GQA, Ainslie et al. 2023; MHA and MQA are its ends)."""

    kind: ClassVar[str] = "gqa"
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: RopeSpec | None
    scale: float
    qk_norm: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    window: int | None = None

    def cache_planes(self) -> tuple[CachePlane, ...]:
        shape = (self.num_kv_heads, self.head_dim)
        return CachePlane("k", shape, 0, self.window), CachePlane("v", shape, 0, self.window)

    def state_shapes(self) -> tuple[StateShape, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2): keys and values from one low-rank latent per token.

    The shared key slice of `qk_rope_head_dim` channels is rotated by `rope`, or left alone where `rope` is None
    (NoPE). `output_gate` multiplies the attention output by sigmoid(g_proj x) before o_proj.
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
    output_gate: bool = False

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    def cache_planes(self) -> tuple[CachePlane, ...]:
        return (CachePlane("latent", (self.kv_lora_rank + self.qk_rope_head_dim,)),)

    def state_shapes(self) -> tuple[StateShape, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class KimiDeltaAttention:
    """Kimi Delta Attention: a delta-rule linear attention whose decay is set per head and per key channel.

    `gate_lower_bound` selects the bounded decay gate; None is the softplus gate of Kimi-Linear. The convolution
    runs over q, k and v separately and remembers the last `conv_kernel - 1` inputs of each.
    """

    kind: ClassVar[str] = "kda"
    num_heads: int
    head_dim: int
    conv_kernel: int
    gate_lower_bound: float | None
    full_rank_gate: bool
    norm_eps: float

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


Mixer = GroupedQueryAttention | LatentAttention | KimiDeltaAttention


@dataclass(frozen=True, slots=True)
class ActivationSpec:
    """The gate of a gated linear unit. SiTU bounds both branches: `beta` the gate's, `linear_beta` the other's."""

    name: Activation
    beta: float | None = None
    linear_beta: float | None = None


@dataclass(frozen=True, slots=True)
class DenseFeedForward:
    """Gated MLP: down(act(gate x) * up x)."""

    kind: ClassVar[str] = "dense"
    width: int
    activation: ActivationSpec
    bias: bool = False


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """How `top_k` of `num_experts` are chosen and weighed.

    With a correction bias the choice uses score + bias and the weights the unbiased scores (DeepSeek-V3). Group
    limiting applies only when `num_groups` > `topk_groups`.
    """

    num_experts: int
    top_k: int
    scoring: Scoring
    renormalize: bool
    scaling_factor: float = 1.0
    correction_bias: bool = False
    num_groups: int = 1
    topk_groups: int = 1


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """Mixture of gated MLPs, with shared experts as one MLP of `shared_width` beside them (0: none).

    `latent_dim` is the width the routed experts work at; None means the model's own. `latent_norm` normalises the
    weighted sum in latent space before it is projected back.
    """

    kind: ClassVar[str] = "moe"
    router: RouterSpec
    width: int
    activation: ActivationSpec
    shared_width: int = 0
    latent_dim: int | None = None
    latent_norm: bool = False


FeedForward = DenseFeedForward | RoutedExperts


@dataclass(frozen=True, slots=True)
class PlainResidual:
    """x + f(norm(x)), as in every pre-norm transformer."""

    kind: ClassVar[str] = "plain"


@dataclass(frozen=True, slots=True)
class AttentionResidual:
    """Attention residuals (Kimi K3): each read mixes the running sum with snapshots taken every `block_size` layers."""

    kind: ClassVar[str] = "attention_residual"
    block_size: int


Residual = PlainResidual | AttentionResidual


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One decoder layer: what mixes tokens, what follows it, and how both join the residual stream."""

    index: int
    mixer: Mixer
    feed_forward: FeedForward
    residual: Residual

    def cache_planes(self) -> tuple[CachePlane, ...]:
        """What the layer adds to the paged cache for each token."""
        return self.mixer.cache_planes()

    def state_shapes(self) -> tuple[StateShape, ...]:
        """What the layer keeps for each sequence, whatever its length."""
        return self.mixer.state_shapes()


@dataclass(frozen=True, slots=True)
class VisionSpec:
    """A MoonViT-style tower and its patch-merging projector (Kimi K3).

    Attention works at `qkv_size`, which need not be `hidden_size`. `position_grid` is the learnt grid's rows and
    columns, resampled for other image sizes; a clip has at most `position_frames` frames. `merge` patches (rows,
    columns) become one token of `text_hidden_size`, which replaces a `placeholder_token_id` of the prompt.
    """

    patch_size: int
    hidden_size: int
    qkv_size: int
    num_layers: int
    num_heads: int
    mlp_width: int
    position_grid: tuple[int, int]
    position_frames: int
    merge: tuple[int, int]
    text_hidden_size: int
    norm_eps: float
    projector_norm_eps: float
    placeholder_token_id: int

    @property
    def head_dim(self) -> int:
        return self.qkv_size // self.num_heads

    @property
    def merged_size(self) -> int:
        """Width of one merged token before the projector."""
        return self.merge[0] * self.merge[1] * self.hidden_size


@dataclass(frozen=True, slots=True)
class QuantizationSpec:
    """How some weights are packed. `format` is "mxfp4"; `targets` names parameter groups of `parameters.py`."""

    method: str
    format: str
    group_size: int
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArchitectureProfile:
    """What a model is, in our words. Sizes are element counts; `dtype` is the checkpoint's main dtype ("BF16").

    `family` is None where no table of `families/` explains the model. `unused_config_keys` were read by nobody,
    `defaulted_config_keys` were wanted and absent; both are dotted paths.
    """

    family: str | None
    model_type: str
    architectures: tuple[str, ...]
    dtype: str
    hidden_size: int
    vocab_size: int
    norm_eps: float
    tie_word_embeddings: bool
    max_position: int | None
    max_position_field: str | None
    layers: tuple[LayerSpec, ...]
    residual: Residual
    quantization: QuantizationSpec | None = None
    vision: VisionSpec | None = None
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    unused_config_keys: tuple[str, ...] = ()
    defaulted_config_keys: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = field(default=())

    @property
    def num_layers(self) -> int:
        return len(self.layers)
