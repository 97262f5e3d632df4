"""Pixtral's vision tower with Mistral 3's projector."""

from __future__ import annotations

from collections.abc import Mapping

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
    text_width,
    tower_section,
)
from day0.profile.tower_blocks import BlockShape, block_parts, mlp_parts
from day0.profile.tower_parts import Part, PatchEmbedding, PatchMerge, Projection, Stage, TowerNorm
from day0.profile.vision_tower import VisionTower

_EPS = 1e-5
"""Epsilon of the tower's norms; no config names it."""


def read_pixtral_tower(top: ConfigReader) -> VisionTower:
    """RMS norms, gated MLPs, rotation by row and column; cells of patches are joined by a matrix before the MLP.

    A section that leaves sizes out has the tower's own defaults, no section Mistral 3's.
    """
    given = top.has("vision_config")
    section = tower_section(top)
    # Heads share out the width; images may have any size up to the greatest, which the processor minds.
    section.ignore("head_dim", "vocab_size", "image_size")
    depth, shape = read_blocks(section, "num_hidden_layers", 24), _read_shape(section)
    hidden, patch = shape.hidden, read_side(section, "patch_size", 16 if given else 14)
    merge, output = top.integer("spatial_merge_size", 2), text_width(top)
    return VisionTower(
        kind="pixtral",
        num_layers=depth,
        hidden_size=hidden,
        num_heads=shape.heads,
        patch_size=patch,
        temporal_patch_size=1,
        merge=(merge, merge),
        positions=("rotary",),
        projector="merge_linear_mlp",
        output_size=output,
        placeholders=read_placeholders(
            top, image="image_token_index" if top.has("image_token_index") else "image_token_id"
        ),
        stages=(
            Stage(
                "vision.tower",
                (
                    PatchEmbedding("patch_embed", hidden, read_channels(section), (patch, patch)),
                    TowerNorm("stem_norm", hidden, "rms", _EPS),
                ),
            ),
            Stage(BLOCK, block_parts(shape), tuple(range(depth))),
            Stage("vision.projector", _projector(top, hidden, merge, output)),
        ),
    )


def _read_shape(section: ConfigReader) -> BlockShape:
    hidden, heads = section.integer("hidden_size", 1024), section.integer("num_attention_heads", 16)
    return BlockShape(
        hidden=hidden,
        heads=heads,
        head_dim=read_head_dim(section, hidden, heads, key="num_attention_heads", multiple=4),
        mlp_width=section.integer("intermediate_size", 4096),
        norm="rms",
        eps=_EPS,
        activation=read_tower_activation(section, "hidden_act", "gelu"),
        joined=False,
        bias=False,
        mlp_bias=False,
        gated=True,
        theta=read_theta(section),
    )


def _projector(top: ConfigReader, hidden: int, merge: int, output: int) -> tuple[Part, ...]:
    """A norm and a matrix over joined patches, then an MLP, which reads as many blocks' outputs as are listed."""
    listed = top.values.get("vision_feature_layer")
    top.ignore("vision_feature_layer")
    features = len(listed) if isinstance(listed, list) else 1
    eps = (top.section("text_config") or top).number("rms_norm_eps", 1e-5)
    activation = read_tower_activation(top, "projector_hidden_act", "gelu")
    bias = top.flag("multimodal_projector_bias", False)
    return (
        TowerNorm("norm", hidden, "rms", eps),
        PatchMerge(hidden, (merge, merge)),
        Projection("join", hidden * merge**2, hidden),
        *mlp_parts("mlp", (hidden * features, output, output), activation, bias=bias),
    )


PIXTRAL_TOWER_NAMES: Mapping[str, str] = {
    **tower_names("vision.tower", "vision_tower", {"patch_embed": "patch_conv", "stem_norm": "ln_pre"}),
    **tower_names(
        BLOCK,
        "vision_tower.transformer.layers.{block}",
        {
            "attention_norm": "attention_norm",
            **{f"attention.{axis}": f"attention.{axis}_proj" for axis in "qkv"},
            "attention.out": "attention.o_proj",
            "mlp_norm": "ffn_norm",
            **{f"mlp.{name}": f"feed_forward.{name}_proj" for name in ("gate", "up", "down")},
        },
    ),
    **tower_names(
        "vision.projector",
        "multi_modal_projector",
        {"norm": "norm", "join": "patch_merger.merging_layer", "mlp.up": "linear_1", "mlp.down": "linear_2"},
    ),
}
