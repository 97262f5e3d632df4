"""What a vision tower and its projector need."""

from __future__ import annotations

from collections.abc import Iterator

from day0.inventory.use import Use, linear, use
from day0.profile.profile import VisionSpec
from day0.profile.vision_tensors import CHANNELS


def vision(spec: VisionSpec) -> Iterator[Use]:
    hidden, heads, dim, joined = spec.hidden_size, spec.num_heads, spec.head_dim, spec.merged_size
    yield use(
        "vision_patch_embed",
        "vision.tower.patch_embed",
        width=hidden,
        patch_values=CHANNELS * spec.patch_size**2,
    )
    rows, columns = spec.position_grid
    yield use(
        "vision_position_embed",
        "vision.tower.patch_embed.positions",
        grid_rows=rows,
        grid_columns=columns,
        width=hidden,
    )
    block = "vision.tower.blocks"
    yield use("rms_norm", f"{block}.norms", width=hidden, eps=spec.norm_eps)
    yield linear(f"{block}.attention.qkv", hidden, 3 * spec.qkv_size)
    yield use("vision_rope_2d", f"{block}.attention.rope", heads=heads, head_dim=dim, rope_pairs=dim // 2)
    yield use("vision_attention", f"{block}.attention", heads=heads, head_dim=dim, scale=dim**-0.5)
    yield linear(f"{block}.attention.out", spec.qkv_size, hidden)
    yield use("residual_add", block, width=hidden)
    yield linear(f"{block}.mlp.up", hidden, spec.mlp_width)
    yield use("gelu", f"{block}.mlp.activation", width=spec.mlp_width, approximate="tanh")
    yield linear(f"{block}.mlp.down", spec.mlp_width, hidden)
    yield use("patch_merge", "vision.projector.merge", width=hidden, cell=spec.merge[0] * spec.merge[1])
    yield linear("vision.projector.up", joined, joined)
    yield use("gelu", "vision.projector.activation", width=joined, approximate="erf")
    yield linear("vision.projector.down", joined, spec.text_hidden_size)
    yield use("rms_norm", "vision.projector.norm", width=spec.text_hidden_size, eps=spec.projector_norm_eps)
    yield use("embedding_scatter", "vision.embeddings", width=spec.text_hidden_size)
