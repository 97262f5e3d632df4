"""The vision tower: patches in, one vector per patch out. Items of any size lie packed one after another."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from day0.profile.profile import VisionSpec
from day0.profile.vision_tensors import CHANNELS
from day0.runtime.models.linear import Linear, RMSNorm, weight
from day0.runtime.ops.registry import Operators
from day0.runtime.ops.vision_positions import rotary_angles
from day0.runtime.trace import Trace
from day0.runtime.vision.grid import PatchGrid


class PatchEmbedding(nn.Module):
    """One linear map per patch, plus where the patch is."""

    def __init__(self, spec: VisionSpec, ops: Operators) -> None:
        super().__init__()
        self.weight = weight(spec.hidden_size, CHANNELS, spec.patch_size, spec.patch_size)
        self.positions = weight(*spec.position_grid, spec.hidden_size)
        self.ops = ops

    def forward(self, pixel_values: torch.Tensor, items: Sequence[PatchGrid]) -> torch.Tensor:
        """[patches, channels, rows, columns] -> [patches, hidden]."""
        values = pixel_values.to(self.weight).flatten(1)
        patches = self.ops["vision_patch_embed"](values, self.weight.flatten(1))
        return (patches + self.ops["vision_position_embed"](self.positions, items)).to(self.weight.dtype)


class VisionAttention(nn.Module):
    """Attention over all patches of one item and none of another; its width need not be the tower's."""

    def __init__(self, spec: VisionSpec, ops: Operators) -> None:
        super().__init__()
        self.num_heads = spec.num_heads
        self.head_dim = spec.head_dim
        self.qkv = Linear(spec.hidden_size, 3 * spec.qkv_size, ops)
        self.out = Linear(spec.qkv_size, spec.hidden_size, ops)
        self.ops = ops

    def forward(self, x: torch.Tensor, angles: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """`x` is [patches, hidden], `angles` [patches, head_dim / 2], `lengths` the patches of each item."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim)).unbind(1)
        q, k = self.ops["vision_rope_2d"](q, k, angles)
        mixed = self.ops["vision_attention"](q, k, v, lengths, self.head_dim**-0.5)
        return self.out(mixed.flatten(1))


class VisionMLP(nn.Module):
    """down(gelu(up x)), with the tanh form of GELU."""

    def __init__(self, spec: VisionSpec, ops: Operators) -> None:
        super().__init__()
        self.up = Linear(spec.hidden_size, spec.mlp_width, ops)
        self.down = Linear(spec.mlp_width, spec.hidden_size, ops)
        self.ops = ops

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.ops["gelu"](self.up(x), "tanh"))


class VisionBlock(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, spec: VisionSpec, ops: Operators) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(spec.hidden_size, spec.norm_eps, ops)
        self.attention = VisionAttention(spec, ops)
        self.mlp_norm = RMSNorm(spec.hidden_size, spec.norm_eps, ops)
        self.mlp = VisionMLP(spec, ops)

    def forward(self, x: torch.Tensor, angles: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), angles, lengths)
        return x + self.mlp(self.mlp_norm(x))


class VisionTower(nn.Module):
    """Patch embedding, blocks, final norm."""

    def __init__(self, spec: VisionSpec, ops: Operators) -> None:
        super().__init__()
        self.head_dim = spec.head_dim
        self.patch_embed = PatchEmbedding(spec, ops)
        self.blocks = nn.ModuleList(VisionBlock(spec, ops) for _ in range(spec.num_layers))
        self.norm = RMSNorm(spec.hidden_size, spec.norm_eps, ops)

    def forward(
        self, pixel_values: torch.Tensor, items: Sequence[PatchGrid], trace: Trace | None = None
    ) -> torch.Tensor:
        """[patches, channels, rows, columns] of all items in turn -> [patches, hidden]."""
        x = self.patch_embed(pixel_values, items)
        if trace is not None:
            trace.save("vision.patch_embed", x)
        # Made for each call and kept by nobody: positions of one request must not meet another's patches.
        angles = rotary_angles(items, self.head_dim, x.device)
        lengths = [item.patches for item in items]
        for index, block in enumerate(self.blocks):
            x = block(x, angles, lengths)
            if trace is not None:
                trace.save(f"vision.blocks.{index}.output", x)
        x = self.norm(x)
        if trace is not None:
            trace.save("vision.final_norm", x)
        return x
