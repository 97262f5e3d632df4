"""Small tokenizers made from nothing: of bytes, and in SentencePiece's way, as folders in a publisher's spelling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "The cat sat on the mat. Then the dog sat on the cat, and that was that.",
    "naïve café, élan vital; Привет, мир! 漢字とカタカナ、你好世界",
    "def f(x):\n    if x:\n        return  x\n    return   None\n",
    "😀😁😂 👍🏽 👨‍👩‍👧 for (int i = 0; i < 10; ++i) {\n\treturn 3.14;\n}\n\n",
] * 3
BASE = 380  # entries before the special tokens
SPECIAL = ("<|end|>", "<|user|>", "<|model|>")
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ raise_exception('this model takes no system message') }}{% endif %}"
    "<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}"
    "{% if tools %}[{% for tool in tools %}{{ tool.function.name }}{% endfor %}]{% endif %}"
    "{% if mood is defined %}({{ mood }}){% endif %}"
    "{% if add_generation_prompt %}<|model|>{% endif %}"
)
CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "chat_template": TEMPLATE}


def byte_level() -> Tokenizer:
    """A trained byte-level BPE: tokens of several characters, and tokens that end inside one."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=BASE, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    assert tokenizer.get_vocab_size() == BASE
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """SentencePiece's way: spaces as a visible mark, unknown characters as byte tokens, the first space dropped."""
    pieces = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdeé漢", "▁a", "▁b", "ab"]
    merges = [("▁", "a"), ("▁", "b"), ("a", "b")]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken("</s>", normalized=False)])
    return tokenizer


def write_folder(folder: Path, rust: Tokenizer | None, config: dict[str, Any] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    if rust is not None:
        rust.save(str(folder / "tokenizer.json"))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def byte_level_folder(folder: Path) -> Path:
    return write_folder(folder, byte_level(), CONFIG)


def byte_fallback_folder(folder: Path) -> Path:
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "<unk>"}
    return write_folder(folder, byte_fallback(), config)
