"""Kimi K3's names for the tensors of its vision tower (MoonViT) and projector."""

from __future__ import annotations

from collections.abc import Mapping

VISION_NAMES: Mapping[str, str] = {
    "vision.tower.patch_embed.weight": "vision_tower.patch_embed.proj.weight",
    "vision.tower.patch_embed.positions": "vision_tower.patch_embed.pos_emb.weight",
    "vision.tower.blocks.{block}.attention_norm.weight": "vision_tower.encoder.blocks.{block}.norm0.weight",
    "vision.tower.blocks.{block}.attention.qkv.weight": "vision_tower.encoder.blocks.{block}.wqkv.weight",
    "vision.tower.blocks.{block}.attention.out.weight": "vision_tower.encoder.blocks.{block}.wo.weight",
    "vision.tower.blocks.{block}.mlp_norm.weight": "vision_tower.encoder.blocks.{block}.norm1.weight",
    "vision.tower.blocks.{block}.mlp.up.weight": "vision_tower.encoder.blocks.{block}.mlp.fc0.weight",
    "vision.tower.blocks.{block}.mlp.down.weight": "vision_tower.encoder.blocks.{block}.mlp.fc1.weight",
    "vision.tower.norm.weight": "vision_tower.encoder.final_layernorm.weight",
    "vision.projector.up.weight": "mm_projector.proj.0.weight",
    "vision.projector.down.weight": "mm_projector.proj.2.weight",
    "vision.projector.norm.weight": "mm_projector.post_norm.weight",
}
"""Our parameter path -> checkpoint name; "{block}" counts the tower's blocks from 0."""
