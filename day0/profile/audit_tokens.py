"""Tokenizer, chat template and token ids against the model they come with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from day0.errors import Finding
from day0.profile.profile import ArchitectureProfile
from day0.source.model_files import ModelFiles
from day0.source.tokenizer_file import TOKENIZER_NAMES, TokenizerFacts, gaps_between

_GENERATION = "generation_config.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_TEMPLATES = ("chat_template.jinja", "chat_template.json")
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_SHOWN = 6
_RESERVED = 1024
"""A run of ids as long as this is vocabulary."""


def audit_tokens(
    files: ModelFiles, profile: ArchitectureProfile, tokenizer: TokenizerFacts | None
) -> Iterator[Finding]:
    """`tokenizer` is what the model's own tokenizer.json says, None where it is not at hand."""
    if files.source in ("folder", "hub"):
        yield from _presence(files)
        yield from _sampling(files, profile)
    yield from _special_ids(files, profile)
    yield from _stop_ids(files)
    if tokenizer is not None and profile.vocab_size:
        yield from _rows(profile, files, tokenizer)
    yield from _added_tokens(files, tokenizer)


def _presence(files: ModelFiles) -> Iterator[Finding]:
    """A model without tokenizer or template loads, and cannot answer."""
    names = set(files.file_names)
    own = [name for name in names if name in TOKENIZER_NAMES or "tiktoken" in name]
    if not own:
        text = f"no tokenizer here: none of {', '.join(TOKENIZER_NAMES)} nor a tiktoken vocabulary"
        yield Finding("tokenizer-missing", "warning", files.id, text, "text requests need one")
        return
    template = files.extras.get(_TOKENIZER_CONFIG, {}).get("chat_template")
    folders = any(name.startswith("additional_chat_templates/") for name in names)
    if not template and not folders and not names.intersection(_TEMPLATES):
        text = f"no chat template: none of {', '.join(_TEMPLATES)}, nor chat_template in {_TOKENIZER_CONFIG}"
        yield Finding("chat-template-missing", "note", files.id, text, "chat requests need one; a base model has none")


def _sampling(files: ModelFiles, profile: ArchitectureProfile) -> Iterator[Finding]:
    """Which sampling and stop ids hold where the publisher left no generation_config.json."""
    if _GENERATION in files.file_names:
        return
    stops = ", ".join(map(str, profile.eos_token_ids)) or "none"
    said = {key: files.config[key] for key in _SAMPLING if files.config.get(key) is not None}
    sampling = ", ".join(f"{key} {value}" for key, value in said.items()) or "the engine's defaults"
    text = f"not there: stop ids {stops} come from {files.config_name}, sampling is {sampling}"
    yield Finding("generation-config-missing", "note", _GENERATION, text, "advice in a model card reaches no engine")


def _ids(values: Mapping[str, Any], key: str) -> tuple[int, ...]:
    found = values.get(key)
    listed = found if isinstance(found, list) else [found]
    return tuple(value for value in listed if isinstance(value, int) and not isinstance(value, bool))


def _special_ids(files: ModelFiles, profile: ArchitectureProfile) -> Iterator[Finding]:
    """Ids that no row of the table belongs to: the first such token fails inside a kernel."""
    if not profile.vocab_size:
        return
    rows = profile.vocab_size + profile.ends.extra_rows
    places = [(files.config_name, "", files.config), (_GENERATION, "", files.extras.get(_GENERATION, {}))]
    places += [
        (files.config_name, f"{key}.", section)
        for key, section in files.config.items()
        if key in ("text_config", "llm_config", "language_config") and isinstance(section, Mapping)
    ]
    for name, prefix, values in places:
        for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
            outside = [value for value in _ids(values, key) if value >= rows]
            if outside:
                text = f"{outside[0]} is not below the vocabulary's {rows:,} rows"
                yield Finding("token-id-outside-vocabulary", "error", f"{name}: {prefix}{key}", text)


def _stop_ids(files: ModelFiles) -> Iterator[Finding]:
    """Two files that disagree on where an answer ends: generation_config.json counts here, others read config.json."""
    own = _ids(files.extras.get(_GENERATION, {}), "eos_token_id")
    section = next((files.config[key] for key in ("text_config", "llm_config") if key in files.config), files.config)
    said = _ids(files.config, "eos_token_id") or (_ids(section, "eos_token_id") if isinstance(section, Mapping) else ())
    if own and said and not set(said) <= set(own):
        text = f"stop ids {list(own)}, {files.config_name} says {list(said)}"
        yield Finding("stop-ids-differ", "note", f"{_GENERATION}: eos_token_id", text, "engines read one or the other")


def _rows(profile: ArchitectureProfile, files: ModelFiles, tokenizer: TokenizerFacts) -> Iterator[Finding]:
    """Rows of the tables against the tokenizer's ids: spare rows are harmless until one is sampled."""
    rows = profile.vocab_size
    stored = {header.shape[0] for name, header in _tables(files)}
    counts = (
        f"vocab_size {rows:,}, stored rows {', '.join(f'{count:,}' for count in sorted(stored)) or 'not seen'}, "
        f"{tokenizer.entries:,} tokens, highest id {tokenizer.highest_id:,}"
    )
    where = f"{files.config_name}: vocab_size"
    if tokenizer.highest_id >= rows + profile.ends.extra_rows:
        text = f"the tokenizer has ids without a row ({counts})"
        yield Finding("vocabulary-too-small", "error", where, text, "resize the tables, or take the right tokenizer")
    elif tokenizer.entries < rows:
        text = f"{rows - tokenizer.entries:,} rows belong to no token ({counts})"
        yield Finding("vocabulary-padded", "note", where, text, "an engine must never sample them")


def _tables(files: ModelFiles) -> Iterator[tuple[str, Any]]:
    """Input table and head by the names that publishers use."""
    for name in ("model.embed_tokens.weight", "lm_head.weight", "model.language_model.embed_tokens.weight"):
        if files.tensors is not None and (header := files.tensors.get(name)) is not None and header.shape:
            yield name, header


def _added_tokens(files: ModelFiles, tokenizer: TokenizerFacts | None) -> Iterator[Finding]:
    """Special tokens by number: gaps must be kept, and two files must not give one id two names."""
    listed = files.extras.get(_TOKENIZER_CONFIG, {}).get("added_tokens_decoder")
    if not isinstance(listed, Mapping):
        return
    named: dict[int, str] = {}
    for key, entry in listed.items():
        if isinstance(key, str) and key.isdecimal() and isinstance(entry, Mapping):
            named[int(key)] = str(entry.get("content", ""))
    where = f"{_TOKENIZER_CONFIG}: added_tokens_decoder"
    if tokenizer is not None:
        differing = [i for i, text in named.items() if i in tokenizer.added and tokenizer.added[i] != text]
        if differing:
            first = differing[0]
            text = f"id {first} is {named[first]!r} here and {tokenizer.added[first]!r} in tokenizer.json"
            yield Finding("tokenizer-files-differ", "error", where, text, f"{len(differing)} ids differ")
    gaps = tokenizer.gaps if tokenizer is not None else _reserved(named)
    if gaps:
        shown = ", ".join(f"{low}-{high}" if low < high else str(low) for low, high in gaps[:_SHOWN])
        text = f"ids without a name between named ones: {shown}"
        yield Finding("token-id-gaps", "note", where, text, "ids must be kept as they are, never counted up")


def _reserved(named: Collection[int]) -> tuple[tuple[int, int], ...]:
    """Gaps so narrow that they are reserved ids, and not the vocabulary between a first and a last special token."""
    gaps = gaps_between(named)
    return gaps if all(high - low < _RESERVED for low, high in gaps) else ()
