"""Towers of dots3: images by blocks of which the last ones have ever more experts, sounds by a Whisper-like encoder."""

from __future__ import annotations

from collections.abc import Mapping

from day0.errors import InputError
from day0.profile.audio import AudioTower
from day0.profile.config_reader import ConfigReader
from day0.profile.families.tower_names import BLOCK, tower_names
from day0.profile.read_vision_tower import (
    read_blocks,
    read_channels,
    read_head_dim,
    read_placeholders,
    read_side,
    read_theta,
    read_tower_activation,
    tower_section,
)
from day0.profile.tower_blocks import BlockShape, block_parts, mlp_parts
from day0.profile.tower_parts import (
    AxialRotation,
    BranchEnd,
    EncoderAttention,
    EncoderConvolution,
    GatedProduct,
    Nonlinearity,
    Part,
    PatchEmbedding,
    PatchMerge,
    Projection,
    Stage,
    TowerExperts,
    TowerNorm,
)
from day0.profile.vision_tower import VisionTower

_LAYER_NORM_EPS, _MERGER_EPS, _AUDIO_EPS = 1e-5, 1e-6, 1e-6
"""Epsilons that no config names: of the audio adapter's norm, the merger's, and the audio encoder's."""
_PYRAMID = (*(-1,) * 25, *range(4, 65, 4), 64)
"""Experts of each block where the config does not say; -1 is a dense block."""
_STRIDES = 8
"""Frames that become one token: three convolutions of stride 2."""


def read_dots_tower(top: ConfigReader) -> VisionTower:
    """Images: norms of queries and keys, dense blocks first, then experts; patches are joined behind the last norm."""
    section = tower_section(top)
    section.ignore("is_causal")
    depth, shape = read_blocks(section, "num_hidden_layers", 42), _read_shape(section)
    hidden, eps = shape.hidden, shape.eps
    patch, merge = read_side(section, "patch_size", 14), section.integer("spatial_merge_size", 2)
    if section.integer("adapter_merge_size", 2) != merge:
        raise InputError(f"must equal spatial_merge_size, {merge}", where=section.where("adapter_merge_size"))
    if section.integer("adapter_in_dim", 1536) != hidden:
        raise InputError(f"must equal the tower's width, {hidden}", where=section.where("adapter_in_dim"))
    output = section.integer("adapter_out_dim", 5120)
    joined = hidden * merge**2
    counts = _read_experts(section, depth)
    return VisionTower(
        kind="dots3",
        num_layers=depth,
        hidden_size=hidden,
        num_heads=shape.heads,
        patch_size=patch,
        temporal_patch_size=1,
        merge=(merge, merge),
        positions=("rotary",),
        projector="merger",
        output_size=output,
        placeholders=read_placeholders(top, image="image_token_id", video="video_token_id"),
        stages=(
            Stage(
                "vision.tower",
                (
                    PatchEmbedding("patch_embed", hidden, read_channels(section), (patch, patch), bias=True),
                    TowerNorm("stem_norm", hidden, "rms", eps),
                ),
            ),
            *(Stage(BLOCK, _block(section, shape, count), (index,)) for index, count in enumerate(counts)),
            Stage("vision.tower", (TowerNorm("norm", hidden, "rms", eps),)),
            Stage(
                "vision.projector",
                (
                    TowerNorm("norm", hidden, "layer", _MERGER_EPS),
                    PatchMerge(hidden, (merge, merge)),
                    *mlp_parts("mlp", (joined, joined, output), "gelu", bias=True),
                ),
            ),
        ),
    )


def _read_shape(section: ConfigReader) -> BlockShape:
    hidden = _either(section, "embed_dim", "hidden_size", 1536)
    heads = _either(section, "num_heads", "num_attention_heads", 24)
    bias_key = "use_bias" if section.has("use_bias") else "attention_bias"
    section.ignore("attention_bias")
    return BlockShape(
        hidden=hidden,
        heads=heads,
        head_dim=read_head_dim(section, hidden, heads, key="num_attention_heads", multiple=4),
        mlp_width=section.integer("intermediate_size", 4224),
        norm="rms",
        eps=section.number("rms_norm_eps", 1e-5),
        activation=read_tower_activation(section, "hidden_act", "silu"),
        bias=section.flag(bias_key, False),
        mlp_bias=section.flag("mlp_bias", False),
        gated=True,
        theta=read_theta(section),
        head_norm=True,
    )


def _either(section: ConfigReader, first: str, second: str, default: int) -> int:
    """The publisher's word before that under which transformers saves the same."""
    section.ignore(second)
    return section.integer(first) if section.has(first) else section.integer(second, default)


def _read_experts(section: ConfigReader, depth: int) -> tuple[int, ...]:
    """Experts of each block, 0 where it is dense: one list, or kinds of blocks with sizes by block."""
    if section.has("mlp_layer_types") and not section.has("pyramid_num_routed"):
        kinds = section.words("mlp_layer_types")
        everywhere = section.integer("num_local_experts", 64)
        own = section.section("per_layer_config")
        counts = tuple(_of_block(own, index, everywhere) if kind == "sparse" else 0 for index, kind in enumerate(kinds))
        key = "mlp_layer_types"
    else:
        section.ignore("mlp_layer_types", "num_local_experts", "per_layer_config")
        counts = tuple(max(count, 0) for count in section.integers("pyramid_num_routed", _PYRAMID))
        key = "pyramid_num_routed"
    if len(counts) != depth:
        raise InputError(f"{len(counts)} entries for {depth} blocks", where=section.where(key))
    return counts


def _of_block(own: ConfigReader | None, index: int, everywhere: int) -> int:
    block = own.section(str(index)) if own is not None else None
    if block is None:
        return everywhere
    block.ignore("num_experts_per_tok")  # the same for all, or all there are
    return block.integer("num_local_experts", everywhere)


def _block(section: ConfigReader, shape: BlockShape, experts: int) -> tuple[Part, ...]:
    width = section.integer("moe_intermediate_size", 2112)
    chosen_key = "num_experts_per_tok" if section.has("num_experts_per_tok") else "capacity_factor"
    scale_key = "router_scaling_factor" if section.has("router_scaling_factor") else "router_scale"
    chosen, scaling = section.integer(chosen_key, 2), section.number(scale_key, 1.0)
    if not experts:
        return block_parts(shape)
    routed = TowerExperts("mlp", experts, min(chosen, experts), shape.hidden, width, scaling, shape.activation)
    return block_parts(shape, mlp=(routed,))


_AUDIO_WORDS = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
    "intermediate_size": "encoder_ffn_dim",
    "feature_size": "num_mel_bins",
}
"""What the publisher's `whisper_config` inside the section calls sizes."""


def _audio_sizes(section: ConfigReader) -> dict[str, int]:
    """Sizes of the encoder: of the publisher's inner section where it is there, else of the section itself."""
    defaults = {
        "hidden_size": 1280,
        "num_attention_heads": 20,
        "num_hidden_layers": 32,
        "intermediate_size": 5120,
        "feature_size": 128,
    }
    inner = section.section("whisper_config")
    if inner is None:
        return {key: section.integer(key, default) for key, default in defaults.items()}
    inner.ignore("dropout", "attention_dropout", "max_source_positions")
    section.ignore(*defaults)
    return {
        key: inner.integer(word) if inner.has(word) else section.integer(key, defaults[key])
        for key, word in _AUDIO_WORDS.items()
    }


def read_dots_audio(top: ConfigReader) -> AudioTower:
    """Mel frames through three convolutions, then pre-norm blocks that turn half of each head; an MLP behind them."""
    section = tower_section(top, "audio_config")
    # Sizes that follow from the others; rates and lengths of the sound that the processor minds; dropout.
    section.ignore("num_key_value_heads", "head_dim", "conv_output_size", "samples_per_token", "hop_length")
    section.ignore("sampling_rate", "max_position_embeddings", "dropout", "partial_rotary_factor")
    sizes = _audio_sizes(section)
    hidden, heads, features = sizes["hidden_size"], sizes["num_attention_heads"], sizes["feature_size"]
    depth = sizes["num_hidden_layers"]
    reads_key = "whisper_adapter_in_dim" if section.has("whisper_adapter_in_dim") else "adapter_input_size"
    if section.integer(reads_key, 1280) != hidden:
        raise InputError(f"must equal the encoder's width, {hidden}", where=section.where(reads_key))
    writes_key = next(
        (key for key in ("whisper_adapter_out_dim", "adapter_output_size") if section.has(key)), "adapter_out_dim"
    )
    output = section.integer(writes_key, 5120)
    adapter = (
        TowerNorm("norm", hidden, "layer", _LAYER_NORM_EPS),
        *mlp_parts("mlp", (hidden, output, output), "gelu", bias=True),
    )
    return AudioTower(
        kind="dots3_whisper",
        num_layers=depth,
        hidden_size=hidden,
        num_heads=heads,
        features=features,
        frames_per_token=_STRIDES,
        positions="rotary",
        projector="mlp",
        output_size=output,
        placeholder_token_id=dict(read_placeholders(top, audio="audio_token_id")).get("audio"),
        stages=(
            Stage("audio.tower", _audio_stem(section, hidden, features)),
            Stage("audio.tower.blocks.{block}", _audio_block(section, sizes), tuple(range(depth))),
            Stage("audio.tower", (TowerNorm("norm", hidden, "rms", _AUDIO_EPS),)),
            Stage("audio.projector", adapter),
        ),
    )


def _audio_stem(section: ConfigReader, hidden: int, features: int) -> tuple[Part, ...]:
    channels = section.integer("downsample_hidden_size", 480)
    parts: list[Part] = []
    for number, reads in enumerate((1, channels, channels), start=1):
        parts.append(EncoderConvolution(f"convolution{number}", reads, channels, (3, 3), stride=2, bias=True))
        parts.append(Nonlinearity("gelu", channels))
    return *parts, Projection("stem", channels * -(-features // _STRIDES), hidden)


def _audio_block(section: ConfigReader, sizes: Mapping[str, int]) -> tuple[Part, ...]:
    """Keys have no bias; gate and up are one matrix."""
    hidden, heads, inner = sizes["hidden_size"], sizes["num_attention_heads"], sizes["intermediate_size"]
    dim = read_head_dim(section, hidden, heads, key="num_attention_heads", multiple=2)
    bias = section.flag("attention_bias", True)
    rope = section.section("rope_parameters")
    share = rope.number("partial_rotary_factor", 0.5) if rope is not None else 0.5
    theta = read_theta(section)
    pairs = int(dim * share) // 2
    return (
        TowerNorm("attention_norm", hidden, "rms", _AUDIO_EPS),
        *(Projection(f"attention.{axis}", hidden, hidden, bias and axis != "k") for axis in "qkv"),
        AxialRotation(heads, dim, pairs, theta, axes=1),
        EncoderAttention(heads, heads, dim, dim**-0.5),
        Projection("attention.out", hidden, hidden, bias),
        BranchEnd(hidden),
        TowerNorm("mlp_norm", hidden, "rms", _AUDIO_EPS),
        Projection("mlp.gate_up", hidden, 2 * inner, bias=True),
        GatedProduct(read_tower_activation(section, "hidden_act", "silu"), inner),
        Projection("mlp.down", inner, hidden, bias=True),
        BranchEnd(hidden),
    )


_ENCODER = "audio_encoder.dots_encoder.speech_encoder"

DOTS_TOWER_NAMES: Mapping[str, str] = {
    **tower_names(
        "vision.tower",
        "vision_encoder",
        {"patch_embed": "patch_embed.proj", "stem_norm": "patch_embed.norm", "norm": "post_trunk_norm"},
    ),
    **tower_names(
        BLOCK,
        "vision_encoder.blocks.{block}",
        {
            "attention_norm": "norm_1",
            "attention.qkv": "attn.qkv",
            "attention.q_norm": "attn.q_norm",
            "attention.k_norm": "attn.k_norm",
            "attention.out": "attn.proj",
            "mlp_norm": "norm_2",
            "mlp.gate": "mlp.fc1",
            "mlp.up": "mlp.fc3",
            "mlp.down": "mlp.fc2",
            "mlp.experts.gate": "mlp.experts.{expert}.fc1",
            "mlp.experts.up": "mlp.experts.{expert}.fc3",
            "mlp.experts.down": "mlp.experts.{expert}.fc2",
        },
    ),
    f"{BLOCK}.mlp.router.weight": "vision_encoder.blocks.{block}.mlp.gate_weight",
    f"{BLOCK}.mlp.router.correction_bias": "vision_encoder.blocks.{block}.mlp.router_bias",
    **tower_names(
        "vision.projector", "vision_encoder.adapter", {"norm": "ln_q", "mlp.up": "mlp.0", "mlp.down": "mlp.2"}
    ),
    **tower_names(
        "audio.tower",
        _ENCODER,
        {**{f"convolution{n}": f"conv2d{n}" for n in (1, 2, 3)}, "stem": "conv_out", "norm": "layer_norm"},
    ),
    **tower_names(
        "audio.tower.blocks.{block}",
        f"{_ENCODER}.layers.{{block}}",
        {
            "attention_norm": "self_attn_layer_norm",
            **{f"attention.{axis}": f"self_attn.{axis}_proj" for axis in "qkv"},
            "attention.out": "self_attn.out_proj",
            "mlp_norm": "final_layer_norm",
            "mlp.gate_up": "fc1",
            "mlp.down": "fc2",
        },
    ),
    **tower_names(
        "audio.projector",
        "audio_encoder.audio_adapter",
        {"norm": "proj.0", "mlp.up": "proj.1", "mlp.down": "proj.3"},
    ),
}
