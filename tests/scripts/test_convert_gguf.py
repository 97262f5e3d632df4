"""The conversion of a GGUF: rotary rows, weights, configuration and tokenizer against transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from convert_gguf import Metadata, build_tokenizer, convert, model_config, open_gguf, tokenizer_files, unpermute_rotary

from day0.errors import InputError

if TYPE_CHECKING:
    import transformers


def forward_permutation(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's converter, as it writes it: the halves of a head become the inner of two axes."""
    rows, hidden = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, hidden).swapaxes(1, 2).reshape(rows, hidden)


@pytest.mark.parametrize(("heads", "head_dim", "hidden"), [(1, 2, 1), (9, 64, 3), (3, 64, 5), (7, 6, 1), (1, 100, 2)])
def test_unpermute_undoes_the_converter(heads: int, head_dim: int, hidden: int) -> None:
    weight = np.random.default_rng(0).normal(size=(heads * head_dim, hidden)).astype(np.float32)
    permuted = forward_permutation(weight, heads)
    np.testing.assert_array_equal(unpermute_rotary(permuted, heads), weight)
    if head_dim > 2:
        assert not np.array_equal(permuted, weight)


def test_unpermuting_turns_pair_rotation_into_half_rotation() -> None:
    """The reason for it all: scores of rotated q and k are those of llama.cpp's rotation of neighbouring rows."""
    heads, head_dim, hidden = 2, 8, 5
    rng = np.random.default_rng(1)
    q, k = (rng.normal(size=(heads * head_dim, hidden)) for _ in range(2))
    x, y = (rng.normal(size=hidden) for _ in range(2))
    angles = 7 / 100.0 ** (np.arange(0, head_dim, 2) / head_dim)

    def neighbours(v: np.ndarray) -> np.ndarray:  # [heads, head_dim]
        even, odd = v[:, 0::2], v[:, 1::2]
        rotated = np.stack([even * np.cos(angles) - odd * np.sin(angles), even * np.sin(angles) + odd * np.cos(angles)])
        return np.moveaxis(rotated, 0, -1).reshape(v.shape)

    def halves(v: np.ndarray) -> np.ndarray:
        first, second = np.split(v, 2, axis=1)
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=1)

    llama_cpp = neighbours((q @ x).reshape(heads, -1)) * (k @ y).reshape(heads, -1)
    q, k = unpermute_rotary(q, heads), unpermute_rotary(k, heads)
    hub = halves((q @ x).reshape(heads, -1)) * (k @ y).reshape(heads, -1)
    np.testing.assert_allclose(hub.sum(1), llama_cpp.sum(1), rtol=1e-12)


def test_the_folder_is_the_model(tiny_gguf: Path, tiny_model: transformers.LlamaForCausalLM, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    assert convert(tiny_gguf, tmp_path, "float32") == 0
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert model.config.rms_norm_eps == 1e-5 and model.config.rope_parameters["rope_theta"] == 100000.0
    original = tiny_model.state_dict()
    for name, weight in model.state_dict().items():
        if "o_proj" in name:  # four bits of it: half a step of a block of 32
            assert 0 < (weight - original[name]).abs().max() < 0.1
            original[name] = weight
        else:
            assert torch.equal(weight, original[name]), name
    tokens = torch.randint(0, model.config.vocab_size, (1, 63), generator=torch.Generator().manual_seed(0))
    tiny = type(tiny_model)(tiny_model.config).eval()
    tiny.load_state_dict(original)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).logits, tiny(tokens).logits, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_dtypes_say_what_they_lose(tiny_gguf: Path, tmp_path: Path, dtype: str) -> None:
    from safetensors import safe_open

    error = convert(tiny_gguf, tmp_path, dtype)
    assert 1e-5 < error < 1e-2
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        assert file.get_slice("model.norm.weight").get_dtype() == {"float16": "F16", "bfloat16": "BF16"}[dtype]
    assert json.loads((tmp_path / "config.json").read_text())["torch_dtype"] == dtype


def values(tiny_gguf: Path) -> dict[str, Any]:
    return dict(open_gguf(tiny_gguf)[0].values)


def test_digits_stand_alone_and_are_split_off_first(tiny_gguf: Path) -> None:
    tokenizer = build_tokenizer(Metadata(values(tiny_gguf)))
    # There is a merge "1 2", which digits standing alone never reach; two spaces before a digit stay one token.
    assert tokenizer.encode("hello  12").tokens == ["hello", "ĠĠ", "1", "2"]
    assert tokenizer.encode("a  hello").tokens == ["a", "Ġ", "Ġhello"]
    assert tokenizer.encode("<|im_start|>hello<think>").ids[0::2] == [1, 3]
    assert tokenizer.decode(tokenizer.encode("<|im_end|>a<think>").ids) == "a<think>"
    for text in ("naïve 漢字 😀\n\t x² ½ 3.14", "  \r\n "):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_transformers_reads_the_tokenizer(tiny_gguf: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    convert(tiny_gguf, tmp_path, "float32")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
    assert tokenizer.encode("hello  12") == build_tokenizer(Metadata(values(tiny_gguf))).encode("hello  12").ids
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "hello"}], tokenize=False)
    assert chat == "<|im_start|>user\nhello<|im_end|>\n"


@pytest.mark.parametrize(
    ("key", "value", "where"),
    [
        ("general.architecture", "gpt2", "general.architecture"),
        ("llama.block_count", None, "llama.block_count"),
        ("llama.attention.head_count", 0, "llama.attention.head_count"),
        ("llama.rope.dimension_count", 8, "llama.rope.dimension_count"),
        ("llama.rope.freq_base", "fast", "llama.rope.freq_base"),
        ("tokenizer.ggml.eos_token_id", 10_000, "tokenizer.ggml.eos_token_id"),
    ],
)
def test_config_refuses(tiny_gguf: Path, key: str, value: object, where: str) -> None:
    with pytest.raises(InputError) as caught:
        model_config(Metadata({**values(tiny_gguf), key: value}), tied=True, dtype="float32")
    assert caught.value.where == where


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("tokenizer.ggml.model", lambda _: "llama"),
        ("tokenizer.ggml.pre", lambda _: "qwen2"),
        ("tokenizer.ggml.tokens", lambda tokens: [*tokens[:-1], tokens[0]]),
        ("tokenizer.ggml.tokens", lambda tokens: tokens[:-1]),
        ("tokenizer.ggml.merges", lambda merges: [*merges, "nowhere x"]),
        ("tokenizer.ggml.merges", lambda merges: [*merges, "a"]),
    ],
)
def test_tokenizer_refuses(tiny_gguf: Path, key: str, change: Callable[[Any], Any]) -> None:
    found = values(tiny_gguf)
    with pytest.raises(InputError) as caught:
        build_tokenizer(Metadata({**found, key: change(found[key])}))
    assert caught.value.where == key


def test_a_start_token_is_refused(tiny_gguf: Path) -> None:
    metadata = Metadata({**values(tiny_gguf), "tokenizer.ggml.add_bos_token": True})
    with pytest.raises(InputError, match="start token"):
        tokenizer_files(metadata, build_tokenizer(metadata))


def test_missing_and_misshapen_tensors_are_named(tiny_gguf: Path) -> None:
    from convert_gguf import convert_tensors

    metadata, tensors = open_gguf(tiny_gguf)
    config = model_config(metadata, tied=True, dtype="float32")
    left_out = {name: tensor for name, tensor in tensors.items() if name != "blk.1.ffn_up.weight"}
    with pytest.raises(InputError, match=r"blk\.1\.ffn_up\.weight"):
        dict(convert_tensors(left_out, config))
    with pytest.raises(InputError, match=r"rope_freqs\.weight"):
        dict(convert_tensors({**tensors, "rope_freqs.weight": tensors["output_norm.weight"]}, config))
    with pytest.raises(InputError, match="expected") as caught:
        dict(convert_tensors({**tensors, "blk.0.ffn_up.weight": tensors["blk.0.attn_k.weight"]}, config))
    assert caught.value.where == "blk.0.ffn_up.weight"


@pytest.mark.parametrize("keep", [0, 3, 100, 5_000])
def test_a_cut_gguf_is_refused(tiny_gguf: Path, tmp_path: Path, keep: int) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny_gguf.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"GGUF"):
        convert(broken, tmp_path, "float32")
