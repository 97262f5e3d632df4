"""Kimi K2.5's vision tower: MoonViT with layer norms and biases, and a projector that joins cells of patches."""

from __future__ import annotations

from collections.abc import Mapping

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.tower_names import BLOCK, tower_names
from day0.profile.read_vision_tower import (
    CHANNELS,
    read_blocks,
    read_head_dim,
    read_placeholders,
    read_side,
    read_theta,
    text_width,
    tower_section,
)
from day0.profile.tower_blocks import BlockShape, block_parts, mlp_parts
from day0.profile.tower_parts import LearntTable, PatchEmbedding, PatchMerge, Stage, TowerNorm
from day0.profile.vision_tower import VisionTower

_EPS = 1e-5
"""Epsilon of the tower's layer norms; no config names it."""

# One known word each: another word is another tower.
_FIXED_WORDS = {
    "pos_emb_type": "divided_fixed",
    "merge_type": "sd2_tpool",
    "mm_projector_type": "patchmerger",
    "video_attn_type": "spatial_temporal",
}


def read_kimi_k25_tower(top: ConfigReader) -> VisionTower:
    """The publisher's words (`vt_hidden_size`, ...) come before those under which transformers saves the same sizes."""
    section = tower_section(top)
    for key, word in _FIXED_WORDS.items():
        section.choice(key, {word: word}, word)
    # GELU is the tanh form in the tower and the erf form behind it; the publisher's code reads neither key.
    section.ignore("hidden_act", "projector_hidden_act", "_attn_implementation")
    shape = _read_shape(section)
    hidden = shape.hidden
    depth_key = "vt_num_hidden_layers" if section.has("vt_num_hidden_layers") else "num_hidden_layers"
    depth, patch = read_blocks(section, depth_key, 27), read_side(section, "patch_size", 14)
    rows = _either(section, "init_pos_emb_height", "pos_emb_height", 64)
    columns = _either(section, "init_pos_emb_width", "pos_emb_width", 64)
    frames = _either(section, "init_pos_emb_time", "pos_emb_time", 4)
    merge, output = _read_merge(section), text_width(top)
    _check_widths(top, section, hidden, output)
    joined = hidden * merge[0] * merge[1]
    norm = TowerNorm("norm", hidden, "layer", _projector_eps(top, section))
    grid = LearntTable("patch_embed.positions", (rows, columns, hidden), "grid", resampling="bicubic")
    return VisionTower(
        kind="moonvit",
        num_layers=depth,
        hidden_size=hidden,
        num_heads=shape.heads,
        patch_size=patch,
        temporal_patch_size=1,
        merge=merge,
        positions=("grid", "frames", "rotary"),
        projector="merger",
        output_size=output,
        position_frames=frames,
        native=True,
        placeholders=read_placeholders(top, image=_image_key(top), video="video_token_id"),
        stages=(
            Stage("vision.tower", (PatchEmbedding("patch_embed", hidden, CHANNELS, (patch, patch), bias=True), grid)),
            Stage(BLOCK, block_parts(shape), tuple(range(depth))),
            Stage("vision.tower", (TowerNorm("norm", hidden, "layer", _EPS),)),
            Stage(
                "vision.projector",
                (
                    PatchMerge(hidden, (1, 1), frames=True),
                    norm,
                    PatchMerge(hidden, merge),
                    *mlp_parts("mlp", (joined, joined, output), "gelu", bias=True),
                ),
            ),
        ),
    )


def _read_shape(section: ConfigReader) -> BlockShape:
    hidden = _either(section, "vt_hidden_size", "hidden_size", 1152)
    heads = _either(section, "vt_num_attention_heads", "num_attention_heads", 16)
    return BlockShape(
        hidden=hidden,
        heads=heads,
        head_dim=read_head_dim(section, hidden, heads, key="vt_num_attention_heads", multiple=4),
        mlp_width=_either(section, "vt_intermediate_size", "intermediate_size", 4304),
        norm="layer",
        eps=_EPS,
        activation="gelu_tanh",
        theta=read_theta(section),
        layout="in_turn",
    )


def _check_widths(top: ConfigReader, section: ConfigReader, hidden: int, output: int) -> None:
    """Raise InputError where the projector is said to read or write other widths than the two models have."""
    inside = section.has("mm_hidden_size")
    reader, key = (section, "mm_hidden_size") if inside else (top, "projection_hidden_size")
    if reader.integer(key, hidden) != hidden:
        raise InputError(f"must equal the tower's width, {hidden}", where=reader.where(key))
    if section.integer("text_hidden_size", output) != output:
        raise InputError(f"must equal the text model's width, {output}", where=section.where("text_hidden_size"))


def _image_key(top: ConfigReader) -> str:
    theirs = "media_placeholder_token_id"
    return theirs if top.has(theirs) else "image_token_id"


def _projector_eps(top: ConfigReader, section: ConfigReader) -> float:
    if section.has("projector_ln_eps"):
        return section.number("projector_ln_eps")
    return top.number("projection_layer_norm_eps", 1e-5)


def _either(section: ConfigReader, first: str, second: str, default: int) -> int:
    return section.integer(first) if section.has(first) else section.integer(second, default)


def _read_merge(section: ConfigReader) -> tuple[int, int]:
    merge = section.integers("merge_kernel_size", (2, 2))
    if len(merge) != 2 or min(merge) < 1:
        raise InputError(f"must be two positive integers, got {list(merge)}", where=section.where("merge_kernel_size"))
    return merge[0], merge[1]


MOONVIT_TINY_IMAGES: Mapping[str, Mapping[str, int]] = {
    "preprocessor_config.json": {"media_proc_cfg.in_patch_limit": 48, "media_proc_cfg.patch_limit_on_one_side": 12}
}
"""Patches of an image in a tiny model."""

KIMI_K25_TOWER_NAMES: Mapping[str, str] = {
    **tower_names(
        "vision.tower", "vision_tower", {"patch_embed": "patch_embed.proj", "norm": "encoder.final_layernorm"}
    ),
    "vision.tower.patch_embed.positions": "vision_tower.patch_embed.pos_emb.weight",
    **tower_names(
        BLOCK,
        "vision_tower.encoder.blocks.{block}",
        {
            "attention_norm": "norm0",
            "attention.qkv": "wqkv",
            "attention.out": "wo",
            "mlp_norm": "norm1",
            "mlp.up": "mlp.fc0",
            "mlp.down": "mlp.fc1",
        },
    ),
    **tower_names("vision.projector", "mm_projector", {"norm": "pre_norm", "mlp.up": "proj.0", "mlp.down": "proj.2"}),
}
