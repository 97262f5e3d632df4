"""Tiny checkpoints with towers that transformers writes: names, shapes and counts are those expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from day0.inventory import inventory_findings, operators_needed
from day0.profile.parameters import count_parameters
from day0.profile.read import read_profile
from day0.profile.tensors import expected_tensors
from day0.source.model_files import ModelFiles
from day0.source.resolve import resolve

TEXT: dict[str, Any] = {
    "hidden_size": 32,
    "vocab_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
IDS = {"image_token_id": 5, "video_token_id": 6}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 12,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
}
DELTA = {
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}
MROPE = {"head_dim": 16, "rope_scaling": {"rope_type": "default", "mrope_section": [4, 2, 2]}}
QWEN = {"depth": 3, "hidden_size": 24, "intermediate_size": 40, "num_heads": 2, "out_hidden_size": 32, "patch_size": 4}
SIGLIP = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "patch_size": 4}
GEMMA = {"head_dim": 8, "query_pre_attn_scalar": 8}
MUSE = SIGLIP | {"num_attention_heads": 2, "pos_emb_height": 6, "pos_emb_width": 6, "merge_size": 2}
MUSE_TOP = IDS | {"out_hidden_size": 96, "projector_hidden_size": 20, "projector_hidden_act": "gelu"}

CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2_vl": IDS
    | {
        "text_config": TEXT | {"rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]}},
        "vision_config": {"depth": 3, "embed_dim": 24, "hidden_size": 32, "num_heads": 2, "patch_size": 4},
    },
    "qwen2_5_vl": IDS
    | {
        "text_config": TEXT | {"rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]}},
        "vision_config": QWEN | {"window_size": 16, "fullatt_block_indexes": [1]},
    },
    "qwen3_vl": IDS
    | {
        "text_config": TEXT | MROPE,
        "vision_config": QWEN | {"num_position_embeddings": 36, "deepstack_visual_indexes": [0, 2]},
    },
    "qwen3_vl_moe": IDS
    | {
        "text_config": TEXT | MROPE | EXPERTS,
        "vision_config": QWEN | {"num_position_embeddings": 36, "deepstack_visual_indexes": [1]},
    },
    "qwen3_5": IDS | {"text_config": TEXT | DELTA, "vision_config": QWEN | {"num_position_embeddings": 36}},
    "qwen3_5_moe": IDS
    | {
        "text_config": TEXT | DELTA | EXPERTS | {"shared_expert_intermediate_size": 16},
        "vision_config": QWEN | {"num_position_embeddings": 36},
    },
    "exaone4_5": IDS
    | {
        "text_config": TEXT | {"model_type": "exaone4"},
        "vision_config": QWEN
        | {
            "hidden_size": 32,
            "num_heads": 4,
            "num_key_value_heads": 2,
            "window_size": 16,
            "fullatt_block_indexes": [2],
        },
    },
    "glm4v_moe": IDS
    | {
        "text_config": TEXT | LATENT | {"head_dim": 8},
        "vision_config": QWEN | {"image_size": 24, "attention_bias": True},
    },
    "glm5_next": IDS
    | {
        "text_config": TEXT
        | LATENT
        | {"qk_rope_head_dim": 0, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 4, "index_kpool": 4}
        | {"linear_num_heads": 2, "linear_head_dim": 8, "linear_conv_kernel_dim": 4, "hc_mult": 2},
        "vision_config": QWEN | {"projection_intermediate_size": 20},
    },
    "gemma3": {
        "image_token_index": 5,
        "mm_tokens_per_image": 4,
        "text_config": TEXT | GEMMA,
        "vision_config": SIGLIP | {"image_size": 24, "vision_use_head": False, "model_type": "siglip_vision_model"},
    },
    "gemma4": IDS
    | {
        "audio_token_id": 7,
        "text_config": TEXT | {"head_dim": 8, "global_head_dim": 16, "vocab_size_per_layer_input": 64},
        "vision_config": SIGLIP
        | {"num_key_value_heads": 1, "head_dim": 12, "position_embedding_size": 20, "standardize": True},
        "audio_config": {
            "hidden_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "subsampling_conv_channels": [16, 6],
            "output_proj_dims": 20,
            "conv_kernel_size": 3,
        },
    },
    "llama4": {
        "image_token_index": 5,
        "text_config": TEXT
        | {"num_local_experts": 4, "intermediate_size_mlp": 40, "interleave_moe_layer_step": 2, "head_dim": 8},
        "vision_config": SIGLIP
        | {"intermediate_size": 96, "projector_input_dim": 20, "projector_output_dim": 20, "vision_output_dim": 20}
        | {"image_size": 24},
    },
    "mllama": {
        "image_token_index": 5,
        "text_config": TEXT | {"cross_attention_layers": [1]},
        "vision_config": SIGLIP
        | {"attention_heads": 2, "num_global_layers": 2, "max_num_tiles": 2, "image_size": 24, "vision_output_dim": 72}
        | {"intermediate_layers_indices": [0, 2], "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]]},
    },
    "lfm2_vl": {
        "image_token_id": 5,
        "projector_hidden_size": 20,
        "text_config": TEXT
        | {"layer_types": ["conv", "full_attention"], "block_multiple_of": 16, "model_type": "lfm2"},
        "vision_config": SIGLIP | {"num_patches": 36, "vision_use_head": False, "model_type": "siglip2_vision_model"},
    },
    "mistral3": {
        "image_token_index": 5,
        "multimodal_projector_bias": True,
        "text_config": TEXT | {"model_type": "mistral", "head_dim": 8},
        "vision_config": SIGLIP | {"image_size": 24, "hidden_act": "silu", "model_type": "pixtral"},
    },
    "muse_glimmer": MUSE_TOP | {"text_config": TEXT | {"head_dim": 8}, "vision_config": MUSE},
    "muse_spark": MUSE_TOP
    | {
        "audio_token_id": 7,
        "text_config": TEXT | EXPERTS | {"head_dim": 8, "moe_hidden_size": 16},
        "vision_config": MUSE,
        "audio_config": {
            "patch_sizes": [4, 3],
            "hidden_sizes": [8, 12],
            "depths": [1, 2],
            "num_hidden_layers": 2,
            "conv_kernel_size": 3,
            "out_hidden_size": 32,
        },
    },
    "kimi_k25": {
        "image_token_id": 5,
        "projection_hidden_size": 24,
        "text_config": TEXT | LATENT | {"model_type": "deepseek_v3"},
        "vision_config": SIGLIP | {"pos_emb_height": 6, "pos_emb_width": 5, "pos_emb_time": 2},
    },
    "dots3_note": IDS
    | {
        "audio_token_id": 7,
        "text_config": TEXT
        | LATENT
        | {"index_n_heads": 2, "index_head_dim": 8, "index_topk": 4, "head_dim": 12}
        | {"layer_types": ["indexed_attention", "sliding_attention"], "sliding_window": 8}
        | {"per_layer_config": {"1": {"kv_lora_rank": 20}}},
        "vision_config": SIGLIP
        | {"moe_intermediate_size": 12, "adapter_in_dim": 24, "adapter_out_dim": 32}
        | {"mlp_layer_types": ["dense", "sparse", "sparse"], "num_local_experts": 6}
        | {"per_layer_config": {"1": {"num_local_experts": 4}}},
        "audio_config": {
            "hidden_size": 24,
            "intermediate_size": 40,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "feature_size": 20,
            "downsample_hidden_size": 6,
            "adapter_input_size": 24,
            "adapter_out_dim": 32,
        },
    },
}
RENAMED_ON_SAVING = ("kimi_k25",)
"""transformers reads the published names of these and does not write them back: names are compared by hand below."""
TOWERS = ("vision", "audio")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[ModelFiles, dict[str, int]]]:
    """A checkpoint of each, and the parameters of its towers by group."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    written = {}
    for model_type, config in CONFIGS.items():
        folder: Path = tmp_path_factory.mktemp(model_type)
        torch.manual_seed(0)
        read = transformers.AutoConfig.for_model(model_type, **config)
        model = transformers.AutoModelForImageTextToText.from_config(read)
        model.save_pretrained(folder)
        counts = {"audio": 0, "vision": 0}
        for name, parameter in model.named_parameters():
            if "language_model" not in name and not name.startswith("lm_head"):
                counts["audio" if "audio" in name else "vision"] += parameter.numel()
        written[model_type] = resolve(str(folder)), counts
    return written


@pytest.mark.parametrize("model_type", CONFIGS)
class TestCheckpoints:
    def test_every_parameter_is_counted(self, saved, model_type: str) -> None:
        files, counts = saved[model_type]
        groups = count_parameters(read_profile(files)).groups
        assert {kind: groups[kind] for kind in TOWERS} == counts

    def test_no_key_of_a_tower_goes_unread(self, saved, model_type: str) -> None:
        unused = read_profile(saved[model_type][0]).unused_config_keys
        assert [key for key in unused if not key.startswith("text_config.")] == []

    def test_names_and_shapes_are_those_stored(self, saved, model_type: str) -> None:
        if model_type in RENAMED_ON_SAVING:
            pytest.skip("transformers does not write the published names back")
        files, _ = saved[model_type]
        specs = [(spec, name) for spec in expected_tensors(read_profile(files)) for name in spec.names()]
        ours = {name: spec.shape for spec, name in specs if spec.group in TOWERS}
        text = {name for spec, name in specs if spec.group not in TOWERS}
        assert ours == {name: header.shape for name, header in files.tensors.items() if name not in text}

    def test_paths_are_given_once(self, saved, model_type: str) -> None:
        paths = [spec.path for spec in expected_tensors(read_profile(saved[model_type][0]))]
        assert len(paths) == len(set(paths))

    def test_operators_are_known_and_read_what_is_stored(self, saved, model_type: str) -> None:
        profile = read_profile(saved[model_type][0])
        assert [f for f in inventory_findings(profile) if "profile" in f.where] == []
        needs = operators_needed(profile)
        used = {place for need in needs for place in need.used_for}
        assert {kind for kind in TOWERS if f"{kind}.embeddings" in used} == {
            kind for kind in TOWERS if count_parameters(profile).groups[kind]
        }
        for need in needs:
            if any(place.startswith(("vision.", "audio.")) for place in need.used_for):
                assert "decode" not in need.phases or not all(
                    p.startswith(("vision.", "audio.")) for p in need.used_for
                )

    def test_every_matrix_is_multiplied_with(self, saved, model_type: str) -> None:
        """Each projection of a tower is a linear need of its own sizes."""
        profile = read_profile(saved[model_type][0])
        products = {
            (place, need.shapes["out_features"], need.shapes["in_features"])
            for need in operators_needed(profile)
            if need.name == "linear"
            for place in need.used_for
        }
        left = []
        for spec in expected_tensors(profile):
            if spec.group not in TOWERS or len(spec.shape) != 2 or spec.experts or not spec.path.endswith(".weight"):
                continue
            place = ".".join(part for part in spec.path.removesuffix(".weight").split(".") if not part.isdigit())
            sizes = spec.shape[::-1] if spec.input_first else spec.shape
            tables = ("positions", "tiles", "patch_embed", "head.")
            if (place, *sizes) not in products and not any(word in place for word in tables):
                left.append(spec.path)
        assert left == []


def test_kimi_k25_has_its_publishers_names(saved) -> None:
    profile = read_profile(saved["kimi_k25"][0])
    names = {spec.name: spec.shape for spec in expected_tensors(profile) if spec.group == "vision"}
    assert names["vision_tower.patch_embed.pos_emb.weight"] == (6, 5, 24)
    assert names["vision_tower.encoder.blocks.2.wqkv.weight"] == (72, 24)
    assert names["vision_tower.encoder.blocks.0.mlp.fc0.bias"] == (40,)
    assert names["vision_tower.encoder.final_layernorm.bias"] == (24,)
    assert names["mm_projector.proj.2.weight"] == (32, 96)
