"""Vision towers of GLM: RMS norms, gated MLPs, and a projector that joins patches by a convolution (4.5V, 5 Next)."""

from __future__ import annotations

from collections.abc import Mapping

from day0.profile.config_reader import ConfigReader
from day0.profile.families.tower_names import BLOCK, GATED, table_names, tower_names
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
    LearntTable,
    Nonlinearity,
    Part,
    PatchEmbedding,
    PatchMerge,
    Projection,
    Stage,
    TowerActivation,
    TowerNorm,
)
from day0.profile.vision_tower import VisionTower

_PROJECTOR_EPS = 1e-5
"""Epsilon of the projector's layer norm: the model definition names none, so the framework's default applies."""


def read_glm4v_tower(top: ConfigReader) -> VisionTower:
    """GLM-4.5V: a learnt grid of positions besides the rotation.

    Blocks are as wide inside as what the projector writes; the section's `intermediate_size` is the projector's.
    """
    return _read(top, next_line=False)


def read_glm5_tower(top: ConfigReader) -> VisionTower:
    """GLM-5 Next: no learnt positions, norms of queries and keys, biases, bounded gates."""
    return _read(top, next_line=True)


def _read(top: ConfigReader, *, next_line: bool) -> VisionTower:
    section = tower_section(top)
    depth = read_blocks(section, "depth", 24)
    hidden, heads = (
        section.integer("hidden_size", 1024 if next_line else 1536),
        section.integer("num_heads", 16 if next_line else 12),
    )
    output = section.integer("out_hidden_size", 1536 if next_line else 4096)
    inner = section.integer("intermediate_size", 4096 if next_line else 13696)
    wide = section.integer("projection_intermediate_size", 10240) if next_line else inner
    limit = section.number("swiglu_limit", 10.0) if next_line else None
    patch, frames = read_side(section, "patch_size", 14), read_side(section, "temporal_patch_size", 2)
    merge, image = section.integer("spatial_merge_size", 2), read_side(section, "image_size", 336)
    eps, bias = section.number("rms_norm_eps", 1e-5), section.flag("attention_bias", next_line)
    activation = read_tower_activation(section, "hidden_act", "silu")
    shape = BlockShape(
        hidden=hidden,
        heads=heads,
        head_dim=read_head_dim(section, hidden, heads, key="num_heads", multiple=4),
        mlp_width=inner if next_line else output,
        norm="rms",
        eps=eps,
        activation=activation,
        bias=bias,
        out_bias=bias and next_line,
        mlp_bias=bias if next_line else False,
        gated=True,
        limit=limit,
        theta=read_theta(section),
        head_norm=next_line,
    )
    stem: list[Part] = [
        PatchEmbedding("patch_embed", hidden, read_channels(section, "in_channels"), (frames, patch, patch), True)
    ]
    if not next_line:
        stem.append(TowerNorm("stem_norm", hidden, "rms", eps))
        places = (image // patch) ** 2
        stem.append(LearntTable("positions", (places, hidden), "grid", module=True, resampling="bicubic"))
    return VisionTower(
        kind="glm5_next" if next_line else "glm4v",
        num_layers=depth,
        hidden_size=hidden,
        num_heads=heads,
        patch_size=patch,
        temporal_patch_size=frames,
        merge=(merge, merge),
        positions=("rotary",) if next_line else ("grid", "rotary"),
        projector="convolution_gated_mlp",
        output_size=output,
        placeholders=read_placeholders(top, image="image_token_id", video="video_token_id"),
        stages=(
            Stage("vision.tower", tuple(stem)),
            Stage(BLOCK, block_parts(shape), tuple(range(depth))),
            Stage("vision.projector", _projector((hidden, output, wide), merge, eps, activation, limit)),
        ),
    )


def _projector(
    sizes: tuple[int, int, int], merge: int, eps: float, activation: TowerActivation, limit: float | None
) -> tuple[Part, ...]:
    """A norm, patches joined by a matrix, a matrix with norm and GELU, a gated MLP; sizes in, out, between."""
    hidden, output, wide = sizes
    cell = (merge, merge)
    return (
        TowerNorm("input_norm", hidden, "rms", eps),
        PatchMerge(hidden, cell),
        Projection("join", hidden * merge**2, output, bias=True, cell=cell),
        Projection("proj", output, output),
        TowerNorm("norm", output, "layer", _PROJECTOR_EPS),
        Nonlinearity("gelu", output),
        *mlp_parts("mlp", (output, wide, output), activation, bias=False, gated=True, limit=limit),
    )


def glm_tower_names(prefix: str) -> Mapping[str, str]:
    merger = {"proj": "proj", "norm": "post_projection_norm", "mlp.gate": "gate_proj", "mlp.up": "up_proj"}
    attention = {"attention_norm": "norm1", "attention.qkv": "attn.qkv", "attention.out": "attn.proj"}
    head_norms = {f"attention.{axis}_norm": f"attn.{axis}_norm" for axis in "qk"}
    return {
        **tower_names("vision.tower", prefix, {"patch_embed": "patch_embed.proj", "stem_norm": "post_conv_layernorm"}),
        **table_names("vision.tower", prefix, {"positions.weight": "embeddings.position_embedding.weight"}),
        **tower_names(BLOCK, f"{prefix}.blocks.{{block}}", {**attention, **head_norms, "mlp_norm": "norm2", **GATED}),
        **tower_names("vision.projector", prefix, {"input_norm": "post_layernorm", "join": "downsample"}),
        **tower_names("vision.projector", f"{prefix}.merger", {**merger, "mlp.down": "down_proj"}),
    }
