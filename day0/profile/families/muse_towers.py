"""Towers of Muse Glimmer and Muse Spark: images by windowed blocks, sounds by a pyramid of causal convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from day0.errors import InputError
from day0.profile.audio import AudioTower
from day0.profile.config_reader import ConfigReader
from day0.profile.families.tower_names import BLOCK, PLAIN, table_names, tower_names
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.read_vision_tower import (
    CHANNELS,
    read_blocks,
    read_head_dim,
    read_placeholders,
    read_side,
    read_theta,
    read_tower_activation,
    text_width,
    tower_section,
)
from day0.profile.tower_blocks import BlockShape, block_parts, mlp_parts
from day0.profile.tower_parts import (
    BranchEnd,
    EncoderConvolution,
    LearntTable,
    Nonlinearity,
    Part,
    PatchEmbedding,
    PatchMerge,
    Projection,
    Stage,
    TowerNorm,
)
from day0.profile.vision_tower import VisionTower

_BLOCK_EPS = 1e-5
"""Epsilon of the norms inside blocks; the config's is that of the norms around them."""
_KINDS = {"window_attention": False, "full_attention": True}


def read_muse_tower(top: ConfigReader) -> VisionTower:
    """Windows as large as the learnt grid in three blocks of four; patches are joined behind the last norm."""
    section = tower_section(top)
    section.ignore("max_position_embeddings")  # the grid's rows times its columns
    depth, hidden = read_blocks(section, "num_hidden_layers", 50), section.integer("hidden_size", 1536)
    heads, patch = section.integer("num_attention_heads", 16), read_side(section, "patch_size", 14)
    frames, merge = section.integer("patch_temporal", 2), section.integer("merge_size", 2)
    rows, columns = section.integer("pos_emb_height", 32), section.integer("pos_emb_width", 32)
    eps = section.number("layer_norm_eps", 1e-5)
    shape = BlockShape(
        hidden=hidden,
        heads=heads,
        head_dim=read_head_dim(section, hidden, heads, key="num_attention_heads", multiple=4),
        mlp_width=section.integer("intermediate_size", 8960),
        norm="layer",
        eps=_BLOCK_EPS,
        activation=read_tower_activation(section, "hidden_act", "gelu"),
        joined=False,
        theta=read_theta(section),
    )
    full = tuple(block for block in range(depth) if _sees_all(section, block, depth))
    grid = LearntTable("positions", (rows * columns, hidden), "grid", module=True, resampling="bilinear")
    output = text_width(top)
    return VisionTower(
        kind="muse",
        num_layers=depth,
        hidden_size=hidden,
        num_heads=heads,
        patch_size=patch,
        temporal_patch_size=frames,
        merge=(merge, merge),
        positions=("grid", "rotary"),
        projector="mlp_linear",
        output_size=output,
        window=rows * patch,
        full_blocks=full,
        placeholders=read_placeholders(top, image="image_token_id", video="video_token_id"),
        stages=(
            Stage(
                "vision.tower",
                (
                    PatchEmbedding("patch_embed", hidden, CHANNELS, (frames, patch, patch), flat=True),
                    grid,
                    TowerNorm("stem_norm", hidden, "layer", eps),
                ),
            ),
            *(
                Stage(BLOCK, block_parts(shape, window=None if block in full else rows), (block,))
                for block in range(depth)
            ),
            Stage("vision.tower", (TowerNorm("norm", hidden, "layer", eps), PatchMerge(hidden, (merge, merge)))),
            Stage("vision.projector", _projector(top, hidden * merge**2, output)),
        ),
    )


def _sees_all(section: ConfigReader, block: int, depth: int) -> bool:
    return read_layer_kind(section, block, _KINDS, lambda i: (i + 1) % 4 == 0 or i == depth - 1)


def _projector(top: ConfigReader, joined: int, output: int) -> tuple[Part, ...]:
    """Two matrices with an activation behind each, the projection, and a norm without weight."""
    reads, inner = top.integer("out_hidden_size", 6144), top.integer("projector_hidden_size", 4096)
    if reads != joined:
        raise InputError(
            f"{reads} channels are not those of a joined patch, {joined}", where=top.where("out_hidden_size")
        )
    activation = read_tower_activation(top, "projector_hidden_act", "gelu")
    eps = (top.section("text_config") or top).number("rms_norm_eps", 1e-5)
    return (
        Projection("mlp.up", reads, inner),
        Nonlinearity(activation, inner),
        Projection("mlp.down", inner, inner),
        Nonlinearity(activation, inner),
        Projection("proj", inner, output),
        TowerNorm("norm", output, "unit", eps),
    )


def read_muse_audio(top: ConfigReader) -> AudioTower:
    """The waveform itself, through levels that each join `patch_sizes` positions and widen them; no attention."""
    section = tower_section(top, "audio_config")
    sizes = section.integers("hidden_sizes", (256, 512, 1024, 2048))
    levels = read_blocks(section, "num_hidden_layers", len(sizes))
    patches = section.integers("patch_sizes", (16, 6, 5, 4))
    depths = section.integers("depths", (2, 2, 2, 2))
    for key, given in (("hidden_sizes", sizes), ("patch_sizes", patches), ("depths", depths)):
        if len(given) != levels or min(given) < 1:
            raise InputError(f"must be {levels} positive integers, got {list(given)}", where=section.where(key))
    eps = section.number("rms_norm_eps", 1e-6)
    output = section.integer("out_hidden_size", 8192)
    block = partial(_audio_block, section, eps=eps)
    stages: list[Stage] = []
    for level, (reads, width, patch) in enumerate(zip((1, *sizes), sizes, patches, strict=False)):
        join = (Projection("patch", reads * patch, width, bias=True), TowerNorm("norm", width, "rms", eps))
        stages.append(Stage("audio.tower.levels.{level}", join, level=level))
        blocks = tuple(range(depths[level]))
        stages.append(Stage("audio.tower.levels.{level}.blocks.{block}", block(width), blocks, level))
    frames = 1
    for patch in patches:
        frames *= patch
    end = (
        TowerNorm("input_norm", sizes[-1], "rms", eps),
        Projection("proj", sizes[-1], output, bias=True),
        TowerNorm("norm", output, "rms", eps),
    )
    return AudioTower(
        kind="muse_pyramid",
        num_layers=sum(depths),
        hidden_size=sizes[-1],
        num_heads=0,
        features=1,
        frames_per_token=frames,
        positions="convolution",
        projector="linear",
        output_size=output,
        placeholder_token_id=dict(read_placeholders(top, audio="audio_token_id")).get("audio"),
        stages=(*stages, Stage("audio.projector", end)),
    )


def _audio_block(section: ConfigReader, width: int, *, eps: float) -> tuple[Part, ...]:
    """A depthwise convolution, a norm and an MLP, beside the stream (ConvNeXt, arXiv 2201.03545)."""
    taps, ratio = section.integer("conv_kernel_size", 7), section.number("mlp_ratio", 4.0)
    activation = read_tower_activation(section, "hidden_act", "gelu")
    return (
        EncoderConvolution("convolution", width, width, (taps,), stride=1, bias=True, depthwise=True),
        TowerNorm("norm", width, "rms", eps),
        *mlp_parts("mlp", (width, int(width * ratio), width), activation, bias=True),
        BranchEnd(width),
    )


_TOWER, _AUDIO = "model.vision_tower", "model.audio_tower"
_LEVEL = "audio.tower.levels.{level}"

MUSE_TOWER_NAMES: Mapping[str, str] = {
    **tower_names(
        "vision.tower",
        _TOWER,
        {"patch_embed": "patch_embedder.patch_embedding", "stem_norm": "ln_pre", "norm": "ln_post"},
    ),
    **table_names("vision.tower", _TOWER, {"positions.weight": "patch_embedder.position_embedding_table.weight"}),
    **tower_names(
        BLOCK,
        f"{_TOWER}.layers.{{block}}",
        {
            "attention_norm": "norm1",
            **{f"attention.{axis}": f"attn.{axis}_proj" for axis in "qkv"},
            "attention.out": "attn.proj",
            "mlp_norm": "norm2",
            **PLAIN,
        },
    ),
    **tower_names("vision.projector", "model.vision_adapter", {"mlp.up": "fc1", "mlp.down": "fc2"}),
    **tower_names("vision.projector", "model", {"proj": "vision_projection"}),
}

MUSE_AUDIO_NAMES: Mapping[str, str] = {
    **tower_names(
        _LEVEL, f"{_AUDIO}.layers.{{level}}", {"patch": "patch_embedder.proj", "norm": "patch_embedder.norm"}
    ),
    **tower_names(
        f"{_LEVEL}.blocks.{{block}}",
        f"{_AUDIO}.layers.{{level}}.conv_blocks.{{block}}",
        {"convolution": "conv", "norm": "norm", **PLAIN},
    ),
    **tower_names("audio.projector", _AUDIO, {"input_norm": "norm", "proj": "proj", "norm": "post_proj_norm"}),
}
