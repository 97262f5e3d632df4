"""MiniMax M3 as its release spells it: block-sparse layers, sizes, tensors, and what the planner makes of them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest

from day0.errors import InputError
from day0.inventory.needs import operators_needed
from day0.plan.mixer_sizes import head_cuts, mixer_elements, mixer_flops
from day0.profile.cache_sizes import cache_sizes
from day0.profile.profile import (
    ArchitectureProfile,
    BlockSparseAttention,
    DenseFeedForward,
    GroupedQueryAttention,
    RoutedExperts,
    VisionTower,
)
from day0.profile.read import read_profile
from day0.profile.tensors import expected_tensors

SPARSE: dict[str, Any] = {
    "use_sparse_attention": True,
    "sparse_attention_freq": [0] * 3 + [1] * 57,
    "sparse_disable_index_value": [0] * 3 + [1] * 57,
    "sparse_num_index_heads": 4,
    "sparse_index_dim": 128,
    "sparse_block_size": 128,
    "sparse_topk_blocks": 16,
    "sparse_local_block": 1,
    "sparse_init_block": 0,
    "sparse_score_type": "max",
}
TEXT: dict[str, Any] = {
    "model_type": "minimax_m3_vl_text",
    "vocab_size": 200064,
    "hidden_size": 6144,
    "num_hidden_layers": 60,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "rotary_dim": 64,
    "partial_rotary_factor": 0.5,
    "rope_theta": 5000000,
    "rms_norm_eps": 1e-6,
    "use_gemma_norm": True,
    "use_qk_norm": True,
    "qk_norm_type": "per_head",
    "attention_output_gate": False,
    "hidden_act": "swigluoai",
    "swiglu_alpha": 1.702,
    "swiglu_limit": 7.0,
    "dense_intermediate_size": 12288,
    "intermediate_size": 3072,
    "shared_intermediate_size": 3072,
    "n_shared_experts": 1,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "scoring_func": "sigmoid",
    "use_routing_bias": True,
    "routed_scaling_factor": 2.0,
    "moe_layer_freq": [0] * 3 + [1] * 57,
    "num_mtp_modules": 7,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 1048576,
    "tie_word_embeddings": False,
    "sparse_attention_config": SPARSE,
}
VISION: dict[str, Any] = {
    "model_type": "clip_vision_model",
    "hidden_size": 1280,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "intermediate_size": 5120,
    "patch_size": 14,
    "image_size": 2016,
    "projection_dim": 6144,
    "rope_theta": 10000.0,
    "rope_mode": "3d",
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu",
    "num_channels": 3,
    "img_token_compression_config": {"spatial_merge_size": 2, "temporal_patch_size": 2},
}
WHOLE: dict[str, Any] = {
    "model_type": "minimax_m3_vl",
    "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
    "text_config": TEXT,
    "vision_config": VISION,
    "image_token_index": 200025,
    "video_token_index": 200026,
    "image_seq_length": 576,
    "projector_hidden_act": "gelu",
    "projector_hidden_size": 6144,
    "multimodal_projector_bias": True,
    "vision_feature_layer": -1,
    "vision_feature_select_strategy": "full",
}
Read = Callable[..., ArchitectureProfile]


@pytest.fixture
def read(files_of) -> Read:
    """The profile of the release after edits of its text section and, under `sparse`, of the part on sparse layers."""

    def make(sparse: dict[str, Any] | None = None, **text: Any) -> ArchitectureProfile:
        section = TEXT | ({"sparse_attention_config": SPARSE | sparse} if sparse is not None else {}) | text
        return read_profile(files_of(WHOLE | {"text_config": section}))

    return make


def small(marks: list[int]) -> dict[str, Any]:
    return {"num_hidden_layers": len(marks), "moe_layer_freq": marks}


def test_layers_of_the_release(read: Read) -> None:
    profile = read()
    assert profile.unused_config_keys == () and profile.native
    assert {finding.code for finding in profile.findings} <= {"tower-not-native"}
    first, last = profile.layers[2], profile.layers[3]
    assert isinstance(first.mixer, GroupedQueryAttention) and isinstance(first.feed_forward, DenseFeedForward)
    assert isinstance(last.mixer, BlockSparseAttention) and isinstance(last.feed_forward, RoutedExperts)
    assert last.mixer.attention == first.mixer
    assert first.mixer.rope is not None and first.mixer.rope.dim == 64
    assert (last.mixer.indexer.block, last.mixer.indexer.top_k, last.mixer.indexer.local_blocks) == (128, 16, 1)
    assert (first.feed_forward.width, last.feed_forward.width, last.feed_forward.shared_width) == (12288, 3072, 3072)
    assert last.feed_forward.router.scaling_factor == 2.0 and last.feed_forward.router.renormalize


def test_stored_elements_are_those_of_transformers(read: Read) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    profile = read()
    config = transformers.AutoConfig.for_model(**WHOLE)
    with torch.device("meta"):
        model = transformers.MiniMaxM3SparseForConditionalGeneration(config)
    ours = sum(spec.count * prod(spec.shape) for spec in expected_tensors(profile))
    assert ours == sum(tensor.numel() for tensor in model.state_dict().values())
    assert isinstance(profile.vision, VisionTower)
    assert (profile.vision.num_layers, profile.vision.merge, profile.vision.output_size) == (32, (2, 2), 6144)


def test_what_is_kept_for_a_token(read: Read) -> None:
    sizes = cache_sizes(read())
    assert sizes.kv_bytes_per_token == 60 * 2 * 4 * 128 * 2
    assert sizes.index_bytes_per_token == 57 * 128 * 2


def test_operators_of_a_sparse_layer(read: Read) -> None:
    found = {need.name: need for need in operators_needed(read())}
    choice, attention = found["block_indexer_topk"], found["block_sparse_attention"]
    assert choice.shapes == {"index_heads": 4, "head_dim": 128, "chosen": 16}
    assert choice.attributes == {"block": 128, "local_blocks": 1}
    assert attention.attributes == {"scale": 128**-0.5, "block": 128}
    assert attention.shapes == {"heads": 64, "kv_heads": 4, "head_dim": 128, "index_heads": 4, "chosen": 16}
    assert choice.layers == attention.layers == tuple(range(3, 60))
    assert found["paged_gqa_attention"].layers == (0, 1, 2)


def test_sizes_for_the_planner(read: Read) -> None:
    profile = read()
    dense, sparse = profile.layers[0].mixer, profile.layers[3].mixer
    assert head_cuts(sparse) == head_cuts(dense)
    for cut in (1, 4):
        assert mixer_elements(sparse, 6144, cut) - mixer_elements(dense, 6144, cut) == 128 * (4 // cut + 1)
        scan = 2 * 4 // cut * 128
        for context in (100, 2048, 100_000):
            reach = min(context, 2048)  # 16 blocks of 128
            assert mixer_flops(sparse, context, cut) == mixer_flops(dense, reach, cut) + scan * context


def test_marks_and_words_say_the_same(read: Read) -> None:
    marks = [0, 1]
    marked = read({"sparse_attention_freq": marks, "sparse_disable_index_value": marks}, **small(marks))
    words = read(
        **small([1, 1]),
        sparse_attention_config=None,
        layer_types=["full_attention", "minimax_m3_sparse"],
        mlp_layer_types=["dense", "sparse"],
        index_n_heads=4,
    )
    assert words.layers == marked.layers
    assert read(**small([0, 1]), sparse_attention_config=None).layers[1].mixer == marked.layers[0].mixer


def test_the_share_of_a_head_that_turns(read: Read) -> None:
    """`rotary_dim` counts where no fraction is given."""
    assert read(partial_rotary_factor=None, rotary_dim=32).layers[0].mixer.rope.dim == 32
    assert read(partial_rotary_factor=0.25, rotary_dim=64).layers[0].mixer.rope.dim == 32


@pytest.mark.parametrize(
    ("sparse", "text", "said"),
    [
        ({"sparse_num_index_heads": 3}, {}, "3 index heads cannot choose for 4 key/value heads"),
        ({"sparse_index_dim": 32}, {}, "rotates 64 of its 32 channels"),
        ({"sparse_local_block": 17}, {}, "17 blocks are always read, but only 16"),
        ({"sparse_init_block": 1}, {}, "first blocks"),
        ({"sparse_score_type": "mean"}, {}, "'mean' is not known here"),
        ({"use_sparse_attention": False}, {}, "is off, but layer 3 is sparse"),
        ({"sparse_disable_index_value": [0] * 60}, {}, "values of its indexer"),
        ({"sparse_attention_freq": [0, 0, 0]}, {}, "3 entries do not reach layer 3"),
        ({}, {"use_gemma_norm": False}, "models of this family have true"),
        ({}, {"n_shared_experts": 2}, "one shared expert"),
        ({}, {"moe_layer_freq": [0, 1]}, "2 entries for 60 layers"),
        ({}, {"qk_norm_type": "per_layer"}, "'per_layer' is not known here"),
    ],
)
def test_what_no_release_has_is_refused(read: Read, sparse: dict[str, Any], text: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(sparse, **text)
