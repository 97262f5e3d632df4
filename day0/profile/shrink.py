"""A config shrunk to a test size with every feature left on: smaller widths, and the first layers of every kind."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping
from dataclasses import fields, is_dataclass
from itertools import accumulate
from typing import Any

from day0.profile.families.family import Family
from day0.profile.families.tiny_sizes import LENGTH, SIZES, TOWER_SIZES, TRAINED_LENGTHS, WITHOUT
from day0.profile.profile import ArchitectureProfile, CrossAttention, GroupedQueryAttention
from day0.profile.read import read_profile
from day0.source.model_files import ModelFiles

FEWEST_LAYERS = 3

_PACKING = ("quantization_config", "compression_config")
_PACKED_GROUP: Mapping[str, int] = {"group_size": 32}
"""Groups of packed integers are cut with the widths: rows hold whole groups, and several."""

_HEADS = (("num_attention_heads", "num_key_value_heads"), ("swa_num_attention_heads", "swa_num_key_value_heads"))

_TOWERS = ("vision_config", "audio_config")


def shrunk_config(files: ModelFiles, family: Family) -> dict[str, Any]:
    """The config of `files` with the sizes of `SIZES` and of the family's own table.

    Sizes that are smaller already stay. Where the family's table does not say how many layers there are, as many of
    the first are kept as it takes to have every kind of layer.
    """
    profile = read_profile(files)
    config = copy.deepcopy(dict(files.config))
    text = text_section(config, family)
    width = _rotary_width(text)
    _add_defaulted(config, text, profile, family)
    _add_axes(text, profile)
    _shrink(text, SIZES)
    if profile.max_position is not None and profile.max_position > LENGTH:
        _shrink_trained_lengths(text, LENGTH / profile.max_position)
    for key in _PACKING:
        _shrink_groups(config.get(key))
    for key in _TOWERS:
        if isinstance(config.get(key), dict):
            _shrink_tower(config[key])
    _keep_first_layers(text, profile, _own_count(family))
    for path, value in family.tiny.items():
        set_path(config, path, value)
    _shrink_rotary_lists(text, _rotary_width(text) / width)
    return config


def _own_count(family: Family) -> int | None:
    """The number of layers that the family's table names."""
    counts = (size for path, size in family.tiny.items() if path.rpartition(".")[2] == "num_hidden_layers")
    return next(counts, None)


def text_section(config: dict[str, Any], family: Family) -> dict[str, Any]:
    """The part of a config that describes the decoder, to be changed in place."""
    section = config.get(family.text_section) if family.text_section else None
    return section if isinstance(section, dict) else config


def set_path(config: MutableMapping[str, Any], path: str, value: Any) -> None:
    """Set a dotted path; a section that is not there, or a key that its section does not have, is left out."""
    *sections, key = path.split(".")
    for section in sections:
        if not isinstance(config.get(section), MutableMapping):
            return  # a config without this part (no vision tower, say) stays without it
        config = config[section]
    if key in config:
        config[key] = value


def _add_defaulted(config: dict[str, Any], text: dict[str, Any], profile: ArchitectureProfile, family: Family) -> None:
    """Write out the sizes that the family would have by default: they are those of a large model."""
    prefix = f"{family.text_section}." if family.text_section else ""
    for path in profile.defaulted_config_keys:
        section, _, leaf = path.partition(".")
        if section in _TOWERS and leaf in TOWER_SIZES:
            config.setdefault(section, {}).setdefault(leaf, TOWER_SIZES[leaf])
        key = path.removeprefix(prefix)
        if key in SIZES and key not in WITHOUT and key not in text and not (key == "head_dim" and _even_heads(profile)):
            text[key] = SIZES[key]


def _even_heads(profile: ArchitectureProfile) -> bool:
    """Whether the heads share out the model's width: such families may have no word for another width of a head."""
    return any(
        layer.mixer.num_heads * layer.mixer.head_dim == profile.hidden_size
        for layer in profile.layers
        if isinstance(layer.mixer, GroupedQueryAttention | CrossAttention)
    )


def _add_axes(text: dict[str, Any], profile: ArchitectureProfile) -> None:
    """Write out how a head's channel pairs are shared among the axes of a position, where that is the default."""
    ropes = (getattr(layer.mixer, "rope", None) for layer in profile.layers)
    axes = next((rope.sections for rope in ropes if rope is not None and rope.sections), ())
    if axes:
        section = text.get("rope_parameters") or text.get("rope_scaling")
        if section is None:
            section = text["rope_scaling"] = {"rope_type": "default"}
        section.setdefault("mrope_section", list(axes))


def _shrink(section: MutableMapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Shrink a section and those inside it. Where every query head has a key head of its own, it keeps it."""
    alike = [pair for pair in _HEADS if section.get(pair[0]) == section.get(pair[1]) is not None]
    for key, value in section.items():
        if isinstance(value, dict) and key not in (*_PACKING, *_TOWERS):
            _shrink(value, sizes)
        elif key in sizes:
            section[key] = _smaller(value, sizes[key])
    for queries, keys in alike:
        section[keys] = section[queries]


def _shrink_groups(section: Any) -> None:
    if isinstance(section, dict):
        _shrink(section, _PACKED_GROUP)
        for part in section.values():
            _shrink_groups(part)


def _smaller(value: Any, size: int) -> Any:
    if isinstance(value, list):
        return [_smaller(item, size) for item in value]
    return size if isinstance(value, int) and not isinstance(value, bool) and value > size else value


def _rotary_width(text: Mapping[str, Any]) -> int:
    """The head's channels that a rotary share is taken of."""
    for key in ("qk_rope_head_dim", "head_dim", "attention_head_dim"):
        if text.get(key):
            return int(text[key])
    return int(text.get("hidden_size") or 1) // int(text.get("num_attention_heads") or 1)


def _shrink_rotary_lists(section: MutableMapping[str, Any], ratio: float) -> None:
    """Lists over pairs of channels, as long as the pairs that are left: pairs for each axis, and their factors."""
    for key, value in section.items():
        if isinstance(value, dict) and key not in (*_PACKING, *_TOWERS):
            _shrink_rotary_lists(value, ratio)
        elif key == "mrope_section":
            section[key] = _share_out(value, round(sum(value) * ratio))
        elif key in ("short_factor", "long_factor"):
            section[key] = value[: round(len(value) * ratio)]


def _shrink_trained_lengths(section: MutableMapping[str, Any], ratio: float) -> None:
    for key, value in section.items():
        if isinstance(value, dict):
            _shrink_trained_lengths(value, ratio)
        elif key in TRAINED_LENGTHS and value is not None:
            section[key] = max(1, round(value * ratio))


def _share_out(parts: list[int], total: int) -> list[int]:
    """Whole numbers in about the same proportion with another sum."""
    ends = [round(end * total / sum(parts)) for end in accumulate(parts)]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _shrink_tower(tower: dict[str, Any]) -> None:
    """Lists of blocks that differ from the others name as many of the first, so that one is not among them."""
    depths = [tower[key] for key in ("depth", "num_hidden_layers") if isinstance(tower.get(key), int)]
    _shrink(tower, TOWER_SIZES)
    for depth in depths:
        _cut_lists(tower, depth, min(depth, TOWER_SIZES["depth"]))
    for key in _BLOCK_LISTS:
        if tower.get(key):
            tower[key] = list(range(min(len(tower[key]), TOWER_SIZES["depth"] - 1)))


_BLOCK_LISTS = ("deepstack_visual_indexes", "fullatt_block_indexes", "intermediate_layers_indices")


def _keep_first_layers(text: dict[str, Any], profile: ArchitectureProfile, count: int | None) -> None:
    """Cut a decoder, and each list over its layers, behind `count`, else behind the first that completes all kinds."""
    kinds = layer_kinds(profile)
    if count is None:
        seen = [len(set(kinds[:number])) for number in range(1, len(kinds) + 1)]
        count = max(seen.index(seen[-1]) + 1, min(FEWEST_LAYERS, len(kinds)))
    _cut_lists(text, len(kinds), count)
    if "num_hidden_layers" in text:
        text["num_hidden_layers"] = count


def _cut_lists(section: MutableMapping[str, Any], layers: int, count: int) -> None:
    """Entries behind those of the layers are of layers that predict further tokens, and stay."""
    for key, value in section.items():
        if isinstance(value, dict) and value and all(layer.isdigit() for layer in value):
            section[key] = {layer: own for layer, own in value.items() if int(layer) < count}
        elif isinstance(value, dict) and key not in (*_PACKING, *_TOWERS):
            _cut_lists(value, layers, count)
        elif isinstance(value, list) and layers <= len(value) <= layers + _MOST_PREDICTORS:
            section[key] = value[:count] + value[layers:]
        elif isinstance(value, str) and key in _PATTERNS:
            section[key] = value[:count]


_MOST_PREDICTORS = 3
_PATTERNS = ("hybrid_override_pattern",)
"""Words with a letter for each layer."""


def layer_kinds(profile: ArchitectureProfile) -> list[Any]:
    """What kind of layer each is: what it is made of, without its sizes."""
    return [_structure(layer) for layer in profile.layers]


def _structure(spec: Any) -> Any:
    """What kind of thing a spec is, without its sizes: types, words, flags, and which parts are there."""
    if is_dataclass(spec):
        return (type(spec).__name__, *(_structure(getattr(spec, f.name)) for f in fields(spec) if f.name != "index"))
    if isinstance(spec, tuple):
        return tuple(map(_structure, spec))
    return spec if spec is None or isinstance(spec, bool | str) else type(spec).__name__
