"""SigLIP towers with the projectors of Gemma 3 (fixed size, pooled) and LFM2-VL (any size, patches joined)."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.tower_names import BLOCK, PLAIN, SEPARATE, table_names, tower_names
from day0.profile.read_vision_tower import (
    read_blocks,
    read_channels,
    read_head_dim,
    read_placeholders,
    read_side,
    read_tower_activation,
    text_width,
    tower_section,
)
from day0.profile.tower_blocks import BlockShape, block_parts, mlp_parts
from day0.profile.tower_parts import (
    LearntTable,
    Part,
    PatchEmbedding,
    PatchMerge,
    PatchPool,
    Projection,
    Stage,
    TowerNorm,
)
from day0.profile.vision_tower import VisionTower

_LAYER_NORM_EPS = 1e-5


def _read_shape(section: ConfigReader) -> BlockShape:
    hidden, heads = section.integer("hidden_size", 768), section.integer("num_attention_heads", 12)
    return BlockShape(
        hidden=hidden,
        heads=heads,
        head_dim=read_head_dim(section, hidden, heads, key="num_attention_heads"),
        mlp_width=section.integer("intermediate_size", 3072),
        norm="layer",
        eps=section.number("layer_norm_eps", 1e-6),
        activation=read_tower_activation(section, "hidden_act", "gelu_pytorch_tanh"),
        joined=False,
    )


def _tower_stages(section: ConfigReader, shape: BlockShape, stem: tuple[Part, ...], depth: int) -> tuple[Stage, ...]:
    """Stem, blocks, last norm, and the pooling head where files hold it; the text model does not read what it gives."""
    stages = (
        Stage("vision.tower", stem),
        Stage(BLOCK, block_parts(shape), tuple(range(depth))),
        Stage("vision.tower", (TowerNorm("norm", shape.hidden, "layer", shape.eps),)),
    )
    if not section.flag("vision_use_head", True):
        return stages
    hidden = shape.hidden
    head: tuple[Part, ...] = (
        LearntTable("probe", (1, 1, hidden), "first"),
        LearntTable("attention.qkv_weight", (3 * hidden, hidden), "first"),
        LearntTable("attention.qkv_bias", (3 * hidden,), "first"),
        Projection("attention.out", hidden, hidden, bias=True),
        TowerNorm("norm", hidden, "layer", shape.eps),
        *mlp_parts("mlp", (hidden, shape.mlp_width, hidden), shape.activation, bias=True),
    )
    return *stages, Stage("vision.tower.head", head, used=False)


def read_gemma3_tower(top: ConfigReader) -> VisionTower:
    """Gemma 3: positions as stored; cells of patches are averaged so that an image is `mm_tokens_per_image` tokens."""
    section = tower_section(top)
    shape, depth = _read_shape(section), read_blocks(section, "num_hidden_layers", 12)
    patch, image = read_side(section, "patch_size", 16), read_side(section, "image_size", 224)
    tokens, hidden, output = top.integer("mm_tokens_per_image", 256), shape.hidden, text_width(top)
    side, wanted = image // patch, isqrt(tokens)
    if wanted**2 != tokens or not side // wanted:
        raise InputError(
            f"{tokens} tokens cannot be made of {side} x {side} patches", where=top.where("mm_tokens_per_image")
        )
    cell = (side // wanted, side // wanted)
    stem = (
        PatchEmbedding("patch_embed", hidden, read_channels(section), (patch, patch), bias=True),
        LearntTable("positions", (side**2, hidden), "positions", module=True),
    )
    projector = (
        PatchPool(hidden, cell),
        TowerNorm("norm", hidden, "rms_plus_one", shape.eps),
        Projection("proj", hidden, output, input_first=True),
    )
    return VisionTower(
        kind="siglip",
        num_layers=depth,
        hidden_size=hidden,
        num_heads=shape.heads,
        patch_size=patch,
        temporal_patch_size=1,
        merge=cell,
        positions=("learnt",),
        projector="pool_linear",
        output_size=output,
        placeholders=read_placeholders(
            top, image="image_token_index" if top.has("image_token_index") else "image_token_id"
        ),
        stages=(*_tower_stages(section, shape, stem, depth), Stage("vision.projector", projector)),
    )


def read_lfm2_tower(top: ConfigReader) -> VisionTower:
    """LFM2-VL: a square grid resampled to the image; cells of patches become one vector, read by an MLP."""
    section = tower_section(top)
    # Which block's output is read: always the last one's. An older class of the tower sized its grid by the image.
    section.ignore("image_size")
    top.ignore("vision_feature_layer")
    shape, depth = _read_shape(section), read_blocks(section, "num_hidden_layers", 12)
    patch, places = read_side(section, "patch_size", 16), section.integer("num_patches", 256)
    merge, hidden, output = top.integer("downsample_factor", 2), shape.hidden, text_width(top)
    stem = (
        PatchEmbedding("patch_embed", hidden, read_channels(section), (patch, patch), bias=True, flat=True),
        LearntTable("positions", (places, hidden), "grid", module=True, resampling="bilinear"),
    )
    joined, inner = hidden * merge**2, top.integer("projector_hidden_size", 2560)
    normed = top.flag("projector_use_layernorm", True)
    norm = (TowerNorm("norm", joined, "layer", _LAYER_NORM_EPS),) if normed else ()
    activation = read_tower_activation(top, "projector_hidden_act", "gelu")
    projector = (
        PatchMerge(hidden, (merge, merge)),
        *norm,
        *mlp_parts("mlp", (joined, inner, output), activation, bias=top.flag("projector_bias", True)),
    )
    return VisionTower(
        kind="siglip2",
        num_layers=depth,
        hidden_size=hidden,
        num_heads=shape.heads,
        patch_size=patch,
        temporal_patch_size=1,
        merge=(merge, merge),
        positions=("grid",),
        projector="mlp",
        output_size=output,
        placeholders=read_placeholders(top, image="image_token_id"),
        stages=(*_tower_stages(section, shape, stem, depth), Stage("vision.projector", projector)),
    )


def siglip_names(tower: str, projector: Mapping[str, str]) -> Mapping[str, str]:
    """Names of a tower that stands under `tower`, beside those of its projector."""
    layer = f"{tower}.encoder.layers.{{block}}"
    modules = {
        "attention_norm": "layer_norm1",
        "mlp_norm": "layer_norm2",
        **SEPARATE,
        "attention.out": "self_attn.out_proj",
        **PLAIN,
    }
    head = {"attention.out": "attention.out_proj", "norm": "layernorm", **PLAIN}
    tables = {
        "probe": "probe",
        "attention.qkv_weight": "attention.in_proj_weight",
        "attention.qkv_bias": "attention.in_proj_bias",
    }
    return {
        **tower_names("vision.tower", tower, {"patch_embed": "embeddings.patch_embedding", "norm": "post_layernorm"}),
        **table_names("vision.tower", tower, {"positions.weight": "embeddings.position_embedding.weight"}),
        **tower_names(BLOCK, layer, modules),
        **tower_names("vision.tower.head", f"{tower}.head", head),
        **table_names("vision.tower.head", f"{tower}.head", tables),
        **projector,
    }


_GEMMA3_PROJECTOR = {
    "vision.projector.norm.weight": "multi_modal_projector.mm_soft_emb_norm.weight",
    "vision.projector.proj.weight": "multi_modal_projector.mm_input_projection_weight",
}
_LFM2_PROJECTOR = tower_names(
    "vision.projector",
    "model.multi_modal_projector",
    {"norm": "layer_norm", "mlp.up": "linear_1", "mlp.down": "linear_2"},
)
# Releases have the tower inside a module of its own, which transformers no longer writes.
GEMMA3_TOWER_NAMES = siglip_names("vision_tower.vision_model", _GEMMA3_PROJECTOR)
GEMMA3_FLAT_TOWER_NAMES = siglip_names("vision_tower", _GEMMA3_PROJECTOR)
LFM2_TOWER_NAMES = siglip_names("model.vision_tower.vision_model", _LFM2_PROJECTOR)
LFM2_FLAT_TOWER_NAMES = siglip_names("model.vision_tower", _LFM2_PROJECTOR)
