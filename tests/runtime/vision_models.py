"""Tiny random models with images, made and saved by transformers in its own spelling of configs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from block_sparse_configs import TEXT as M3_TEXT
from random_models import random_values
from safetensors.torch import load_file, save_file

IMAGE, VIDEO, OPEN, CLOSE = 250, 251, 252, 253
"""Ids of the placeholders, and of the marks around an image."""

_TEXT: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_SHARED_HEADS = {key: value for key, value in _TEXT.items() if key != "head_dim"}
_ROUTED = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_HYBRID = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "partial_rotary_factor": 0.5,
}
_LATENT = {
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 4,
    "topk_group": 2,
}


def _axes(*sections: int, interleaved: bool = False, **more: object) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": list(sections)}
    return {"rope_parameters": rope | ({"mrope_interleaved": True} if interleaved else {}) | more}


_QWEN3: dict[str, Any] = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_heads": 2,
    "out_hidden_size": 48,
    "patch_size": 4,
    "num_position_embeddings": 25,
    "deepstack_visual_indexes": [0, 2],
}
_PLAIN = {key: value for key, value in _QWEN3.items() if key != "deepstack_visual_indexes"}
_QWEN2_5 = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_heads": 2,
    "out_hidden_size": 48,
    "patch_size": 4,
    "window_size": 16,
    "fullatt_block_indexes": [1],
}
_QWEN2 = {"depth": 2, "embed_dim": 32, "hidden_size": 48, "num_heads": 2, "mlp_ratio": 2, "patch_size": 4}
_MOON = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_attention_heads": 2,
    "patch_size": 4,
    "pos_emb_height": 6,
    "pos_emb_width": 6,
}

SMALL: dict[str, dict[str, Any]] = {
    "qwen3_vl": {"text_config": _TEXT | _axes(3, 3, 2), "vision_config": _QWEN3},
    "qwen3_vl_moe": {"text_config": _TEXT | _ROUTED | _axes(3, 3, 2), "vision_config": _QWEN3},
    "qwen3_5": {
        "text_config": _TEXT | _HYBRID | _axes(2, 1, 1, interleaved=True, partial_rotary_factor=0.5),
        "vision_config": _PLAIN,
    },
    "qwen3_5_moe": {
        "text_config": _TEXT
        | _HYBRID
        | _ROUTED
        | {"shared_expert_intermediate_size": 24}
        | _axes(2, 1, 1, interleaved=True, partial_rotary_factor=0.5),
        "vision_config": _PLAIN,
    },
    "qwen2_5_vl": {"text_config": _SHARED_HEADS | _axes(3, 2, 1), "vision_config": _QWEN2_5},
    "qwen2_vl": {"text_config": _SHARED_HEADS | _axes(3, 2, 1), "vision_config": _QWEN2},
    "kimi_k25": {
        "text_config": _TEXT | _LATENT,
        "vision_config": _MOON,
        "projection_hidden_size": 32,
    },
    "minimax_m3_vl": {
        "text_config": M3_TEXT,
        "vision_config": {
            "num_hidden_layers": 2,
            "hidden_size": 40,
            "intermediate_size": 56,
            "num_attention_heads": 2,
            "patch_size": 4,
            "image_size": 16,
        },
        "projector_hidden_size": 56,
        "merged_hidden_size": 192,
    },
}
"""By family, a config whose sizes differ wherever a mistaken one would go unseen."""

_TURNED = {"qwen3_vl_moe": ("experts.gate_up_proj", "experts.down_proj")}
"""Names of stacked experts that a publisher stores [experts, in, out] and transformers saves the other way round."""

_RENAMED = {
    "kimi_k25": {
        "language_model.model.blocks": "language_model.model.layers",
        "vision_tower.encoder.patch_embed": "vision_tower.patch_embed",
        "model.mm_projector": "mm_projector",
    }
}
"""What transformers saves under names that are neither its own nor the publisher's, and the publisher's."""


@dataclass(frozen=True)
class Picture:
    """Random patches of one image, by rows, [patches, channels, (frames,) rows, columns]."""

    grid: tuple[int, int, int]
    pixels: torch.Tensor

    def in_cells(self, merge: int) -> torch.Tensor:
        """The same patches cell by cell, as some processors order them."""
        frames, rows, columns = self.grid
        lines = self.pixels.view(frames * rows // merge, merge, columns // merge, merge, *self.pixels.shape[1:])
        return lines.transpose(1, 2).reshape(self.pixels.shape)


def picture(kind: str, rows: int, columns: int, seed: int, frames: int = 1) -> Picture:
    """A picture, or a clip where the family takes those."""
    deep = () if kind == "kimi_k25" else (2,)
    generator = torch.Generator().manual_seed(seed)
    patches = torch.randn(frames * rows * columns, 3, *deep, 4, 4, generator=generator)
    return Picture((frames, rows, columns), patches)


def make_vision_model(kind: str, folder: Path) -> transformers.PreTrainedModel:
    """A random float32 model of a family, saved into `folder`."""
    ids = {
        "image_token_id": IMAGE,
        "video_token_id": VIDEO,
        "vision_start_token_id": OPEN,
        "vision_end_token_id": CLOSE,
    }
    config = transformers.AutoConfig.for_model(kind, **SMALL[kind], **ids, tie_word_embeddings=False)
    torch.manual_seed(1)
    made = transformers.AutoModelForImageTextToText
    model = made.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_floating_point() and "inv_freq" not in name and "time_position" not in name:
            tensor.data = random_values(name, tensor.shape)
    model.save_pretrained(folder)
    _as_published(kind, folder / "model.safetensors")
    return model


def _as_published(kind: str, path: Path) -> None:
    """Lay a saved model out as its publisher does."""
    tensors = {}
    for name, tensor in load_file(path).items():
        for theirs, published in _RENAMED.get(kind, {}).items():
            name = name.replace(theirs, published)
        tensors[name] = tensor.mT.contiguous() if name.endswith(_TURNED.get(kind, ("\n",))) else tensor
    save_file(tensors, path, metadata={"format": "pt"})


@torch.no_grad()
def picture_logits(model: transformers.PreTrainedModel, ids: list[int], pictures: list[Picture]) -> torch.Tensor:
    """[tokens, vocab] of a prompt in which each run of placeholders is one picture."""
    merge = 1 if model.config.model_type == "kimi_k25" else 2
    pixels = torch.cat([one.in_cells(merge) for one in pictures])
    more: dict[str, Any] = {}
    if merge > 1:
        pixels = pixels.flatten(1)
        more["mm_token_type_ids"] = torch.tensor([[int(token == IMAGE) for token in ids]])
    grids = torch.tensor([one.grid for one in pictures])
    return model(torch.tensor([ids]), pixel_values=pixels, image_grid_thw=grids, use_cache=False, **more).logits[0]
