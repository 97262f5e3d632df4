"""Token mixers as configs spell them: one reader per mixer, called once per layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import GroupedQueryAttention, KimiDeltaAttention, LatentAttention, Mixer, OutputGate, QkNorm
from day0.profile.read_latent import LatentDefaults, read_latent
from day0.profile.read_positions import read_rope

WindowKeys = Literal["none", "plain", "switched", "layered"]


@dataclass(frozen=True, slots=True)
class GqaDefaults:
    """What a family's grouped-query attention is where its config is silent, as transformers' config classes have it.

    `kv_heads` and `head_dim` None follow from the other sizes. `bias` False means that the key `attention_bias` is
    read, None that the family has no bias and no such key. `window` says which keys switch the sliding window.
    """

    kv_heads: int | None = None
    head_dim: int | None = None
    theta: float = 10000.0
    bias: bool | None = False
    qk_norm: QkNorm | None = None
    window: WindowKeys = "none"


def read_gqa(reader: ConfigReader, index: int, *, defaults: GqaDefaults) -> GroupedQueryAttention:
    """Grouped-query attention of layer `index`."""
    hidden = reader.integer("hidden_size")
    heads = reader.integer("num_attention_heads")
    # An explicit null means as many as heads, whatever the family's default is.
    silent = "num_key_value_heads" not in reader.values
    kv_heads = reader.integer("num_key_value_heads", (defaults.kv_heads if silent else None) or heads)
    if heads % kv_heads:
        raise InputError(
            f"{heads} attention heads cannot share {kv_heads} key/value heads",
            where=reader.where("num_key_value_heads"),
        )
    width = reader.integer("head_dim", defaults.head_dim or hidden // heads)
    bias = reader.flag("attention_bias", defaults.bias) if defaults.bias is not None else False
    return GroupedQueryAttention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=width,
        rope=read_rope(reader, width, theta=defaults.theta),
        scale=width**-0.5,
        qk_norm=defaults.qk_norm,
        qkv_bias=bias,
        o_bias=bias,
        window=_WINDOWS[defaults.window](reader, index),
    )


def _no_window(reader: ConfigReader, index: int) -> None:
    """The family has no sliding window: a key for one has no effect and is reported as unused."""
    del reader, index


def _plain_window(reader: ConfigReader, index: int) -> int | None:
    """`sliding_window` holds for every layer (Mixtral)."""
    del index
    return reader.optional_integer("sliding_window")


def _switched_window(reader: ConfigReader, index: int) -> int | None:
    """The same behind the switch `use_sliding_window` (Qwen3-MoE, which does not heed max_window_layers)."""
    reader.ignore("sliding_window", "max_window_layers")
    del index
    return reader.integer("sliding_window", 4096) if reader.flag("use_sliding_window", False) else None


def _layered_window(reader: ConfigReader, index: int) -> int | None:
    """Behind that switch and by layer: as `layer_types` says, else from layer `max_window_layers` on (Qwen3)."""
    reader.ignore("sliding_window", "max_window_layers")
    slides = reader.flag("use_sliding_window", False)
    if not reader.has("layer_types"):
        if not slides:
            return None
        window = reader.integer("sliding_window", 4096)
        return window if index >= reader.integer("max_window_layers", 28, minimum=0) else None
    kinds, layers = reader.words("layer_types"), reader.integer("num_hidden_layers")
    if len(kinds) != layers:
        raise InputError(f"{len(kinds)} entries for {layers} layers", where=reader.where("layer_types"))
    if kinds[index] not in ("full_attention", "sliding_attention"):
        raise InputError(f"layer kind {kinds[index]!r} is not known here", where=reader.where("layer_types"))
    if kinds[index] == "full_attention":
        return None
    if not slides:
        raise InputError("layers slide but use_sliding_window is off", where=reader.where("layer_types"))
    return reader.integer("sliding_window", 4096)


_WINDOWS: Mapping[WindowKeys, Callable[[ConfigReader, int], int | None]] = {
    "none": _no_window,
    "plain": _plain_window,
    "switched": _switched_window,
    "layered": _layered_window,
}


def read_mla(reader: ConfigReader, *, nope: bool, output_gate: bool) -> LatentAttention:
    """Kimi's latent attention; `nope` leaves the shared key slice unrotated."""
    gate = OutputGate() if output_gate else None
    return read_latent(reader, LatentDefaults(nope=nope, output_gate=gate, bias=None))


def read_kda(section: ConfigReader, norm_eps: float) -> KimiDeltaAttention:
    """Kimi Delta Attention from the `linear_attn_config` section; its heads are independent of the attention's."""
    return KimiDeltaAttention(
        num_heads=section.integer("num_heads"),
        head_dim=section.integer("head_dim"),
        conv_kernel=section.integer("short_conv_kernel_size", minimum=2),
        gate_lower_bound=section.optional_number("gate_lower_bound"),
        full_rank_gate=section.flag("use_full_rank_gate", False),
        norm_eps=norm_eps,
    )


def read_kimi_mixer(reader: ConfigReader, index: int) -> Mixer:
    """KDA or latent attention by the two layer lists of `linear_attn_config`, which count from 1.

    Raises InputError unless the lists share out layers 1..L between them exactly.
    """
    section = reader.required_section("linear_attn_config")
    linear, full = section.integers("kda_layers"), section.integers("full_attn_layers")
    _check_partition(section, linear, full, reader.integer("num_hidden_layers"))
    if index + 1 in linear:
        return read_kda(section, reader.number("rms_norm_eps"))
    nope = reader.flag("mla_use_nope", False)
    return read_mla(reader, nope=nope, output_gate=reader.flag("mla_use_output_gate", False))


def _check_partition(section: ConfigReader, linear: Sequence[int], full: Sequence[int], layers: int) -> None:
    if sorted([*linear, *full]) == list(range(1, layers + 1)):
        return
    both = sorted(set(linear) & set(full))
    missing = sorted(set(range(1, layers + 1)) - set(linear) - set(full))
    outside = sorted(layer for layer in {*linear, *full} if not 1 <= layer <= layers)
    raise InputError(
        f"with full_attn_layers it must name each of the layers 1..{layers} once "
        f"(missing: {missing or 'none'}, in both: {both or 'none'}, outside: {outside or 'none'})",
        where=section.where("kda_layers"),
        hint="the lists count layers from 1",
    )
