"""Turn a GGUF of the llama architecture with a `smollm` tokenizer into the files of a Hugging Face folder.

The tensors are dequantised, llama.cpp's reordering of the rotary rows is undone, and the tokenizer is rebuilt from
the GGUF's own metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from day0.errors import EnvironmentFault, InputError

if TYPE_CHECKING:
    import gguf
    import tokenizers

DTYPES = ("float32", "float16", "bfloat16")

LAYER_NAMES: Mapping[str, str] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Parts of `blk.{i}.PART.weight` in the GGUF and of `model.layers.{i}.PART.weight` in the Hugging Face layout."""

OUTER_NAMES: Mapping[str, str] = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}

SPECIAL_TOKENS: Mapping[str, str] = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}
# Kinds of token in `tokenizer.ggml.token_type`; 1 is an ordinary entry of the vocabulary.
CONTROL_TOKEN, USER_DEFINED_TOKEN = 3, 4


class Metadata:
    """The key-value part of a GGUF; a missing key or a value of the wrong type is the file's fault, by name."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def count(self, key: str, default: int | None = None) -> int:
        value = int(self._get(key, int, default))
        if value < 1:
            raise InputError(f"must be at least 1, is {value}", where=key)
        return value

    def token_id(self, key: str) -> int:
        value, limit = int(self._get(key, int, None)), len(self.items("tokenizer.ggml.tokens"))
        if not 0 <= value < limit:
            raise InputError(f"token {value} of a vocabulary of {limit}", where=key)
        return value

    def number(self, key: str) -> float:
        # Stored as float32: the shortest text that gives the same float32 is what was meant (1e-05, not 9.99e-06).
        return float(str(np.float32(self._get(key, (int, float), None))))

    def text(self, key: str) -> str:
        return str(self._get(key, str, None))

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._get(key, bool, default))

    def items(self, key: str) -> list[Any]:
        found: list[Any] = self._get(key, list, None)
        return found

    def _get(self, key: str, kind: type | tuple[type, ...], default: Any) -> Any:
        value = self.values.get(key, default)
        if value is None:
            raise InputError("the GGUF lacks this key", where=key)
        if not isinstance(value, kind):
            raise InputError(f"unexpected type {type(value).__name__}", where=key)
        return value


def open_gguf(path: Path) -> tuple[Metadata, dict[str, gguf.ReaderTensor]]:
    try:
        import gguf
    except ImportError as error:
        raise EnvironmentFault("the gguf package is missing", hint="pip install 'day0[smollm2]'") from error
    try:
        reader = gguf.GGUFReader(path)
        metadata = Metadata({key: value.contents() for key, value in reader.fields.items()})
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        raise InputError(f"not a readable GGUF: {error}", where=path.name) from error
    return metadata, {tensor.name: tensor for tensor in reader.tensors}


def model_config(metadata: Metadata, *, tied: bool, dtype: str) -> dict[str, Any]:
    """`config.json` of the llama architecture, every value from the GGUF."""
    if (architecture := metadata.text("general.architecture")) != "llama":
        raise InputError(f"expected a llama model, found {architecture}", where="general.architecture")
    hidden, heads = metadata.count("llama.embedding_length"), metadata.count("llama.attention.head_count")
    head_dim = metadata.count("llama.attention.key_length", hidden // heads)
    if metadata.count("llama.rope.dimension_count", head_dim) != head_dim or head_dim % 2:
        raise InputError(f"must be the size of a head ({head_dim}), and even", where="llama.rope.dimension_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": metadata.count("llama.feed_forward_length"),
        "num_hidden_layers": metadata.count("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.count("llama.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": metadata.number("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": metadata.number("llama.rope.freq_base"),
        "rope_scaling": None,
        "max_position_embeddings": metadata.count("llama.context_length"),
        "vocab_size": metadata.count("llama.vocab_size"),
        "tie_word_embeddings": tied,
        "attention_bias": False,
        "mlp_bias": False,
        **token_ids(metadata),
        "use_cache": True,
        "torch_dtype": dtype,
    }


def token_ids(metadata: Metadata) -> dict[str, int]:
    return {f"{name}_id": metadata.token_id(SPECIAL_TOKENS[name]) for name in ("bos_token", "eos_token", "pad_token")}


def unpermute_rotary(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a q or k projection from llama.cpp's order back to Hugging Face's.

    llama.cpp rotates neighbouring rows (2i, 2i+1) of a head, transformers rows (i, i + head_dim/2); the converter to
    GGUF therefore interleaves the two halves of every head. weight [heads * head_dim, hidden].
    """
    rows, hidden = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, hidden)  # [heads, head_dim/2, half, hidden]
    return pairs.swapaxes(1, 2).reshape(rows, hidden)


def expected_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """GGUF name -> shape in rows-first order, for every tensor that a model of this configuration has."""
    hidden, ffn, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    layer = {
        "attn_norm": (hidden,), "attn_q": (q, hidden), "attn_k": (kv, hidden), "attn_v": (kv, hidden),
        "attn_output": (hidden, q), "ffn_norm": (hidden,), "ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden),
        "ffn_down": (hidden, ffn),
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (config["vocab_size"], hidden)}
    for index in range(config["num_hidden_layers"]):
        shapes |= {f"blk.{index}.{part}.weight": shape for part, shape in layer.items()}
    shapes["output_norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["output.weight"] = (config["vocab_size"], hidden)
    return shapes


def hub_name(name: str) -> str:
    """Hugging Face's name of a GGUF tensor."""
    if name in OUTER_NAMES:
        return OUTER_NAMES[name]
    _, index, part, kind = name.split(".")
    return f"model.layers.{index}.{LAYER_NAMES[part]}.{kind}"


def convert_tensors(
    tensors: Mapping[str, gguf.ReaderTensor], config: Mapping[str, Any]
) -> Iterator[tuple[str, np.ndarray]]:
    """(Hugging Face name, float32 values) of every tensor; missing, unknown and misshapen ones are refused."""
    from gguf.quants import dequantize

    shapes = expected_shapes(config)
    if odd := sorted(shapes.keys() ^ tensors.keys()):
        raise InputError(f"tensors missing or unknown: {', '.join(odd[:5])}", where="model.gguf")
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, shape in shapes.items():
        try:
            values = dequantize(tensors[name].data, tensors[name].tensor_type)
        except NotImplementedError as error:
            raise InputError(f"cannot dequantise {tensors[name].tensor_type.name}", where=name) from error
        if values.shape != shape:
            raise InputError(f"shape {values.shape}, expected {shape}", where=name)
        if (part := name.split(".")[-2]) in heads:
            values = unpermute_rotary(values, heads[part])
        # A copy, since float32 tensors are read-only views of the mapped file.
        yield hub_name(name), np.array(values, dtype=np.float32, order="C")


def write_weights(path: Path, tensors: Iterator[tuple[str, np.ndarray]], dtype: str) -> float:
    """Save as one safetensors file; returns the largest error of rounding to `dtype`, relative to a tensor's peak."""
    import torch
    from safetensors.torch import save_file

    worst, stored = 0.0, {}
    for name, values in tensors:
        exact = torch.from_numpy(values)
        stored[name] = exact.to(getattr(torch, dtype))
        difference = (stored[name].float() - exact).abs().max().item()
        worst = max(worst, difference / max(exact.abs().max().item(), 1e-30))
    save_file(stored, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors goes through a temporary file that only its owner may read
    return worst


def build_tokenizer(metadata: Metadata) -> tokenizers.Tokenizer:
    """Byte-level BPE in which every digit stands alone, as the pre-tokenizer named `smollm` defines it.

    Digits are split off first and the GPT-2 pattern runs on what lies between them, so white space before a digit
    stays together; the other order gives different ids.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    for key, known in (("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "smollm")):
        if (found := metadata.text(key)) != known:
            raise InputError(f"expected {known}, found {found}", where=key)
    tokens, kinds = metadata.items("tokenizer.ggml.tokens"), metadata.items("tokenizer.ggml.token_type")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if not len(vocabulary) == len(tokens) == len(kinds) == metadata.count("llama.vocab_size"):
        message = "tokens repeat, or are not as many as their types or the rows of the embedding"
        raise InputError(message, where="tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in metadata.items("tokenizer.ggml.merges")]
    for pair in merges:
        if len(pair) != 2 or not vocabulary.keys() >= {*pair, "".join(pair)}:
            raise InputError(f"not a merge of two known tokens: {' '.join(pair)!r}", where="tokenizer.ggml.merges")

    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    prefix = metadata.flag("tokenizer.ggml.add_space_prefix", False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=prefix)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, kinds, strict=True):
        if kind == CONTROL_TOKEN:
            tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])
        elif kind == USER_DEFINED_TOKEN:
            tokenizer.add_tokens([AddedToken(token, normalized=False)])
    return tokenizer


def tokenizer_files(metadata: Metadata, tokenizer: tokenizers.Tokenizer) -> dict[str, dict[str, Any]]:
    """The two JSON files beside `tokenizer.json`, by name."""
    if metadata.flag("tokenizer.ggml.add_bos_token", False):
        raise InputError("a tokenizer that adds a start token is not known here", where="tokenizer.ggml.add_bos_token")
    special = {name: tokenizer.id_to_token(metadata.token_id(key)) for name, key in SPECIAL_TOKENS.items()}
    added = {
        str(index): {
            "content": token.content, "lstrip": token.lstrip, "normalized": token.normalized,
            "rstrip": token.rstrip, "single_word": token.single_word, "special": token.special,
        }
        for index, token in sorted(tokenizer.get_added_tokens_decoder().items())
    }  # fmt: skip
    config = {
        "add_prefix_space": metadata.flag("tokenizer.ggml.add_space_prefix", False),
        "added_tokens_decoder": added,
        **special,
        "chat_template": metadata.text("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata.count("llama.context_length"),
        # tokenizer.json says everything; a class of a model family would rebuild it with its own pre-tokenizer.
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    return {"tokenizer_config.json": config, "special_tokens_map.json": special}


def convert(gguf_file: Path, folder: Path, dtype: str) -> float:
    """Write the Hugging Face files of `gguf_file` into `folder`; returns the rounding error of the weights."""
    metadata, tensors = open_gguf(gguf_file)
    config = model_config(metadata, tied="output.weight" not in tensors, dtype=dtype)
    tokenizer = build_tokenizer(metadata)
    documents = {
        "config.json": config,
        "generation_config.json": token_ids(metadata),
        **tokenizer_files(metadata, tokenizer),
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    tokenizer.save(str(folder / "tokenizer.json"))
    return write_weights(folder / "model.safetensors", convert_tensors(tensors, config), dtype)
