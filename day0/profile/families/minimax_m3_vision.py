"""The vision tower of MiniMax M3: CLIP blocks turned by frame, row and column, and a projector in two steps."""

from __future__ import annotations

from collections.abc import Mapping

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.tower_names import BLOCK, PLAIN, SEPARATE, tower_names
from day0.profile.read_vision_tower import (
    read_blocks,
    read_channels,
    read_head_dim,
    read_placeholders,
    read_side,
    read_theta,
    read_tower_activation,
    text_width,
    tower_section,
)
from day0.profile.tower_blocks import BlockShape, block_parts, mlp_parts
from day0.profile.tower_parts import PatchEmbedding, PatchMerge, Stage, TowerNorm
from day0.profile.vision_tower import VisionTower


def read_m3_tower(top: ConfigReader) -> VisionTower:
    """Patches two frames deep; every patch is projected, then a cell of them is joined and projected again."""
    section = tower_section(top)
    # Sizes of the images it was trained with, and a projection of CLIP that the model does not have.
    section.ignore("image_size", "projection_dim", "rope_mode")
    # The architecture reads the last block's patches whole, and its projector has GELU and biases.
    top.ignore("vision_feature_layer", "vision_feature_select_strategy", "image_seq_length")
    top.ignore("projector_hidden_act", "multimodal_projector_bias")
    depth, hidden = read_blocks(section, "num_hidden_layers", 32), section.integer("hidden_size", 1280)
    heads, patch = section.integer("num_attention_heads", 16), read_side(section, "patch_size", 14)
    frames, merge = _read_cell(section)
    shape = BlockShape(
        hidden=hidden,
        heads=heads,
        head_dim=read_head_dim(section, hidden, heads, key="num_attention_heads"),
        mlp_width=section.integer("intermediate_size", 5120),
        norm="layer",
        eps=section.number("layer_norm_eps", 1e-5),
        activation=read_tower_activation(section, "hidden_act", "gelu"),
        joined=False,
        theta=read_theta(section),
        axes=3,
    )
    if shape.head_dim < 6:
        raise InputError(
            f"heads of {shape.head_dim} channels have no pair for each of three axes",
            where=section.where("num_attention_heads"),
        )
    output, inner = text_width(top), top.integer("projector_hidden_size", 6144)
    stem = (
        PatchEmbedding("patch_embed", hidden, read_channels(section), (frames, patch, patch)),
        TowerNorm("stem_norm", hidden, "layer", shape.eps),
    )
    projector = (
        *mlp_parts("mlp", (hidden, inner, output), "gelu", bias=True),
        PatchMerge(output, (merge, merge)),
        *mlp_parts("merger", (output * merge**2, inner, output), "gelu", bias=True),
    )
    return VisionTower(
        kind="minimax_m3",
        num_layers=depth,
        hidden_size=hidden,
        num_heads=heads,
        patch_size=patch,
        temporal_patch_size=frames,
        merge=(merge, merge),
        positions=("rotary",),
        projector="two_mlps",
        output_size=output,
        placeholders=read_placeholders(top, image="image_token_index", video="video_token_index"),
        native=True,
        stages=(
            Stage("vision.tower", stem),
            Stage(BLOCK, block_parts(shape), tuple(range(depth))),
            Stage("vision.projector", projector),
        ),
    )


def _read_cell(section: ConfigReader) -> tuple[int, int]:
    """Frames in a patch and sides of a joined cell; the release has them in a section of their own."""
    place = section.section("img_token_compression_config") or section
    place.ignore("image_token_compression_method")
    return place.integer("temporal_patch_size", 2), place.integer("spatial_merge_size", 2)


_LAYER = "vision_tower.vision_model.encoder.layers.{block}"
M3_TOWER_NAMES: Mapping[str, str] = {
    **tower_names(
        "vision.tower",
        "vision_tower.vision_model",
        {"patch_embed": "embeddings.patch_embedding", "stem_norm": "pre_layrnorm"},
    ),
    **tower_names(
        BLOCK,
        _LAYER,
        {
            "attention_norm": "layer_norm1",
            "mlp_norm": "layer_norm2",
            **SEPARATE,
            "attention.out": "self_attn.out_proj",
            **PLAIN,
        },
    ),
    **tower_names("vision.projector", "multi_modal_projector", {"mlp.up": "linear_1", "mlp.down": "linear_2"}),
    **tower_names("vision.projector", "patch_merge_mlp", {"merger.up": "linear_1", "merger.down": "linear_2"}),
}
