"""Gemma 4's towers: images by blocks with norms on both sides, sounds by a conformer with chunks of attention."""

from __future__ import annotations

from collections.abc import Mapping
from math import log

from day0.errors import InputError
from day0.profile.audio import AudioTower
from day0.profile.config_reader import ConfigReader
from day0.profile.families.tower_names import BLOCK, GATED, SEPARATE, table_names, tower_names
from day0.profile.read_vision_tower import (
    CHANNELS,
    optional_tower_section,
    read_blocks,
    read_head_dim,
    read_placeholders,
    read_side,
    read_theta,
    read_tower_activation,
    text_width,
)
from day0.profile.tower_blocks import BlockShape, block_parts
from day0.profile.tower_parts import (
    BranchEnd,
    EncoderAttention,
    EncoderConvolution,
    GatedProduct,
    LearntTable,
    Nonlinearity,
    Part,
    PatchEmbedding,
    PatchPool,
    Projection,
    Stage,
    TowerActivation,
    TowerNorm,
)
from day0.profile.vision_tower import VisionTower

_MEL_BINS = 128
"""Numbers of a frame of sound, by the feature extractor; the config does not repeat them."""
_SUBSAMPLING = 4
"""Frames that become one token: two convolutions of stride 2."""
_NORM_EPS = 1e-6
"""Epsilon of norms that the model definition gives none."""


def read_gemma4_tower(top: ConfigReader) -> VisionTower | None:
    """Images: positions by column and row, cells of patches averaged; None where the config has no section for it."""
    section = optional_tower_section(top)
    if section is None:
        return None
    # No projection has a bias. How many tokens an image becomes is the processor's affair; rotations need no maximum.
    section.ignore("attention_bias", "max_position_embeddings", "global_head_dim")
    section.ignore("default_output_length", "image_seq_length", "video_seq_length")
    depth, shape = read_blocks(section, "num_hidden_layers", 16), _read_shape(section)
    hidden, pool, patch = shape.hidden, section.integer("pooling_kernel_size", 3), read_side(section, "patch_size", 16)
    output = text_width(top)
    places = section.integer("position_embedding_size", 10240)
    standard: tuple[Part, ...] = ()
    if section.flag("standardize", False):
        standard = (
            LearntTable("shift", (hidden,), "shift", trained=False),
            LearntTable("scale", (hidden,), "scale", trained=False),
        )
    return VisionTower(
        kind="gemma4",
        num_layers=depth,
        hidden_size=hidden,
        num_heads=shape.heads,
        patch_size=patch,
        temporal_patch_size=1,
        merge=(pool, pool),
        positions=("learnt", "rotary"),
        projector="pool_linear",
        output_size=output,
        placeholders=read_placeholders(top, image="image_token_id", video="video_token_id"),
        stages=(
            Stage(
                "vision.tower",
                (
                    PatchEmbedding("patch_embed", hidden, CHANNELS, (patch, patch), flat=True),
                    LearntTable("positions", (2, places, hidden), "axes"),
                ),
            ),
            Stage(BLOCK, block_parts(shape), tuple(range(depth))),
            Stage("vision.tower", (PatchPool(hidden, (pool, pool), hidden**0.5), *standard)),
            Stage(
                "vision.projector", (TowerNorm("norm", hidden, "unit", shape.eps), Projection("proj", hidden, output))
            ),
        ),
    )


def _read_shape(section: ConfigReader) -> BlockShape:
    return BlockShape(
        hidden=section.integer("hidden_size", 768),
        heads=section.integer("num_attention_heads", 12),
        kv_heads=section.integer("num_key_value_heads", 12),
        head_dim=section.integer("head_dim", 64),
        mlp_width=section.integer("intermediate_size", 3072),
        norm="rms",
        eps=section.number("rms_norm_eps", 1e-6),
        activation=read_tower_activation(section, "hidden_activation", "gelu_pytorch_tanh"),
        joined=False,
        bias=False,
        mlp_bias=False,
        gated=True,
        theta=read_theta(section, 100.0),
        layout="apart",
        head_norm=True,
        value_norm=True,
        after=True,
        bounded=section.flag("use_clipped_linears", False),
        scale=1.0,
    )


def read_gemma4_audio(top: ConfigReader) -> AudioTower | None:
    """Sounds: mel frames through two convolutions, then conformer blocks; None where the config has no section."""
    section = optional_tower_section(top, "audio_config")
    if section is None:
        return None
    # What masked logits are set to, and a bound for training: neither changes a result.
    section.ignore("attention_invalid_logits_value", "gradient_clipping")
    hidden, depth = section.integer("hidden_size", 1024), read_blocks(section, "num_hidden_layers", 12)
    heads, eps = section.integer("num_attention_heads", 8), section.number("rms_norm_eps", 1e-6)
    channels = section.integers("subsampling_conv_channels", (128, 32))
    if len(channels) != 2 or min(channels) < 1:
        raise InputError(
            f"must be two numbers of channels, got {list(channels)}", where=section.where("subsampling_conv_channels")
        )
    writes, output = section.integer("output_proj_dims", 1536), text_width(top)
    end = (
        Projection("out", hidden, writes, bias=True),
        TowerNorm("norm", writes, "unit", eps),
        Projection("proj", writes, output),
    )
    return AudioTower(
        kind="gemma4_conformer",
        num_layers=depth,
        hidden_size=hidden,
        num_heads=heads,
        features=_MEL_BINS,
        frames_per_token=_SUBSAMPLING,
        positions="relative",
        projector="linear",
        output_size=output,
        placeholder_token_id=dict(read_placeholders(top, audio="audio_token_id")).get("audio"),
        stages=(
            Stage("audio.tower", _audio_stem(channels, hidden, eps)),
            Stage("audio.tower.blocks.{block}", _conformer(section, hidden, heads, eps), tuple(range(depth))),
            Stage("audio.projector", end),
        ),
    )


def _audio_stem(channels: tuple[int, ...], hidden: int, eps: float) -> tuple[Part, ...]:
    """Two convolutions over time and frequency, each halving both, then one matrix over what is left of a frame."""
    parts: list[Part] = []
    for index, (reads, writes) in enumerate(zip((1, channels[0]), channels, strict=True)):
        parts += [
            EncoderConvolution(f"convolution{index}", reads, writes, (3, 3), stride=2, bias=False),
            TowerNorm(f"convolution{index}_norm", writes, "layer_without_bias", eps),
            Nonlinearity("relu", writes),
        ]
    # The model definition takes the first number of channels for the number of mel bins, which it equals.
    return *parts, Projection("stem", channels[0] // 4 * channels[1], hidden)


def _conformer(section: ConfigReader, hidden: int, heads: int, eps: float) -> tuple[Part, ...]:
    """Half an MLP, attention, convolution, the other half (arXiv 2005.08100)."""
    bounded = section.flag("use_clipped_linears", True)
    activation = read_tower_activation(section, "hidden_act", "silu")
    weight = section.number("residual_weight", 0.5)
    return (
        *_half(1, hidden, activation, weight, bounded),
        *_chunked_attention(section, hidden, heads, bounded),
        *_convolution(section, hidden, activation, eps, bounded),
        *_half(2, hidden, activation, weight, bounded),
        TowerNorm("output_norm", hidden, "rms", _NORM_EPS),
    )


def _half(number: int, hidden: int, activation: TowerActivation, weight: float, bounded: bool) -> tuple[Part, ...]:
    name, inner = f"mlp{number}", 4 * hidden
    return (
        TowerNorm(f"{name}_norm", hidden, "rms", _NORM_EPS),
        Projection(f"{name}.up", hidden, inner, bounded=bounded),
        Nonlinearity(activation, inner),
        Projection(f"{name}.down", inner, hidden, bounded=bounded),
        TowerNorm(f"{name}_post_norm", hidden, "rms", _NORM_EPS),
        BranchEnd(hidden, weight),
    )


def _chunked_attention(section: ConfigReader, hidden: int, heads: int, bounded: bool) -> tuple[Part, ...]:
    """Frames see a few frames around their chunk; the scale of queries is learnt per channel around 1 / log 2."""
    head_dim = read_head_dim(section, hidden, heads, key="num_attention_heads")
    projections = (Projection(f"attention.{axis}", hidden, hidden, bounded=bounded) for axis in "qkv")
    return (
        TowerNorm("attention_norm", hidden, "rms", _NORM_EPS),
        *projections,
        LearntTable("attention.head_scale", (head_dim,), "head_scale", width=hidden),
        Projection("attention.relative_k", hidden, hidden),
        EncoderAttention(
            heads,
            heads,
            head_dim,
            scale=head_dim**-0.5 / log(2),
            chunk=section.integer("attention_chunk_size", 12),
            past=section.integer("attention_context_left", 13) - 1,
            future=section.integer("attention_context_right", 0, minimum=0),
            softcap=section.number("attention_logit_cap", 50.0),
        ),
        Projection("attention.out", hidden, hidden, bounded=bounded),
        TowerNorm("attention_post_norm", hidden, "rms", _NORM_EPS),
        BranchEnd(hidden),
    )


def _convolution(
    section: ConfigReader, hidden: int, activation: TowerActivation, eps: float, bounded: bool
) -> tuple[Part, ...]:
    taps = section.integer("conv_kernel_size", 5)
    return (
        TowerNorm("convolution_norm", hidden, "rms", eps),
        Projection("convolution.up", hidden, 2 * hidden, bounded=bounded),
        GatedProduct("sigmoid", hidden),
        EncoderConvolution("convolution.depthwise", hidden, hidden, (taps,), stride=1, bias=False, depthwise=True),
        TowerNorm("convolution.norm", hidden, "rms", eps),
        Nonlinearity(activation, hidden),
        Projection("convolution.down", hidden, hidden, bounded=bounded),
        BranchEnd(hidden),
    )


_BOUNDS = ("input_min", "input_max", "output_min", "output_max")


def _clippable(ours: str, theirs: str, modules: Mapping[str, str]) -> dict[str, str]:
    """Projections that keep their matrix in a module of its own, beside the bounds of what goes in and comes out."""
    return {
        **tower_names(ours, theirs, {module: f"{name}.linear" for module, name in modules.items()}),
        **table_names(ours, theirs, {f"{m}.{bound}": f"{n}.{bound}" for m, n in modules.items() for bound in _BOUNDS}),
    }


_SANDWICH = {
    "attention_norm": "input_layernorm",
    "attention_post_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
}
_AUDIO_NORMS = {
    "attention_norm": "norm_pre_attn",
    "attention_post_norm": "norm_post_attn",
    "output_norm": "norm_out",
    "convolution_norm": "lconv1d.pre_layer_norm",
    "convolution.norm": "lconv1d.conv_norm",
    "convolution.depthwise": "lconv1d.depthwise_conv1d",
    "attention.relative_k": "self_attn.relative_k_proj",
    **{f"mlp{n}_norm": f"feed_forward{n}.pre_layer_norm" for n in (1, 2)},
    **{f"mlp{n}_post_norm": f"feed_forward{n}.post_layer_norm" for n in (1, 2)},
}
_AUDIO_PROJECTIONS = {
    **SEPARATE,
    "attention.out": "self_attn.post",
    "convolution.up": "lconv1d.linear_start",
    "convolution.down": "lconv1d.linear_end",
    **{f"mlp{n}.{ours}": f"feed_forward{n}.ffw_layer_{i}" for n in (1, 2) for ours, i in (("up", 1), ("down", 2))},
}
_AUDIO_STEM = {
    "stem": "input_proj_linear",
    **{f"convolution{index}": f"layer{index}.conv" for index in (0, 1)},
    **{f"convolution{index}_norm": f"layer{index}.norm" for index in (0, 1)},
}
_VISION_TABLES = {
    "positions": "patch_embedder.position_embedding_table",
    "shift": "std_bias",
    "scale": "std_scale",
}
_VISION_BLOCK = "model.vision_tower.encoder.layers.{block}"
_AUDIO, _AUDIO_BLOCK = "audio.tower.blocks.{block}", "model.audio_tower.layers.{block}"

GEMMA4_TOWER_NAMES: Mapping[str, str] = {
    **tower_names("vision.tower", "model.vision_tower", {"patch_embed": "patch_embedder.input_proj"}),
    **table_names("vision.tower", "model.vision_tower", _VISION_TABLES),
    **tower_names(BLOCK, _VISION_BLOCK, {**_SANDWICH, **{f"attention.{a}_norm": f"self_attn.{a}_norm" for a in "qk"}}),
    **_clippable(BLOCK, _VISION_BLOCK, {**SEPARATE, **GATED}),
    **tower_names("vision.projector", "model.embed_vision", {"proj": "embedding_projection"}),
    **tower_names("audio.tower", "model.audio_tower.subsample_conv_projection", _AUDIO_STEM),
    **tower_names(_AUDIO, _AUDIO_BLOCK, _AUDIO_NORMS),
    **_clippable(_AUDIO, _AUDIO_BLOCK, _AUDIO_PROJECTIONS),
    **table_names(_AUDIO, _AUDIO_BLOCK, {"attention.head_scale": "self_attn.per_dim_scale"}),
    **tower_names("audio.projector", "model.audio_tower", {"out": "output_proj"}),
    **tower_names("audio.projector", "model.embed_audio", {"proj": "embedding_projection"}),
}
