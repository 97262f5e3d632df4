"""The vision tower: patches in, one vector per patch out. Items of any size lie packed one after another."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from day0.profile.profile import VisionSpec
from day0.runtime.trace import Trace
from day0.runtime.vision.grid import PatchGrid
from day0.runtime.vision.positions import position_embedding, rotary_angles, rotate

CHANNELS = 3


class PatchEmbedding(nn.Module):
    """One linear map per patch (a convolution whose stride is its width), plus where the patch is."""

    def __init__(self, spec: VisionSpec) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(spec.hidden_size, CHANNELS, spec.patch_size, spec.patch_size))
        self.positions = nn.Parameter(torch.empty(*spec.position_grid, spec.hidden_size))

    def forward(self, pixel_values: Tensor, items: Sequence[PatchGrid]) -> Tensor:
        """[patches, channels, rows, columns] -> [patches, hidden]."""
        patches = F.linear(pixel_values.to(self.weight.dtype).flatten(1), self.weight.flatten(1))
        positions = torch.cat([position_embedding(self.positions, item) for item in items])
        return (patches + positions).to(self.weight.dtype)


class VisionAttention(nn.Module):
    """Attention over all patches of one item and none of another; its width need not be the tower's."""

    def __init__(self, spec: VisionSpec) -> None:
        super().__init__()
        self.num_heads = spec.num_heads
        self.head_dim = spec.head_dim
        self.qkv = nn.Linear(spec.hidden_size, 3 * spec.qkv_size, bias=False)
        self.out = nn.Linear(spec.qkv_size, spec.hidden_size, bias=False)

    def forward(self, x: Tensor, angles: Tensor, lengths: Sequence[int]) -> Tensor:
        """`x` is [patches, hidden], `angles` [patches, head_dim / 2], `lengths` the patches of each item."""
        q, k, v = self.qkv(x).view(-1, 3, self.num_heads, self.head_dim).unbind(1)
        mixed = attend_within(rotate(q, angles), rotate(k, angles), v, lengths)
        return self.out(mixed.flatten(1))


def attend_within(q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int]) -> Tensor:
    """Softmax attention of [patches, heads, head_dim] inside each run of `lengths`, scaled by head_dim^-1/2."""
    items = zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True)
    outputs = [
        F.scaled_dot_product_attention(*(part.transpose(0, 1).unsqueeze(0) for part in item))[0].transpose(0, 1)
        for item in items
    ]
    return torch.cat(outputs)


class VisionMLP(nn.Module):
    """down(gelu(up x)), with the tanh form of GELU."""

    def __init__(self, spec: VisionSpec) -> None:
        super().__init__()
        self.up = nn.Linear(spec.hidden_size, spec.mlp_width, bias=False)
        self.down = nn.Linear(spec.mlp_width, spec.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class VisionBlock(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, spec: VisionSpec) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(spec.hidden_size, eps=spec.norm_eps)
        self.attention = VisionAttention(spec)
        self.mlp_norm = nn.RMSNorm(spec.hidden_size, eps=spec.norm_eps)
        self.mlp = VisionMLP(spec)

    def forward(self, x: Tensor, angles: Tensor, lengths: Sequence[int]) -> Tensor:
        x = x + self.attention(self.attention_norm(x), angles, lengths)
        return x + self.mlp(self.mlp_norm(x))


class VisionTower(nn.Module):
    """Patch embedding, blocks, final norm."""

    def __init__(self, spec: VisionSpec) -> None:
        super().__init__()
        self.head_dim = spec.head_dim
        self.patch_embed = PatchEmbedding(spec)
        self.blocks = nn.ModuleList(VisionBlock(spec) for _ in range(spec.num_layers))
        self.norm = nn.RMSNorm(spec.hidden_size, eps=spec.norm_eps)

    def forward(self, pixel_values: Tensor, items: Sequence[PatchGrid], trace: Trace | None = None) -> Tensor:
        """[patches, channels, rows, columns] of all items in turn -> [patches, hidden]."""
        x = self.patch_embed(pixel_values, items)
        if trace is not None:
            trace.save("vision.patch_embed", x)
        angles = torch.cat([rotary_angles(item, self.head_dim, device=x.device) for item in items])
        lengths = [item.patches for item in items]
        for index, block in enumerate(self.blocks):
            x = block(x, angles, lengths)
            if trace is not None:
                trace.save(f"vision.blocks.{index}.output", x)
        x = self.norm(x)
        if trace is not None:
            trace.save("vision.final_norm", x)
        return x
