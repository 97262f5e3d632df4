"""Vision towers of Llama 3.2 Vision (tiles, two runs of blocks) and Llama 4 (shuffled patches)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.tower_names import BLOCK, PLAIN, SEPARATE, table_names, tower_names
from day0.profile.read_vision_tower import (
    read_blocks,
    read_blocks_listed,
    read_channels,
    read_head_dim,
    read_placeholders,
    read_side,
    read_theta,
    read_tower_activation,
    text_width,
    tower_section,
)
from day0.profile.tower_blocks import BlockShape, block_parts
from day0.profile.tower_parts import (
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

_EPS = 1e-5
"""Epsilon of layer norms that the model definitions do not name: the framework's default."""


def read_llama4_tower(top: ConfigReader) -> VisionTower:
    """Llama 4: a first token and positions as stored, rotation besides; a cell of patches is one vector behind it."""
    section = tower_section(top)
    # No activation but GELU, no bias in the projector and no feature but the last block's, whatever the config says.
    section.ignore("hidden_act", "norm_eps", "multi_modal_projector_bias", "projector_dropout")
    section.ignore("vision_feature_select_strategy", "vision_feature_layer")
    depth, hidden = read_blocks(section, "num_hidden_layers", 34), section.integer("hidden_size", 768)
    heads, inner = section.integer("num_attention_heads", 16), section.integer("intermediate_size", 5632)
    patch, image = read_side(section, "patch_size", 14), read_side(section, "image_size", 448)
    merge = _merge(section)
    shape = BlockShape(
        hidden=hidden,
        heads=heads,
        head_dim=read_head_dim(section, hidden, heads, key="num_attention_heads", multiple=4),
        mlp_width=inner,
        norm="layer",
        eps=_EPS,
        activation="gelu",
        joined=False,
        theta=read_theta(section),
        layout="interleaved",
    )
    output = text_width(top)
    places = (image // patch) ** 2 + 1
    return VisionTower(
        kind="llama4",
        num_layers=depth,
        hidden_size=hidden,
        num_heads=heads,
        patch_size=patch,
        temporal_patch_size=1,
        merge=(merge, merge),
        positions=("learnt", "rotary"),
        projector="pixel_shuffle_mlp",
        output_size=output,
        placeholders=read_placeholders(top, image="image_token_index"),
        stages=(
            Stage(
                "vision.tower",
                (
                    PatchEmbedding("patch_embed", hidden, read_channels(section), (patch, patch), flat=True),
                    LearntTable("first", (hidden,), "first"),
                    LearntTable("positions", (places, hidden), "positions"),
                    TowerNorm("stem_norm", hidden, "layer", _EPS),
                ),
            ),
            Stage(BLOCK, block_parts(shape), tuple(range(depth))),
            Stage("vision.projector", _shuffled_mlp(section, shape, merge, output)),
        ),
    )


def _shuffled_mlp(section: ConfigReader, shape: BlockShape, merge: int, output: int) -> tuple[Part, ...]:
    """The last norm, patches joined, an adapter with GELU behind both matrices, and the projection."""
    reads, writes = section.integer("projector_input_dim", 4096), section.integer("projector_output_dim", 4096)
    return (
        TowerNorm("input_norm", shape.hidden, "layer", _EPS),
        PatchMerge(shape.hidden, (merge, merge)),
        Projection("mlp.up", shape.mlp_width, reads),
        Nonlinearity("gelu", reads),
        Projection("mlp.down", writes, writes),
        Nonlinearity("gelu", writes),
        Projection("proj", section.integer("vision_output_dim", 7680), output),
    )


def _merge(section: ConfigReader) -> int:
    ratio = section.number("pixel_shuffle_ratio", 0.5)
    merge = round(1 / ratio) if 0 < ratio <= 1 else 0
    if not merge or merge * ratio != 1:
        raise InputError(f"{ratio} is not one over a number of patches", where=section.where("pixel_shuffle_ratio"))
    return merge


LLAMA4_TOWER_NAMES: Mapping[str, str] = {
    **tower_names(
        "vision.tower", "vision_model", {"patch_embed": "patch_embedding.linear", "stem_norm": "layernorm_pre"}
    ),
    **table_names(
        "vision.tower", "vision_model", {"first": "class_embedding", "positions": "positional_embedding_vlm"}
    ),
    **tower_names(
        BLOCK,
        "vision_model.model.layers.{block}",
        {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm", **SEPARATE, **PLAIN},
    ),
    **tower_names("vision.projector", "vision_model", {"input_norm": "layernorm_post"}),
    **tower_names("vision.projector", "vision_model.vision_adapter", PLAIN),
    **tower_names("vision.projector", "multi_modal_projector", {"proj": "linear_1"}),
}


def read_mllama_tower(top: ConfigReader) -> VisionTower:
    """Llama 3.2 Vision: tiles with vectors by aspect ratio, local blocks, then global ones with gated branches.

    The text model reads the last block's output beside those of a few local blocks.
    """
    section = tower_section(top)
    local, overall = read_blocks(section, "num_hidden_layers", 32), read_blocks(section, "num_global_layers", 8)
    hidden, heads = section.integer("hidden_size", 1280), section.integer("attention_heads", 16)
    patch, image = read_side(section, "patch_size", 14), read_side(section, "image_size", 448)
    tiles, ratios = section.integer("max_num_tiles", 4), _aspect_ratios(section)
    read_blocks_listed(section, "intermediate_layers_indices", (3, 7, 15, 23, 30), local)
    eps = section.number("norm_eps", 1e-5)
    shape = BlockShape(
        hidden=hidden,
        heads=heads,
        head_dim=read_head_dim(section, hidden, heads, key="attention_heads"),
        mlp_width=section.integer("intermediate_size", 5120),
        norm="layer",
        eps=eps,
        activation=read_tower_activation(section, "hidden_act", "gelu"),
        joined=False,
        bias=False,
    )
    gated = replace(shape, tanh_gates=True)
    output, each_tile = text_width(top), (ratios + 1, tiles * hidden)
    return VisionTower(
        kind="mllama",
        num_layers=local + overall,
        hidden_size=hidden,
        num_heads=heads,
        patch_size=patch,
        temporal_patch_size=1,
        merge=(1, 1),
        positions=("learnt", "tiles"),
        projector="linear",
        output_size=output,
        placeholders=read_placeholders(top, image="image_token_index"),
        stages=(
            Stage("vision.tower", _tiled_stem(section, hidden, patch, image, each_tile)),
            Stage(BLOCK, block_parts(shape), tuple(range(local))),
            Stage(
                "vision.tower",
                (
                    TowerNorm("norm", hidden, "layer", _EPS),
                    LearntTable("tiles_after.gate", (1,), "gate", width=hidden),
                    LearntTable("tiles_after.embedding", each_tile, "tiles", module=True, width=hidden),
                ),
            ),
            Stage("vision.tower.global_blocks.{block}", block_parts(gated), tuple(range(overall))),
            Stage(
                "vision.projector",
                (Projection("proj", section.integer("vision_output_dim", 7680), output, bias=True),),
            ),
        ),
    )


def _tiled_stem(
    section: ConfigReader, hidden: int, patch: int, image: int, each_tile: tuple[int, int]
) -> tuple[Part, ...]:
    """Patches, vectors of tiles, a first token, and positions: one table for every tile beside one for each."""
    places = (image // patch) ** 2 + 1
    ratios, all_tiles = each_tile
    return (
        PatchEmbedding("patch_embed", hidden, read_channels(section), (patch, patch)),
        LearntTable("tiles_before.gate", (1,), "gate", width=hidden),
        LearntTable("tiles_before.embedding", each_tile, "tiles", module=True, width=hidden),
        LearntTable("first", (hidden,), "first"),
        LearntTable("positions.gate", (1,), "positions_gate", width=hidden),
        LearntTable("positions.embedding", (places, hidden), "positions"),
        LearntTable("positions.tiles", (ratios, places * all_tiles), "tiles", module=True, width=hidden),
        TowerNorm("stem_norm", hidden, "layer", _EPS),
    )


def _aspect_ratios(section: ConfigReader) -> int:
    """How many arrangements of tiles there are; id 0 stands for none of them."""
    if not section.has("supported_aspect_ratios"):
        return 8
    ratios = section.values["supported_aspect_ratios"]
    if not isinstance(ratios, list) or not ratios:
        raise InputError("must be a list of aspect ratios", where=section.where("supported_aspect_ratios"))
    return len(ratios)


_MLLAMA_TABLES = {
    "first": "class_embedding",
    "positions.gate": "gated_positional_embedding.gate",
    "positions.embedding": "gated_positional_embedding.embedding",
    "positions.tiles.weight": "gated_positional_embedding.tile_embedding.weight",
    **{
        f"tiles_{ours}.{leaf}": f"{theirs}_tile_positional_embedding.{leaf}"
        for ours, theirs in (("before", "pre"), ("after", "post"))
        for leaf in ("gate", "embedding.weight")
    },
}


def _mllama_blocks(ours: str, theirs: str) -> dict[str, str]:
    layer = f"vision_model.{theirs}.layers.{{block}}"
    modules = {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm", **SEPARATE, **PLAIN}
    return {
        **tower_names(ours, layer, modules),
        **table_names(ours, layer, {"attention_gate": "gate_attn", "mlp_gate": "gate_ffn"}),
    }


MLLAMA_TOWER_NAMES: Mapping[str, str] = {
    **tower_names(
        "vision.tower",
        "vision_model",
        {"patch_embed": "patch_embedding", "stem_norm": "layernorm_pre", "norm": "layernorm_post"},
    ),
    **table_names("vision.tower", "vision_model", _MLLAMA_TABLES),
    **_mllama_blocks(BLOCK, "transformer"),
    **_mllama_blocks("vision.tower.global_blocks.{block}", "global_transformer"),
    "vision.projector.proj.weight": "multi_modal_projector.weight",
    "vision.projector.proj.bias": "multi_modal_projector.bias",
}
