"""The one description of a model: an `ArchitectureProfile` with one entry per layer, made of small typed specs.

Everything else (tensors, parameter counts, operators, cache and state sizes, shards, modules) is derived from it.
The specs are defined by subject beside this file and offered here together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from day0.errors import Finding
from day0.profile.audio import AudioTower
from day0.profile.cache_parts import CachePlane, StateShape
from day0.profile.ends import ModelEnds, NormKind, PerLayerInputs
from day0.profile.feed_forward import (
    Activation,
    ActivationSpec,
    DenseFeedForward,
    FeedForward,
    NoFeedForward,
    RoutedExperts,
    RouterMlp,
    RouterSpec,
    Scoring,
)
from day0.profile.grouped_query import CrossAttention, GroupedQueryAttention, OutputGate, QkNorm, QueryTemperature
from day0.profile.hyper_connections import HyperConnections
from day0.profile.latent_attention import LatentAttention
from day0.profile.likeness import Likeness
from day0.profile.mixers import KimiDeltaAttention, Mixer, NoMixer
from day0.profile.mixers_convolved import BranchConvolution
from day0.profile.mixers_sparse import (
    BlockIndexer,
    BlockSparseAttention,
    CompressedSparseAttention,
    HeavilyCompressedAttention,
    IndexerSpec,
    SharedKeyValueAttention,
    SparseLatentAttention,
    SparseMixer,
)
from day0.profile.positions import RopeLayout, RopeSpec
from day0.profile.quantization import QuantizationSpec
from day0.profile.residuals import (
    AffineResidual,
    AttentionResidual,
    GatedResidual,
    ParallelResidual,
    PlainResidual,
    Residual,
    ScaledResidual,
    WeighedResidual,
)
from day0.profile.vision import VisionSpec
from day0.profile.vision_tower import VisionTower

__all__ = [
    "Activation",
    "ActivationSpec",
    "AffineResidual",
    "ArchitectureProfile",
    "AttentionResidual",
    "AudioTower",
    "BlockIndexer",
    "BlockSparseAttention",
    "BranchConvolution",
    "CachePlane",
    "CompressedSparseAttention",
    "CrossAttention",
    "DenseFeedForward",
    "FeedForward",
    "GatedResidual",
    "GroupedQueryAttention",
    "HeavilyCompressedAttention",
    "HyperConnections",
    "IndexerSpec",
    "KimiDeltaAttention",
    "LatentAttention",
    "LayerSpec",
    "Mixer",
    "ModelEnds",
    "MultiTokenPrediction",
    "NoFeedForward",
    "NoMixer",
    "NormKind",
    "OutputGate",
    "ParallelResidual",
    "PerLayerInputs",
    "PlainResidual",
    "QkNorm",
    "QuantizationSpec",
    "QueryTemperature",
    "Residual",
    "RopeLayout",
    "RopeSpec",
    "RoutedExperts",
    "RouterMlp",
    "RouterSpec",
    "ScaledResidual",
    "Scoring",
    "SharedKeyValueAttention",
    "SparseLatentAttention",
    "SparseMixer",
    "StateShape",
    "VisionSpec",
    "VisionTower",
    "WeighedResidual",
]


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One decoder layer: what mixes tokens, what follows it, and how both join the residual stream.

    A layer that is only one of the two has `NoMixer` or `NoFeedForward` in the other's place. `norms` are the
    hidden-wide norms by our paths: before each branch ("mixer_norm", "ffn_norm"), after it ("mixer_post_norm", ...).
    `unit_norms` are RMS norms in such places that have no weight; `post_norm_eps` is the epsilon of norms after
    branches, None where it is the model's. What a norm of `gated_norms` gives, y, is multiplied
    by sigmoid(up silu(down y)) through `norm_gate_rank` channels (A.X-K2). `convolution` runs over what each branch
    gives before it joins the stream (Inkling).
    """

    index: int
    mixer: Mixer
    feed_forward: FeedForward
    residual: Residual
    norms: tuple[str, ...] = ("mixer_norm", "ffn_norm")
    unit_norms: tuple[str, ...] = ()
    post_norm_eps: float | None = None
    gated_norms: tuple[str, ...] = ()
    norm_gate_rank: int = 0
    convolution: BranchConvolution | None = None

    def cache_planes(self) -> tuple[CachePlane, ...]:
        """What the layer adds to the paged cache for each token."""
        return self.mixer.cache_planes()

    def state_shapes(self) -> tuple[StateShape, ...]:
        """What the layer keeps for each sequence, whatever its length."""
        after = self.convolution.state_shapes() if self.convolution is not None else ()
        return self.mixer.state_shapes() + after

    def tail_shapes(self) -> tuple[StateShape, ...]:
        """What the layer keeps for each sequence to finish entries that several tokens share."""
        return tuple(plane.tail for plane in self.cache_planes() if plane.tail is not None)


@dataclass(frozen=True, slots=True)
class MultiTokenPrediction:
    """Extra layers that predict tokens further ahead (DeepSeek-V3), stored beside the decoder and not part of it.

    The layers are shared out evenly among `depths` predictors. Each joins the normalised hidden state and the
    normalised next embedding by a projection before its first layer, and normalises after its last. A layer's
    `index` is its number in the checkpoint. `shares_embedding` says that they have no input table and head of
    their own. `split_join` projects state and embedding apart and adds them (DeepSeek-V4), instead of side by side.
    """

    layers: tuple[LayerSpec, ...]
    shares_embedding: bool = True
    depths: int = 1
    split_join: bool = False


@dataclass(frozen=True, slots=True)
class ArchitectureProfile:
    """What a model is, in our words. Sizes are element counts; `dtype` is the checkpoint's main dtype ("BF16").

    `family` is None where no table of `families/` explains the model; `native` says that the reference runtime has
    every part of its decoder; a model whose tower it lacks takes text alone, and a finding says so.
    `unused_config_keys` were read by nobody, `defaulted_config_keys` were wanted and absent; both are dotted paths.
    `likeness` is for a model_type that no table has: the nearest family, and whether this was read with its table.
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
    ends: ModelEnds = field(default_factory=ModelEnds)
    norm_kind: NormKind = "rms"
    native: bool = False
    quantization: QuantizationSpec | None = None
    vision: VisionSpec | VisionTower | None = None
    audio: AudioTower | None = None
    mtp: MultiTokenPrediction | None = None
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    unused_config_keys: tuple[str, ...] = ()
    defaulted_config_keys: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = field(default=())
    likeness: Likeness | None = None

    @property
    def num_layers(self) -> int:
        return len(self.layers)
