"""MiMo V2 Flash: windows with sinks and their own heads, values narrower than keys, experts chosen by sigmoid."""

from __future__ import annotations

from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, QWEN_MOE_NAMES
from day0.profile.families.family import Family
from day0.profile.profile import GroupedQueryAttention
from day0.profile.read_experts import ExpertLine, read_expert_line, routed_after, routed_by_marks, routed_by_words
from day0.profile.read_gqa_variants import LAYER_KINDS, LayerKind, check_groups, read_window
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.read_positions import read_rope

_THETAS: dict[LayerKind, float] = {"full_attention": 5e6, "sliding_attention": 1e4}
_FRACTION = 0.334


def _kind(reader: ConfigReader, index: int) -> LayerKind:
    """`hybrid_layer_pattern` has 1 for layers that slide; else `layer_types`; else first and every sixth are full."""
    if reader.has("hybrid_layer_pattern"):
        return "sliding_attention" if reader.integers("hybrid_layer_pattern")[index] else "full_attention"
    full = index == 0 or (index + 1) % 6 == 0
    return read_layer_kind(reader, index, LAYER_KINDS, lambda layer: "full_attention" if full else "sliding_attention")


def _attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    """Sliding layers spell their sizes with `swa_` before; without those they have twice the key/value heads."""
    kind = _kind(reader, index)
    slides, swa = kind == "sliding_attention", "swa_" if kind == "sliding_attention" else ""
    heads = reader.integer("num_attention_heads", 64)
    kv_heads = reader.integer("num_key_value_heads", 4)
    width, value = reader.integer("head_dim", 192), reader.integer("v_head_dim", 128)
    if slides:
        heads = reader.integer("swa_num_attention_heads", heads)
        kv_heads = reader.integer("swa_num_key_value_heads", 2 * kv_heads)
        width, value = reader.integer("swa_head_dim", width), reader.integer("swa_v_head_dim", value)
    check_groups(reader, heads, kv_heads, f"{swa}num_key_value_heads")
    rope = read_rope(reader, width, theta=_THETAS[kind], kind=kind, theta_key=f"{swa}rope_theta", fraction=_FRACTION)
    return GroupedQueryAttention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=width,
        v_head_dim=value,
        rope=rope,
        scale=width**-0.5,
        qkv_bias=reader.flag("attention_bias", False),
        window=read_window(reader, 128) if slides else None,
        sinks=_sinks(reader, slides),
        value_scale=reader.optional_number("attention_value_scale") or 1.0,
    )


def _sinks(reader: ConfigReader, slides: bool) -> bool:
    of_windows, of_full = (
        reader.flag("add_swa_attention_sink_bias", True),
        reader.flag("add_full_attention_sink_bias", False),
    )
    return of_windows if slides else of_full


def _routed(reader: ConfigReader, index: int) -> bool:
    if isinstance(reader.values.get("moe_layer_freq"), list):
        return routed_by_marks(reader, index)
    return routed_by_words(routed_after(1))(reader, index)


MIMO_V2 = Family(
    name="mimo_v2_flash",
    model_types=("mimo_v2_flash",),
    architectures=("MiMoV2FlashForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=partial(
        read_expert_line,
        line=ExpertLine(
            shared="n_shared_experts",
            routed=_routed,
            scoring="sigmoid",
            renormalize_default=True,
            correction_bias=True,
            grouped=True,
            scaling="routed_scaling_factor",
        ),
    ),
    norm_eps_key="layernorm_epsilon",
    norm_eps_default=1e-5,
    names={
        **LLAMA_NAMES,
        **QWEN_MOE_NAMES,
        "layers.{l}.mixer.sinks": "model.layers.{l}.self_attn.attention_sink_bias",
    },
    # Other words for sliding_window; the architecture fixes how experts are scored and chosen.
    inert=("sliding_window_size", "attention_chunk_size", "scoring_func", "topk_method"),
)
