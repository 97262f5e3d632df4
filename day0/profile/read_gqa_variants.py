"""Grouped-query attention of many lines of models, by a record of what each line's configs may leave unsaid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import GroupedQueryAttention, QkNorm, RopeLayout
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.read_positions import read_rope

LayerKind = Literal["full_attention", "sliding_attention", "chunked_attention"]
KindRule = Callable[[ConfigReader, int], LayerKind]

LAYER_KINDS: dict[str, LayerKind] = {
    "full_attention": "full_attention",
    "sliding_attention": "sliding_attention",
    "chunked_attention": "chunked_attention",
}


def always_full(reader: ConfigReader, index: int) -> LayerKind:
    """The line has no windows: a key for one has no effect and is reported as unused."""
    del reader, index
    return "full_attention"


def rotated_everywhere(reader: ConfigReader, index: int) -> bool:
    del reader, index
    return True


@dataclass(frozen=True, slots=True)
class GqaLine:
    """What a line of models has where its configs are silent, and which options its code heeds.

    `kv_heads` and `head_dim` None follow from the other sizes. `bias_key` is the switch of the biases of q, k and v,
    None where there is none and `bias` holds; `o_bias` says that it switches o's too. `kind` tells a layer's kind,
    `window` how far sliding layers see by default, `rotated` whether a layer is rotated at all. `ropes_by_kind` says
    that kinds of layer may have rotary parameters of their own.
    """

    kv_heads: int | None = None
    head_dim: int | None = None
    theta: float = 10000.0
    layout: RopeLayout = "neox"
    fraction: float = 1.0
    sections: tuple[int, ...] = ()
    bias_key: str | None = "attention_bias"
    bias: bool = False
    o_bias: bool = True
    qk_norm: QkNorm | None = None
    norm_after_rope: bool = False
    kind: KindRule = always_full
    window: int | None = None
    rotated: Callable[[ConfigReader, int], bool] = rotated_everywhere
    ropes_by_kind: bool = False


def read_gqa_line(reader: ConfigReader, index: int, *, line: GqaLine) -> GroupedQueryAttention:
    """The attention of layer `index` in a model of this line."""
    hidden, heads = reader.integer("hidden_size"), reader.integer("num_attention_heads")
    # An explicit null means as many as heads, whatever the family's default is.
    silent = "num_key_value_heads" not in reader.values
    kv_heads = reader.integer("num_key_value_heads", (line.kv_heads if silent else None) or heads)
    check_groups(reader, heads, kv_heads)
    width = reader.integer("head_dim", line.head_dim or hidden // heads)
    bias = reader.flag(line.bias_key, line.bias) if line.bias_key is not None else line.bias
    kind = line.kind(reader, index)
    rope = None
    if line.rotated(reader, index):
        rope = read_rope(
            reader,
            width,
            line.layout,
            line.theta,
            kind=kind if line.ropes_by_kind else None,
            fraction=line.fraction,
            sections=line.sections,
        )
    return GroupedQueryAttention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=width,
        rope=rope,
        scale=width**-0.5,
        qk_norm=line.qk_norm,
        norm_after_rope=line.norm_after_rope,
        qkv_bias=bias,
        o_bias=bias and line.o_bias,
        window=read_window(reader, line.window) if kind == "sliding_attention" else None,
    )


def check_groups(reader: ConfigReader, heads: int, kv_heads: int, key: str = "num_key_value_heads") -> None:
    if heads % kv_heads:
        raise InputError(f"{heads} attention heads cannot share {kv_heads} key/value heads", where=reader.where(key))


def read_window(reader: ConfigReader, default: int | None) -> int:
    """`sliding_window`: how many tokens a sliding layer sees, the current one among them."""
    return reader.integer("sliding_window") if default is None else reader.integer("sliding_window", default)


def by_period(period: int | Callable[[ConfigReader], int], *, full_at: int = -1) -> KindRule:
    """The kind by `layer_types`, else full attention in one layer of every `period` (the last of them, or number
    `full_at` counted from 0) and windows in the others. A period of 0 is full attention everywhere."""

    def rule(reader: ConfigReader, index: int) -> LayerKind:
        reader.ignore("sliding_window")  # read where a layer slides; without such a layer it has no effect

        def default(layer: int) -> LayerKind:
            every = period if isinstance(period, int) else period(reader)
            slides = every > 0 and layer % every != full_at % every
            return "sliding_attention" if slides else "full_attention"

        return read_layer_kind(reader, index, LAYER_KINDS, default)

    return rule


def window_everywhere(reader: ConfigReader, index: int) -> LayerKind:
    """`sliding_window` holds for every layer, unless it is null (Mistral); `layer_types` counts where there is one."""
    slides = reader.has("sliding_window") or "sliding_window" not in reader.values
    return read_layer_kind(
        reader, index, LAYER_KINDS, lambda layer: "sliding_attention" if slides else "full_attention"
    )


def window_where_set(reader: ConfigReader, index: int) -> LayerKind:
    """The same for lines whose default is no window (Phi)."""
    slides = reader.has("sliding_window")
    return read_layer_kind(
        reader, index, LAYER_KINDS, lambda layer: "sliding_attention" if slides else "full_attention"
    )


def window_from_layer(switch: str | None, first: int) -> KindRule:
    """By `layer_types`, else windows from layer `max_window_layers` on (by default `first`).

    `switch` is the flag that turns windows on at all, None where `sliding_window` being set does.
    """

    def rule(reader: ConfigReader, index: int) -> LayerKind:
        reader.ignore("sliding_window", "max_window_layers")
        slides = reader.flag(switch, False) if switch is not None else reader.has("sliding_window")

        def default(layer: int) -> LayerKind:
            within = not slides or layer < reader.integer("max_window_layers", first, minimum=0)
            return "full_attention" if within else "sliding_attention"

        kind = read_layer_kind(reader, index, LAYER_KINDS, default)
        if kind == "sliding_attention" and not slides:
            raise InputError(f"layers slide but {switch or 'sliding_window'} is off", where=reader.where("layer_types"))
        return kind

    return rule


def rotated_by_list(reader: ConfigReader, index: int) -> bool:
    """`no_rope_layers` holds 1 for layers that are rotated, despite its name; else every
    `no_rope_layer_interval`-th layer is not (SmolLM3, Llama 4)."""
    reader.ignore("no_rope_layer_interval")
    if reader.has("no_rope_layers") and reader.values["no_rope_layers"]:
        marks, layers = reader.integers("no_rope_layers"), reader.integer("num_hidden_layers")
        if len(marks) < layers:
            raise InputError(f"{len(marks)} entries for {layers} layers", where=reader.where("no_rope_layers"))
        return marks[index] != 0
    return (index + 1) % reader.integer("no_rope_layer_interval", 4) != 0


def rotated_where_sliding(kind: KindRule) -> Callable[[ConfigReader, int], bool]:
    """Full attention among windows goes without positions (Cohere 2, EXAONE 4)."""

    def rule(reader: ConfigReader, index: int) -> bool:
        windowed = reader.has("sliding_window") or "sliding_window" not in reader.values
        return kind(reader, index) == "sliding_attention" or not windowed

    return rule


def layer_value(reader: ConfigReader, key: str, index: int, default: int, *, minimum: int = 1) -> int:
    """A number under `key` that may be a list with one entry for each layer."""
    value = reader.values.get(key)
    if not isinstance(value, list):
        return reader.integer(key, default, minimum=minimum)
    entries = reader.integers(key)
    if index >= len(entries) or entries[index] < minimum:
        raise InputError(f"has no number from {minimum} up for layer {index}", where=reader.where(key))
    return entries[index]
