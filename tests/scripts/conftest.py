"""A tiny llama GGUF made from a random transformers model, as llama.cpp's converter would write it."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    import transformers

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>")
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
HEADS, KV_HEADS, HEAD_DIM, HIDDEN, FFN, LAYERS = 4, 2, 16, 64, 96, 2


def permute_rotary(weight: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to q and k: row j of half h of a head becomes row 2j + h."""
    permuted = np.empty_like(weight)
    head_dim = len(weight) // heads
    for row in range(len(weight)):
        head, inner = divmod(row, head_dim)
        half, pair = divmod(inner, head_dim // 2)
        permuted[head * head_dim + 2 * pair + half] = weight[row]
    return permuted


def tokenizer_values() -> dict[str, object]:
    """Metadata of a byte-level tokenizer: the byte alphabet, a few merges, three control tokens, a user-defined one."""
    from tokenizers.pre_tokenizers import ByteLevel

    merges = ["Ġ Ġ", "h e", "l l", "he ll", "hell o", "Ġ hello", "1 2", "ĠĠ ĠĠ"]
    made = ["".join(merge.split(" ")) for merge in merges]
    tokens = [*TOKENS, *sorted(ByteLevel.alphabet()), *made]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 3, 4, *[1] * (len(tokens) - 4)],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
        "llama.vocab_size": len(tokens),
        "llama.context_length": 128,
    }


@pytest.fixture(scope="session")
def tiny_model() -> transformers.LlamaForCausalLM:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    vocab_size = tokenizer_values()["llama.vocab_size"]
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, rms_norm_eps=1e-5,
        max_position_embeddings=128, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


@pytest.fixture(scope="session")
def tiny_gguf(tiny_model: transformers.LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    gguf = pytest.importorskip("gguf")
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, value in tokenizer_values().items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_string(key, str(value))
    for name, values in gguf_tensors(tiny_model).items():
        # The output projection goes in as Q4_1, to run the dequantisation too.
        kind = gguf.GGMLQuantizationType.Q4_1 if "attn_output" in name else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_tensors(model: transformers.LlamaForCausalLM) -> dict[str, np.ndarray]:
    """Tensors under their GGUF names, q and k reordered. Written out by hand, apart from the script's own table."""
    tensors = {
        "token_embd.weight": model.model.embed_tokens.weight,
        "output_norm.weight": model.model.norm.weight,
    }
    for index, layer in enumerate(model.model.layers):
        parts = {
            "attn_norm": layer.input_layernorm, "attn_q": layer.self_attn.q_proj, "attn_k": layer.self_attn.k_proj,
            "attn_v": layer.self_attn.v_proj, "attn_output": layer.self_attn.o_proj,
            "ffn_norm": layer.post_attention_layernorm, "ffn_gate": layer.mlp.gate_proj,
            "ffn_up": layer.mlp.up_proj, "ffn_down": layer.mlp.down_proj,
        }  # fmt: skip
        tensors |= {f"blk.{index}.{part}.weight": module.weight for part, module in parts.items()}
    values = {name: weight.detach().numpy() for name, weight in tensors.items()}
    for name in values:
        if "attn_q" in name:
            values[name] = permute_rotary(values[name], HEADS)
        elif "attn_k" in name:
            values[name] = permute_rotary(values[name], KV_HEADS)
    return values


@pytest.fixture
def tiny_wheel(tiny_gguf: Path, tmp_path: Path) -> Path:
    path = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny/__init__.py", "")
        archive.write(tiny_gguf, "tiny/tiny.gguf")
    return path
