"""A config against itself: lengths, windows, rotation, lists by layer, tied tables, code it would have run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from day0.errors import Finding
from day0.profile.profile import ArchitectureProfile, RopeSpec
from day0.source.model_files import ModelFiles

_TEXT_SECTIONS = ("text_config", "llm_config", "language_config")
_LAYER_LISTS = (
    "layer_types",
    "mlp_layer_types",
    "indexer_types",
    "layers_block_type",
    "attn_type_list",
    "no_rope_layers",
)
_NO_LIMIT = 10**9
"""Tokenizers without a limit write a number beyond this."""
_SHOWN = 4


def audit_config(files: ModelFiles, profile: ArchitectureProfile) -> Iterator[Finding]:
    text = _text_section(files.config)
    yield from _remote_code(files)
    yield from _tie_flags(files, profile)
    yield from _layer_lists(files, profile, text)
    if profile.layers:
        yield from _context(files, profile)
        yield from _window(files, profile, text)
        yield from _rotary_width(files, profile, text)


def _text_section(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The section of the decoder and its prefix, as findings spell it."""
    for key in _TEXT_SECTIONS:
        if isinstance(section := config.get(key), Mapping):
            return f"{key}.", section
    return "", config


def _remote_code(files: ModelFiles) -> Iterator[Finding]:
    """Files that name code of the repository; day0 runs none of it."""
    for name, values in ((files.config_name, files.config), *sorted(files.extras.items())):
        code = values.get("auto_map")
        if isinstance(code, Mapping) and code:
            classes = sorted({str(value) for value in code.values() if value})
            text = f"names code of the repository, which is not run: {', '.join(classes[:_SHOWN])}"
            yield Finding("remote-code", "note", f"{name}: auto_map", text)


def _tie_flags(files: ModelFiles, profile: ArchitectureProfile) -> Iterator[Finding]:
    """Two levels that say different things: engines differ in which one they read."""
    prefix, text = _text_section(files.config)
    outer, inner = files.config.get("tie_word_embeddings"), text.get("tie_word_embeddings")
    if not prefix or not isinstance(outer, bool) or not isinstance(inner, bool) or outer == inner:
        return
    head = "unknown" if files.tensors is None else "stored" if _has_head(files) else "not stored"
    message = (
        f"{str(outer).lower()}, {prefix}tie_word_embeddings is {str(inner).lower()}; the head is {head}; "
        f"{str(profile.tie_word_embeddings).lower()} was taken"
    )
    hint = "engines read one or the other: a head that is stored and not used, or used and not stored"
    yield Finding("tie-flags-differ", "warning", f"{files.config_name}: tie_word_embeddings", message, hint)


def _has_head(files: ModelFiles) -> bool:
    return any(name in ("lm_head.weight", "language_model.lm_head.weight") for name in files.tensors or ())


def _layer_lists(
    files: ModelFiles, profile: ArchitectureProfile, text: tuple[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """Every list with an entry a layer, each by itself."""
    prefix, section = text
    layers = profile.num_layers or section.get("num_hidden_layers")
    for key in _LAYER_LISTS:
        listed = section.get(key)
        if isinstance(listed, list) and isinstance(layers, int) and listed and len(listed) < layers:
            message = f"{len(listed)} entries for {layers} layers"
            yield Finding("layer-list-length", "error", f"{files.config_name}: {prefix}{key}", message)


def _ropes(profile: ArchitectureProfile) -> Iterator[RopeSpec]:
    for layer in profile.layers:
        rope = getattr(layer.mixer, "rope", None)
        if isinstance(rope, RopeSpec):
            yield rope


def _context(files: ModelFiles, profile: ArchitectureProfile) -> Iterator[Finding]:
    """The declared length against what the frequency rule was made for, and the tokenizer's limit."""
    length = profile.max_position
    if length is None:
        return
    where = f"{files.config_name}: {profile.max_position_field}"
    for rope in dict.fromkeys(_ropes(profile)):
        numbers = dict(rope.parameters)
        factor, original = numbers.get("factor"), numbers.get("original_max_position_embeddings")
        if rope.scaling in ("yarn", "longrope", "llama3") and factor and original and factor > 0:
            reach = int(factor * original)
            if length > reach + 1 and rope.scaling == "yarn":
                text = f"{length:,} tokens, {rope.scaling} by {factor:g} from {original:,.0f} reaches {reach:,}"
                yield Finding("context-beyond-rotation", "warning", where, text, "positions past it were never trained")
                break
    limit = files.extras.get("tokenizer_config.json", {}).get("model_max_length")
    if isinstance(limit, int | float) and not isinstance(limit, bool) and length < limit < _NO_LIMIT:
        text = f"{limit:,.0f} tokens, the model has {length:,} positions"
        yield Finding("context-beyond-model", "note", "tokenizer_config.json: model_max_length", text)


def _window(files: ModelFiles, profile: ArchitectureProfile, text: tuple[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """A window that is declared and holds for no layer."""
    prefix, section = text
    window = section.get("sliding_window")
    if not isinstance(window, int) or isinstance(window, bool) or window <= 0:
        return
    planes = [plane for layer in profile.layers for plane in layer.cache_planes()]
    if planes and all(plane.window is None for plane in planes):
        kinds = ", ".join(sorted({layer.mixer.kind for layer in profile.layers}))
        companions = [key for key in ("use_sliding_window", "max_window_layers", "layer_types") if key in section]
        by = f", by {', '.join(companions)}" if companions else ""
        text_ = f"{window:,} has no effect: all {profile.num_layers} layers ({kinds}) see the full context{by}"
        yield Finding("window-without-effect", "note", f"{files.config_name}: {prefix}sliding_window", text_)


def _rotary_width(
    files: ModelFiles, profile: ArchitectureProfile, text: tuple[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """How many channels of a head turn, and which field says so, where it is not all of them."""
    prefix, section = text
    pairs = {
        (rope.dim, int(width))
        for layer in profile.layers
        if isinstance(rope := getattr(layer.mixer, "rope", None), RopeSpec)
        and (width := getattr(layer.mixer, "head_dim", 0))
        and rope.dim < width
    }
    said = [key for key in ("rotary_dim", "partial_rotary_factor") if section.get(key) is not None]
    for inner in ("rope_parameters", "rope_scaling"):
        nested = section.get(inner)
        if isinstance(nested, Mapping) and nested.get("partial_rotary_factor") is not None:
            said.append(f"{inner}.partial_rotary_factor")
    origin = ", ".join(prefix + key for key in said) or "the family's default"
    for dim, width in sorted(pairs):
        message = f"{dim} of {width} channels of a head turn, by {origin}"
        yield Finding("rotation-partial", "note", files.config_name, message)
    declared, width = section.get("rotary_dim"), {rope.dim for rope in _ropes(profile)}
    if isinstance(declared, int) and width and declared not in width:
        message = f"{declared}, {' and '.join(map(str, sorted(width)))} channels turn"
        hint = "another field or the family's rule counts; check which of them the weights were trained with"
        yield Finding("rotary-width-differs", "warning", f"{files.config_name}: {prefix}rotary_dim", message, hint)
