"""The tokenizer of skeleton checkpoints: one token per byte, a few control tokens, and a chat template of our own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from day0.profile.profile import ArchitectureProfile

SPECIAL_TOKENS: Mapping[str, int] = {
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": 258,
    "open": 259,
    "close": 260,
    "media_placeholder_token_id": 261,
}
"""Ids of the control tokens; the 256 before them are the bytes."""

VOCABULARY = 320
"""Entries of the embedding table: padded past the tokenizer's own, as released models do."""

_TEXT = {
    "bos_token_id": "<|begin|>",
    "eos_token_id": "<|end|>",
    "pad_token_id": "<|pad|>",
    "open": "<|open|>",
    "close": "<|close|>",
    "media_placeholder_token_id": "<|image|>",
}

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|open|>{{ message['role'] }}<|close|>{{ message['content'] }}<|end|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|open|>assistant<|close|>{% endif %}"
)


def write_tokenizer(folder: Path, profile: ArchitectureProfile) -> None:
    """Write tokenizer.json and tokenizer_config.json for a skeleton of this profile."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={symbol: index for index, symbol in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_TEXT.values()))
    assert {key: tokenizer.token_to_id(text) for key, text in _TEXT.items()} == dict(SPECIAL_TOKENS)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": _TEXT["bos_token_id"],
        "eos_token": _TEXT["eos_token_id"],
        "pad_token": _TEXT["pad_token_id"],
        "model_max_length": profile.max_position or 0,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2))
