"""The tokenizer of skeleton checkpoints: one token per byte, a few control tokens, and a chat template of our own."""

from __future__ import annotations

import itertools
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
"""Ids of the control tokens of a tiny skeleton; the 256 before them are the bytes."""

IMAGE_KEYS = ("media_placeholder_token_id", "image_token_id", "image_token_index")
"""What configs call the token that stands for an image."""

NUM_BYTES = 256
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


def released_ids(profile: ArchitectureProfile) -> dict[str, int]:
    """Ids of the control tokens as the profile has them, and of the others the first that are free after the bytes."""
    known = {
        "bos_token_id": profile.bos_token_id,
        "eos_token_id": next(iter(profile.eos_token_ids), None),
        "media_placeholder_token_id": profile.vision.placeholder_token_id if profile.vision else None,
    }
    ids: dict[str, int] = {}
    for key, token in known.items():
        if token is not None and token not in ids.values():
            ids[key] = token
    for key in SPECIAL_TOKENS:
        if key not in ids:
            ids[key] = next(token for token in itertools.count(NUM_BYTES) if token not in ids.values())
    return ids


def write_tokenizer(
    folder: Path, profile: ArchitectureProfile, special_tokens: Mapping[str, int] = SPECIAL_TOKENS
) -> None:
    """Write tokenizer.json and tokenizer_config.json for a skeleton of this profile."""
    taken = set(special_tokens.values())
    free = (token for token in itertools.count() if token not in taken)
    vocabulary = dict(zip(sorted(pre_tokenizers.ByteLevel.alphabet()), free, strict=False))
    vocabulary |= {_TEXT[key]: token for key, token in special_tokens.items()}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_TEXT.values()))
    assert {key: tokenizer.token_to_id(_TEXT[key]) for key in special_tokens} == dict(special_tokens)
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
