"""A packed model is the same model with the same numbers stored plain, to the last bit in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from closeness import worst_error
from live_bytes import LiveBytes
from packed_checkpoints import write_pair

from day0.errors import CannotSay
from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors
from day0.runtime.engine.engine import Engine
from day0.runtime.models.packed import PackedLinear
from day0.runtime.quant import decoder
from day0.runtime.skeleton import tiny_config
from day0.source.resolve import resolve

MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "torch_dtype": "bfloat16",
    "vocab_size": 64,
    "hidden_size": 128,
    "intermediate_size": 192,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "mlp_only_layers": [0],
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}


def compressed(packing: str, **weights: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": packing, "config_groups": groups, "ignore": ["lm_head"]}


SECTIONS: dict[str, dict[str, Any]] = {
    "mxfp4": compressed("mxfp4-pack-quantized", num_bits=4, type="float", group_size=32),
    "nvfp4": compressed("nvfp4-pack-quantized", num_bits=4, type="float", group_size=16),
    "nvfp4 of modelopt": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]},
    "fp8 blocks": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "fp8 one scale": {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]},
    "fp8 rows": {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]},
    "mxfp8": {"quant_method": "modelopt", "quant_algo": "MXFP8", "ignore": ["lm_head"]},
    "int8": compressed("int-quantized", num_bits=8, type="int", strategy="channel"),
    "int4": compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=32),
    "int4 with zeros": compressed(
        "pack-quantized", num_bits=4, type="int", strategy="group", group_size=64, symmetric=False, actorder="group"
    ),
    "int4 of modelopt": {
        "quant_method": "modelopt",
        "quant_algo": "W4A16_AWQ",
        "group_size": 64,
        "ignore": ["lm_head"],
    },
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True},
    "gptq of version 2": {"quant_method": "gptq", "bits": 8, "group_size": 64, "checkpoint_format": "gptq_v2"},
}
IDS = [(17 * place + 3) % 64 for place in range(19)]


def engines(config: dict[str, Any], section: dict[str, Any], folder: Path, make_engine: Any) -> tuple[Engine, Engine]:
    packed, plain = write_pair(config, section, folder)
    files = resolve(str(packed))
    profile = read_profile(files)
    assert compare_tensors(profile, files).sound, compare_tensors(profile, files)
    assert profile.native
    return make_engine(packed, workspace_experts=2), make_engine(plain)


@pytest.mark.parametrize("name", SECTIONS)
def test_dense_layers_and_experts(name: str, tmp_path: Path, make_engine: Any) -> None:
    packed, plain = engines(MOE, SECTIONS[name], tmp_path, make_engine)
    wanted = plain.forward(IDS)
    assert torch.equal(packed.forward(IDS), wanted)
    assert torch.equal(packed.forward(IDS, chunk=1), plain.forward(IDS, chunk=1))
    assert wanted.std() > 0.1, "the numbers are of a size that shows"
    assert isinstance(packed.model.get_submodule("layers.0.ffn.up_proj"), PackedLinear)
    assert packed.memory.weight_bytes < plain.memory.weight_bytes
    # The largest is the gate of the dense layer, or two experts.
    assert packed.memory.workspace_bytes == 2 * 3 * 64 * 128 * 4
    assert plain.memory.workspace_bytes == 0


@pytest.mark.parametrize("name", ["fp8 blocks", "int4", "nvfp4"])
def test_latent_attention_and_shared_experts(name: str, tmp_path: Path, make_engine: Any) -> None:
    """The matrix that latent attention absorbs is packed too."""
    config = dict(tiny_config(resolve("recipe:deepseek-r1"))) | {
        "q_lora_rank": 32,
        "kv_lora_rank": 32,
        "v_head_dim": 16,
    }
    del config["quantization_config"]
    config["num_nextn_predict_layers"] = 0
    packed, plain = engines(config, SECTIONS[name], tmp_path, make_engine)
    assert isinstance(packed.model.get_submodule("layers.0.mixer.kv_b_proj"), PackedLinear)
    assert torch.equal(packed.forward(IDS), plain.forward(IDS))
    assert torch.equal(packed.forward(IDS, chunk=5), plain.forward(IDS, chunk=5))


PHI: dict[str, Any] = {
    "architectures": ["Phi3ForCausalLM"],
    "model_type": "phi3",
    "torch_dtype": "bfloat16",
    "vocab_size": 64,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "original_max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize("name", [name for name in SECTIONS if name != "fp8 blocks"])
def test_projections_stored_as_one(name: str, tmp_path: Path, make_engine: Any) -> None:
    """Queries, keys and values are rows of one matrix, gate and up of another; each gets its own rows of every part."""
    packed, plain = engines(PHI, SECTIONS[name], tmp_path, make_engine)
    assert torch.equal(packed.forward(IDS), plain.forward(IDS))


def test_a_block_across_two_projections_is_refused(tmp_path: Path, make_engine: Any) -> None:
    """192 rows of gate end in the middle of the second block of scales."""
    folder, _ = write_pair(PHI, SECTIONS["fp8 blocks"], tmp_path)
    with pytest.raises(CannotSay, match="a block of its scales lies across two projections") as caught:
        make_engine(folder, runtime="native")
    assert "gate_up_proj" in caught.value.where


def test_blocks_that_end_with_the_projections_are_not(tmp_path: Path, make_engine: Any) -> None:
    packed, plain = engines(
        PHI | {"intermediate_size": 128, "num_key_value_heads": 4}, SECTIONS["fp8 blocks"], tmp_path, make_engine
    )
    assert torch.equal(packed.forward(IDS), plain.forward(IDS))


GPT_OSS: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "torch_dtype": "bfloat16",
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "truncate": False},
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize("name", ["mxfp4 blocks", "nvfp4", "mxfp4"])
def test_stacked_experts_with_gate_and_up_by_turns(name: str, tmp_path: Path, make_engine: Any) -> None:
    """gpt-oss, whose experts stay stacked in its own layout and are taken apart by others."""
    section = {"quant_method": "mxfp4", "modules_to_not_convert": []} if name == "mxfp4 blocks" else SECTIONS[name]
    packed, plain = engines(GPT_OSS, section, tmp_path, make_engine)
    assert torch.equal(packed.forward(IDS), plain.forward(IDS))


def test_gpt_oss_as_transformers_turns_it_back(tmp_path: Path, make_engine: Any) -> None:
    section = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    folder, _ = write_pair(GPT_OSS, section, tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        quantization_config=transformers.Mxfp4Config(dequantize=True),
        attn_implementation="eager",
    )
    engine: Engine = make_engine(folder)
    with torch.no_grad():
        wanted = theirs(torch.tensor([IDS])).logits[0]
    assert worst_error(engine.forward(IDS), wanted) < 1e-5
    stack = theirs.model.layers[1].mlp.experts
    for one in engine.model.get_submodule("layers.1.ffn.experts").matrices([0, 4]):
        assert torch.equal(one.gate, stack.gate_up_proj[one.expert].T[0::2])
        assert torch.equal(one.up, stack.gate_up_proj[one.expert].T[1::2])
        assert torch.equal(one.down, stack.down_proj[one.expert].T)


LLAMA4: dict[str, Any] = {
    "architectures": ["Llama4ForCausalLM"],
    "model_type": "llama4_text",
    "torch_dtype": "bfloat16",
    "vocab_size": 64,
    "hidden_size": 160,
    "intermediate_size": 128,
    "intermediate_size_mlp": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_local_experts": 3,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 1,
    "attention_chunk_size": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "use_qk_norm": True,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize("blocks", [[128, 128], [64, 32], None], ids=str)
def test_stacked_experts_that_lie_input_first(blocks: list[int] | None, tmp_path: Path, make_engine: Any) -> None:
    """FP8 of transformers keeps the layout of the plain stack, [experts, in, out], and that of its scales."""
    section = {"quant_method": "fp8", "weight_block_size": blocks, "modules_to_not_convert": ["lm_head"]}
    packed, plain = engines(LLAMA4, section, tmp_path, make_engine)
    assert packed.model.get_submodule("layers.0.ffn.experts.gate").packing.name == (
        "fp8_block" if blocks else "fp8_tensor"
    )
    assert torch.equal(packed.forward(IDS), plain.forward(IDS))


def test_blocks_over_rows_by_turns_are_refused(tmp_path: Path, make_engine: Any) -> None:
    """Every block of such a stack has rows of gate and of up."""
    section = SECTIONS["fp8 blocks"] | {"modules_to_not_convert": ["lm_head"]}
    folder, _ = write_pair(GPT_OSS | {"intermediate_size": 128}, section, tmp_path)
    with pytest.raises(CannotSay, match="lies across two projections"):
        make_engine(folder, runtime="native")


def test_an_expert_cache_changes_nothing(tmp_path: Path, make_engine: Any) -> None:
    folder, _ = write_pair(MOE, SECTIONS["mxfp4"], tmp_path)
    each = 3 * 64 * 128 * 4
    bare, cached = make_engine(folder), make_engine(folder, expert_cache_bytes=3 * each + 7)
    assert cached.memory.expert_cache_bytes == 3 * each
    assert bare.memory.expert_cache_bytes == 0
    for _ in range(2):
        assert torch.equal(cached.forward(IDS, chunk=1), bare.forward(IDS, chunk=1))
    assert cached.model.workspace.hot.stats.hits > 0


def test_a_bfloat16_model_rounds_once(tmp_path: Path, make_engine: Any) -> None:
    """Numbers that bfloat16 holds exactly give what the plain weights give there."""
    packed, plain = write_pair(MOE, SECTIONS["mxfp4"], tmp_path)
    found, wanted = (make_engine(folder, dtype="bfloat16").forward(IDS) for folder in (packed, plain))
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", ["mxfp4", "int4"])
def test_memory_is_weights_and_one_workspace(name: str, tmp_path: Path, make_engine: Any, monkeypatch: Any) -> None:
    """Beside what is stored and one workspace for all layers nothing lives that shows, on the way there or later."""
    config = MOE | {"hidden_size": 512, "intermediate_size": 1024, "moe_intermediate_size": 512, "head_dim": 128}
    folder, _ = write_pair(config | {"num_hidden_layers": 4}, SECTIONS[name], tmp_path)
    monkeypatch.setattr(decoder, "PIECE", 1 << 12)
    with LiveBytes() as loading:
        engine: Engine = make_engine(folder, kv_cache_bytes=1 << 20)
    memory = engine.memory
    assert memory.workspace_bytes == 5 * 3 * 512 * 512 * 4, "the experts of one layer"
    assert memory.weight_bytes <= sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    held = memory.weight_bytes + memory.workspace_bytes
    assert loading.peak <= 1.01 * held + memory.kv_bytes
    with LiveBytes() as live:
        engine.forward([3])
    assert live.peak <= 0.01 * held
