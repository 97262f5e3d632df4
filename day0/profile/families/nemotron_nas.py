"""Nemotron NAS (Puzzle): Llama layers that a search thinned out, each described by a block of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES
from day0.profile.families.family import Family
from day0.profile.mixers_linear import LinearMap
from day0.profile.profile import (
    DenseFeedForward,
    FeedForward,
    GroupedQueryAttention,
    Mixer,
    NoFeedForward,
    NoMixer,
)
from day0.profile.read_feed_forward import read_activation
from day0.profile.read_positions import read_rope

_MULTIPLE = 256
_ATTENTION_KEYS = {"no_op", "replace_with_linear", "n_heads_in_group", "window_length"}
_FFN_KEYS = {"no_op", "replace_with_linear", "ffn_mult", "intermediate_size"}
# What says how a window with kept first tokens is filled; without such a window it has no effect.
_WITHOUT_EFFECT = {"unshifted_sink", "use_prefill_window_in_sink_attention"}


def _block(reader: ConfigReader, index: int, part: str, known: set[str]) -> ConfigReader:
    """One part of a layer's block. A key that nothing here explains must be null or false."""
    blocks, layers = reader.values.get("block_configs"), reader.integer("num_hidden_layers")
    if not reader.has("block_configs") or not isinstance(blocks, list) or len(blocks) != layers:
        raise InputError(f"must list a block for each of {layers} layers", where=reader.where("block_configs"))
    where = f"block_configs[{index}].{part}"
    values: Any = blocks[index].get(part) if isinstance(blocks[index], Mapping) else None
    if not isinstance(values, Mapping):
        raise InputError("must be an object", where=reader.where(where))
    for key in values.keys() - known - _WITHOUT_EFFECT:
        if values[key] not in (None, False):
            raise InputError(f"{values[key]!r} is not known here", where=reader.where(f"{where}.{key}"))
    return ConfigReader(values, reader.file_name, parent=reader, key=where)


def _read_mixer(reader: ConfigReader, index: int) -> Mixer:
    block = _block(reader, index, "attention", _ATTENTION_KEYS)
    bias = reader.flag("attention_bias", False)
    hidden, heads = reader.integer("hidden_size"), reader.integer("num_attention_heads")
    width = reader.integer("head_dim", hidden // heads) if reader.has("head_dim") else hidden // heads
    rope = read_rope(reader, width)
    if block.flag("no_op", False):
        return NoMixer()
    if block.flag("replace_with_linear", False):
        return LinearMap(bias)
    group = block.integer("n_heads_in_group")
    if heads % group:
        raise InputError(f"does not divide {heads} heads", where=block.where("n_heads_in_group"))
    window = block.optional_integer("window_length")
    return GroupedQueryAttention(
        heads, heads // group, width, rope, scale=width**-0.5, qkv_bias=bias, o_bias=bias, window=window
    )


def _read_feed_forward(reader: ConfigReader, index: int) -> FeedForward:
    block = _block(reader, index, "ffn", _FFN_KEYS)
    bias, activation = reader.flag("mlp_bias", False), read_activation(reader)
    if block.flag("no_op", False):
        return NoFeedForward()
    if block.flag("replace_with_linear", False):
        return LinearMap(bias)
    return DenseFeedForward(_read_width(block, reader.integer("hidden_size")), activation, bias)


def _read_width(block: ConfigReader, hidden: int) -> int:
    """The inner width, or two thirds of `ffn_mult` times the hidden size, rounded up to a multiple of 256."""
    if block.has("intermediate_size"):
        return block.integer("intermediate_size")
    width = int(2 * block.number("ffn_mult") * hidden / 3)
    if width < 1:
        raise InputError("leaves no inner channel", where=block.where("ffn_mult"))
    return -(-width // _MULTIPLE) * _MULTIPLE


NEMOTRON_NAS = Family(
    name="nemotron-nas",
    model_types=("nemotron-nas",),
    architectures=("DeciLMForCausalLM",),
    read_mixer=_read_mixer,
    read_feed_forward=_read_feed_forward,
    names={
        **LLAMA_NAMES,
        **{
            f"layers.{{l}}.{branch}.linear.{leaf}": f"model.layers.{{l}}.{place}.{leaf}"
            for branch, place in (("mixer", "self_attn.linear_attn"), ("ffn", "mlp.linear_mlp"))
            for leaf in ("weight", "bias")
        },
    },
    # The blocks say these for each layer.
    inert=("num_key_value_heads", "intermediate_size"),
)
