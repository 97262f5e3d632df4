"""Mixers with a state of fixed size as configs spell them: one reader per mixer and dialect, called once per layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.mixers_linear import GatedDeltaNet, LightningAttention, Mamba, Mamba2, ShortConvolution
from day0.profile.positions import RopeSpec
from day0.profile.profile import GroupedQueryAttention


def read_unrotated_attention(
    reader: ConfigReader, *, kv_heads: int | None = None, head_dim: int | None = None, bias: bool | None = None
) -> GroupedQueryAttention:
    """Softmax attention without positions, which hybrids leave to their other layers.

    The arguments are what a silent config means: as many key/value heads as heads, heads that share out the hidden
    size. `bias` None means that the family has no bias and no key for one.
    """
    heads = reader.integer("num_attention_heads")
    # An explicit null means as many as heads, whatever the family's default is.
    silent = "num_key_value_heads" not in reader.values
    shared = reader.integer("num_key_value_heads", (kv_heads if silent else None) or heads)
    if heads % shared:
        raise InputError(
            f"{heads} attention heads cannot share {shared} key/value heads", where=reader.where("num_key_value_heads")
        )
    if head_dim is None:
        width = reader.integer("hidden_size") // heads
        if not width:
            raise InputError(
                f"{heads} heads are more than there are channels", where=reader.where("num_attention_heads")
            )
    else:
        # Nemotron-H called it attention_head_dim first.
        key = "attention_head_dim" if reader.has("attention_head_dim") else "head_dim"
        width = reader.integer(key, head_dim)
    biased = reader.flag("attention_bias", bias) if bias is not None else False
    return GroupedQueryAttention(heads, shared, width, rope=None, scale=width**-0.5, qkv_bias=biased, o_bias=biased)


def read_gated_delta_net(
    reader: ConfigReader, *, defaults: tuple[int, int, int, int], norm_eps: float, negative: bool = False
) -> GatedDeltaNet:
    """`defaults` are key heads, value heads, and the channels of each where the config is silent."""
    keys = reader.integer("linear_num_key_heads", defaults[0])
    values = reader.integer("linear_num_value_heads", defaults[1])
    if values % keys:
        raise InputError(
            f"{values} value heads cannot share {keys} key heads", where=reader.where("linear_num_value_heads")
        )
    return GatedDeltaNet(
        num_key_heads=keys,
        num_value_heads=values,
        key_head_dim=reader.integer("linear_key_head_dim", defaults[2]),
        value_head_dim=reader.integer("linear_value_head_dim", defaults[3]),
        conv_kernel=reader.integer("linear_conv_kernel_dim", 4, minimum=2),
        norm_eps=norm_eps,
        negative_eigenvalues=negative,
    )


def read_mamba(reader: ConfigReader) -> Mamba:
    """Mamba as Jamba spells it; a step rank of "auto" is a sixteenth of the hidden size, rounded up."""
    hidden = reader.integer("hidden_size")
    automatic = math.ceil(hidden / 16)
    said = reader.values.get("mamba_dt_rank", "auto")
    rank = automatic if reader.has("mamba_dt_rank") and said == "auto" else reader.integer("mamba_dt_rank", automatic)
    return Mamba(
        width=reader.integer("mamba_expand", 2) * hidden,
        state_size=reader.integer("mamba_d_state", 16),
        step_rank=rank,
        conv_kernel=reader.integer("mamba_d_conv", 4, minimum=2),
        conv_bias=reader.flag("mamba_conv_bias", True),
        proj_bias=reader.flag("mamba_proj_bias", False),
        inner_norms=True,
        norm_eps=reader.number("rms_norm_eps", 1e-6),
    )


@dataclass(frozen=True, slots=True)
class Mamba2Keys:
    """How a family spells the parts of Mamba-2, each with what a silent config means."""

    num_heads: str
    head_dim: str
    num_groups: str
    state_size: str
    conv_kernel: str
    conv_bias: str
    proj_bias: str
    norm_eps: str
    defaults: Mapping[str, Any]


BAMBA_KEYS = Mamba2Keys(
    num_heads="mamba_n_heads",
    head_dim="mamba_d_head",
    num_groups="mamba_n_groups",
    state_size="mamba_d_state",
    conv_kernel="mamba_d_conv",
    conv_bias="mamba_conv_bias",
    proj_bias="mamba_proj_bias",
    norm_eps="rms_norm_eps",
    defaults={"num_heads": 128, "num_groups": 1, "state_size": 256, "norm_eps": 1e-5},
)
NEMOTRON_H_KEYS = Mamba2Keys(
    num_heads="mamba_num_heads",
    head_dim="mamba_head_dim",
    num_groups="n_groups",
    state_size="ssm_state_size",
    conv_kernel="conv_kernel",
    conv_bias="use_conv_bias",
    proj_bias="use_bias",
    norm_eps="layer_norm_epsilon",
    defaults={"num_heads": 128, "head_dim": 64, "num_groups": 8, "state_size": 128, "norm_eps": 1e-5},
)


def read_mamba2(reader: ConfigReader, keys: Mamba2Keys, *, width: int | None = None) -> Mamba2:
    """Mamba-2; a head size of "auto" shares out `width` among the heads.

    Raises InputError where heads do not make up `width`, or groups do not divide the heads.
    """
    defaults = keys.defaults
    heads = reader.integer(keys.num_heads, defaults["num_heads"])
    groups = reader.integer(keys.num_groups, defaults["num_groups"])
    if heads % groups:
        raise InputError(f"{heads} heads do not divide into {groups} groups", where=reader.where(keys.num_groups))
    automatic = width // heads if width is not None else defaults["head_dim"]
    auto = reader.has(keys.head_dim) and reader.values[keys.head_dim] == "auto"
    head_dim = automatic if auto else reader.integer(keys.head_dim, automatic)
    if width is not None and heads * head_dim != width:
        raise InputError(
            f"{heads} heads of {head_dim} channels do not make up {width}", where=reader.where(keys.head_dim)
        )
    return Mamba2(
        num_heads=heads,
        head_dim=head_dim,
        num_groups=groups,
        state_size=reader.integer(keys.state_size, defaults["state_size"]),
        conv_kernel=reader.integer(keys.conv_kernel, 4, minimum=2),
        conv_bias=reader.flag(keys.conv_bias, True),
        proj_bias=reader.flag(keys.proj_bias, False),
        norm_eps=reader.number(keys.norm_eps, defaults["norm_eps"]),
        step_limit=_read_step_limit(reader),
    )


def _read_step_limit(reader: ConfigReader) -> tuple[float, float | None]:
    """`time_step_limit` as (least, most); infinity, or a number that stands for it, is no bound."""
    if not reader.has("time_step_limit"):
        return 0.0, None
    value = reader.values["time_step_limit"]
    if isinstance(value, list):
        # JSON has no infinity; transformers 5 writes it as an object.
        value = [math.inf if entry == {"__float__": "Infinity"} else entry for entry in value]
    numbers = isinstance(value, list | tuple) and all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in value
    )
    if not numbers or len(value) != 2 or value[0] > value[1]:
        raise InputError(
            f"must be two numbers, the least first, got {str(value)[:60]}", where=reader.where("time_step_limit")
        )
    return float(value[0]), float(value[1]) if value[1] < 1e300 else None


def read_short_convolution(reader: ConfigReader) -> ShortConvolution:
    return ShortConvolution(
        width=reader.integer("hidden_size"),
        conv_kernel=reader.integer("conv_L_cache", 3, minimum=2),
        bias=reader.flag("conv_bias", False),
    )


def read_minimax_lightning(reader: ConfigReader) -> LightningAttention:
    """MiniMax-M1: silu on q, k and v, no positions, one norm over all heads."""
    heads = reader.integer("num_attention_heads")
    return LightningAttention(
        num_heads=heads,
        head_dim=reader.integer("head_dim", reader.integer("hidden_size") // heads),
        norm_groups=1,
        # The norm over the heads takes no value from the config in the publisher's code.
        norm_eps=1e-6,
        qkv_activation="silu",
    )


def read_bailing_lightning(reader: ConfigReader, rope: RopeSpec) -> LightningAttention:
    """Ling-2.5 line: norm and rotation per head instead of silu, the output normalised in groups."""
    heads = reader.integer("num_attention_heads")
    head_dim = reader.integer("head_dim", reader.integer("hidden_size") // heads)
    # Linear layers have as many key/value heads as heads, whatever num_key_value_heads says.
    linear_heads = reader.integer("num_kv_heads_for_linear_attn", heads)
    groups = reader.integer("group_norm_size", 1)
    if linear_heads != heads or heads % groups:
        key = "group_norm_size" if heads % groups else "num_kv_heads_for_linear_attn"
        raise InputError(f"does not fit {heads} heads", where=reader.where(key))
    return LightningAttention(
        num_heads=heads,
        head_dim=head_dim,
        norm_groups=groups,
        norm_eps=reader.number("rms_norm_eps", 1e-6),
        qkv_activation="silu" if reader.flag("linear_silu", False) else None,
        qk_norm=reader.flag("use_qk_norm", True),
        rope=rope,
        qkv_bias=reader.flag("use_qkv_bias", False),
        o_bias=reader.flag("use_bias", False),
    )
