"""What any config says about its decoder's layers, whoever wrote it: how many there are and of which kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config", "decoder_config")
_COUNTS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "num_decoder_layers", "decoder_layers", "depth")
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_moe_experts")
_CHOSEN = (
    *("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "moe_k", "experts_per_token"),
    *("top_k_experts", "n_activated_experts", "num_activated_experts"),
)
_KIND_LISTS = ("layer_types", "layers_block_type", "attn_type_list", "hybrid_override_pattern", "layers_block_types")
_WORDS = {
    **dict.fromkeys(("full_attention", "attention", "global_attention", "global"), "attention"),
    **dict.fromkeys(("sliding_attention", "chunked_attention", "sliding_window", "local", "swa"), "attention"),
    **dict.fromkeys(("sparse_attention", "hybrid", "1", "*"), "attention"),
    **dict.fromkeys(("linear_attention", "mamba", "mamba2", "recurrent", "kda", "gated_deltanet", "0", "M"), "linear"),
    **dict.fromkeys(("conv", "short_conv"), "conv"),
    **dict.fromkeys(("moe", "mlp", "-", "E"), "none"),
}
"""Words, numbers and letters for kinds of layers, by the one distinction that tensor names settle for sure."""
_ATTENTION_LISTS = ("full_attn_idxs", "attn_layer_indices", "full_attention_layers")
_MAX_LAYERS = 4096


@dataclass(frozen=True, slots=True)
class ConfigEvidence:
    """`kinds` has "attention", "linear", "conv", "none" or the file's own word for each layer, () where it is silent.

    `where` names the field that says so.
    """

    num_layers: int | None
    count_field: str = ""
    kinds: tuple[str, ...] = ()
    where: str = ""
    num_experts: int | None = None
    top_k: int | None = None


def config_evidence(config: Mapping[str, Any]) -> ConfigEvidence:
    """Read what can be read without knowing the family; values of another type are passed over."""
    for prefix, section in _sections(config):
        for key in _COUNTS:
            count = section.get(key)
            if isinstance(count, int) and not isinstance(count, bool) and 0 < count <= _MAX_LAYERS:
                kinds, where = _kinds(section, count)
                experts, chosen = _first_number(section, _EXPERTS), _first_number(section, _CHOSEN)
                return ConfigEvidence(count, prefix + key, kinds, prefix + where if where else "", experts, chosen)
    return ConfigEvidence(None)


def _sections(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key in _SECTIONS:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            yield from ((f"{key}.{prefix}", section) for prefix, section in _sections(inner))
    yield "", config


def _first_number(section: Mapping[str, Any], keys: Sequence[str]) -> int | None:
    found = (section.get(key) for key in keys)
    return next(
        (value for value in found if isinstance(value, int) and not isinstance(value, bool) and value > 0), None
    )


def _kinds(section: Mapping[str, Any], count: int) -> tuple[tuple[str, ...], str]:
    """The kind of each layer by the first field that lists all of them, and that field."""
    for key in _KIND_LISTS:
        listed = section.get(key)
        if isinstance(listed, str | list) and len(listed) == count:
            return tuple(_WORDS.get(str(word), str(word)) for word in listed), key
    for key in _ATTENTION_LISTS:
        listed = section.get(key)
        if isinstance(listed, list) and listed:
            return tuple("attention" if index in listed else "other" for index in range(count)), key
    interval = _first_number(section, ("full_attention_interval", "attn_layer_period"))
    if interval is not None and "full_attention_interval" in section:
        return tuple("linear" if (i + 1) % interval else "attention" for i in range(count)), "full_attention_interval"
    return (), ""
