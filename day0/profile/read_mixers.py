"""Token mixers as configs spell them: one reader per mixer, called once per layer."""

from __future__ import annotations

from collections.abc import Sequence

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import GroupedQueryAttention, KimiDeltaAttention, LatentAttention, Mixer
from day0.profile.read_positions import read_rope

LATENT_NORM_EPS = 1e-6
"""Epsilon of the norms on MLA's low-rank latents: the reference code of DeepSeek and Kimi passes no config value."""


def read_gqa(
    reader: ConfigReader,
    index: int,
    *,
    qk_norm: bool = False,
    theta: float = 10000.0,
    head_dim: int | None = None,
    bias_default: bool | None = False,
    o_bias_follows: bool = True,
) -> GroupedQueryAttention:
    """Grouped-query attention. `bias_default` None means that the family has no bias and no key for it.

    `head_dim` is the family's default width where it is not hidden_size / num_attention_heads.
    """
    hidden = reader.integer("hidden_size")
    heads = reader.integer("num_attention_heads")
    kv_heads = reader.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise InputError(
            f"{heads} attention heads cannot share {kv_heads} key/value heads",
            where=reader.where("num_key_value_heads"),
        )
    width = reader.integer("head_dim", head_dim or hidden // heads)
    bias = reader.flag("attention_bias", bias_default) if bias_default is not None else False
    return GroupedQueryAttention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=width,
        rope=read_rope(reader, width, theta=theta),
        scale=width**-0.5,
        qk_norm=qk_norm,
        qkv_bias=bias,
        o_bias=bias and o_bias_follows,
        window=_read_window(reader, index),
    )


def _read_window(reader: ConfigReader, index: int) -> int | None:
    """The sliding window of layer `index`, from `layer_types` where given, else from the Qwen/Mistral switches."""
    window = reader.optional_integer("sliding_window")
    if reader.has("layer_types"):
        kinds = reader.words("layer_types")
        layers = reader.integer("num_hidden_layers")
        if len(kinds) != layers:
            raise InputError(f"{len(kinds)} entries for {layers} layers", where=reader.where("layer_types"))
        reader.ignore("use_sliding_window", "max_window_layers")
        known = {"full_attention": None, "sliding_attention": window}
        if kinds[index] not in known:
            raise InputError(f"layer kind {kinds[index]!r} is not known here", where=reader.where("layer_types"))
        if kinds[index] == "sliding_attention" and window is None:
            raise InputError("layers slide but no window is given", where=reader.where("sliding_window"))
        return known[kinds[index]]
    if "use_sliding_window" not in reader.values:
        return window
    slides = reader.flag("use_sliding_window", False)
    first = reader.integer("max_window_layers", 0, minimum=0)
    return window if slides and index >= first else None


def read_mla(reader: ConfigReader, *, nope: bool, output_gate: bool) -> LatentAttention:
    """Multi-head latent attention; `nope` leaves the shared key slice unrotated."""
    heads = reader.integer("num_attention_heads")
    kv_heads = reader.integer("num_key_value_heads", heads)
    if kv_heads != heads:
        raise InputError(
            f"latent attention has as many key/value heads as heads ({heads}), got {kv_heads}",
            where=reader.where("num_key_value_heads"),
        )
    nope_dim, rope_dim = reader.integer("qk_nope_head_dim"), reader.integer("qk_rope_head_dim")
    return LatentAttention(
        num_heads=heads,
        q_lora_rank=reader.optional_integer("q_lora_rank"),
        kv_lora_rank=reader.integer("kv_lora_rank"),
        qk_nope_head_dim=nope_dim,
        qk_rope_head_dim=rope_dim,
        v_head_dim=reader.integer("v_head_dim"),
        rope=None if nope else read_rope(reader, rope_dim, "interleaved"),
        scale=(nope_dim + rope_dim) ** -0.5,
        latent_norm_eps=LATENT_NORM_EPS,
        output_gate=output_gate,
    )


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
