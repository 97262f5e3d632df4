"""Hybrids of gated DeltaNet and gated attention: Qwen3-Next, Qwen3.5 and 3.6, OLMo Hybrid."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import ATTENTION_LEAVES, MLP_LEAVES, under
from day0.profile.families.family import Family, no_vision
from day0.profile.families.qwen_vision import TINY_IMAGES, qwen3_tower_names, read_qwen3_5_tower
from day0.profile.profile import (
    GroupedQueryAttention,
    LayerSpec,
    Mixer,
    MultiTokenPrediction,
    OutputGate,
    PlainResidual,
)
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_hybrid_experts import read_qwen_hybrid_experts
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.read_linear import read_gated_delta_net
from day0.profile.read_mixers import GqaDefaults, read_gqa
from day0.profile.read_positions import read_rope
from day0.profile.storage import Storage

_KINDS = {"linear_attention": True, "full_attention": False}


def _is_linear(reader: ConfigReader, index: int) -> bool:
    if reader.has("layer_types"):
        reader.ignore("full_attention_interval")
    return read_layer_kind(
        reader, index, _KINDS, lambda i: bool((i + 1) % reader.integer("full_attention_interval", 4))
    )


def _read_attention(reader: ConfigReader, index: int, kv_heads: int, axes: tuple[int, ...]) -> GroupedQueryAttention:
    """Gated attention: q_proj yields each head's query and gate; a quarter of the channels is rotated."""
    defaults = GqaDefaults(kv_heads=kv_heads, head_dim=256, qk_norm="head")
    plain = read_gqa(reader, index, defaults=defaults)
    gate = OutputGate(in_query=True) if reader.flag("attn_output_gate", True) else None
    return replace(plain, output_gate=gate, rope=read_rope(reader, plain.head_dim, fraction=0.25, sections=axes))


def _read_mixer(reader: ConfigReader, index: int, *, kv_heads: int, axes: tuple[int, ...]) -> Mixer:
    if _is_linear(reader, index):
        return read_gated_delta_net(reader, defaults=(16, 32, 128, 128), norm_eps=reader.number("rms_norm_eps", 1e-6))
    return _read_attention(reader, index, kv_heads, axes)


_AXES = (11, 11, 10)
"""Channel pairs of Qwen3.5 that turn by time, height and width."""

_read_next_mixer = partial(_read_mixer, kv_heads=2, axes=())
_read_dense_mixer = partial(_read_mixer, kv_heads=4, axes=_AXES)
_read_sparse_mixer = partial(_read_mixer, kv_heads=2, axes=_AXES)
_read_next_experts = partial(read_qwen_hybrid_experts, experts=512, top_k=10, placed=True)
_read_experts = partial(read_qwen_hybrid_experts, experts=256, top_k=8, placed=False)


def _read_dense_mtp(reader: ConfigReader) -> MultiTokenPrediction | None:
    return _read_mtp(reader, sparse=False)


def _read_sparse_mtp(reader: ConfigReader) -> MultiTokenPrediction | None:
    return _read_mtp(reader, sparse=True)


def _read_mtp(reader: ConfigReader, *, sparse: bool) -> MultiTokenPrediction | None:
    """One predictor whose layers are all full attention, numbered from 0 under a name of their own."""
    count = reader.integer("mtp_num_hidden_layers", 0, minimum=0, maximum=64)
    own_tables = reader.flag("mtp_use_dedicated_embeddings", False)
    if not count:
        return None
    layers = tuple(
        LayerSpec(
            index,
            _read_attention(reader, index, 2 if sparse else 4, _AXES),
            _read_experts(reader, index) if sparse else read_dense(reader, index),
            PlainResidual(),
        )
        for index in range(count)
    )
    return MultiTokenPrediction(layers, shares_embedding=not own_tables)


_IMAGE_TOKENS = (
    "vision_start_token_id",
    "vision_end_token_id",
    "language_model_only",
)
"""Placeholders that the prompt renderer puts in, and whether a server loads the tower: nothing that decodes text."""

_TABLES = {
    "embed.weight": "embed_tokens.weight",
    "norm.weight": "norm.weight",
}
_MTP_NAMES = {
    "embed_norm": "pre_fc_norm_embedding",
    "hidden_norm": "pre_fc_norm_hidden",
    "join_proj": "fc",
    "norm": "norm",
    "embed": "embed_tokens",
    "lm_head": "lm_head",
}


def _layer_names(ours: str, theirs: str) -> dict[str, str]:
    delta = f"{theirs}.linear_attn"
    return {
        f"{ours}.mixer_norm.weight": f"{theirs}.input_layernorm.weight",
        f"{ours}.ffn_norm.weight": f"{theirs}.post_attention_layernorm.weight",
        **under(f"{ours}.mixer", f"{theirs}.self_attn", ATTENTION_LEAVES),
        **under(f"{ours}.mixer", delta, ("A_log", "dt_bias", "out_proj.weight")),
        **{
            f"{ours}.mixer.in_{name}_proj.weight": f"{delta}.in_proj_{name}.weight"
            for name in ("qkvz", "ba", "qkv", "z", "b", "a")
        },
        f"{ours}.mixer.conv.weight": f"{delta}.conv1d.weight",
        f"{ours}.mixer.o_norm.weight": f"{delta}.norm.weight",
        **under(f"{ours}.ffn", f"{theirs}.mlp", MLP_LEAVES),
        f"{ours}.ffn.router.weight": f"{theirs}.mlp.gate.weight",
        f"{ours}.ffn.shared_gate.weight": f"{theirs}.mlp.shared_expert_gate.weight",
        **under(f"{ours}.ffn.shared", f"{theirs}.mlp.shared_expert", MLP_LEAVES),
        **{
            f"{ours}.ffn.experts.{name}.weight": f"{theirs}.mlp.experts.{{expert}}.{name}_proj.weight"
            for name in ("gate", "up", "down")
        },
    }


def _names(model: str) -> dict[str, str]:
    """Checkpoint names of a decoder that stands under `model`; its predictor repeats the layers' inner names."""
    return {
        **{ours: f"{model}.{theirs}" for ours, theirs in _TABLES.items()},
        "lm_head.weight": "lm_head.weight",
        **_layer_names("layers.{l}", f"{model}.layers.{{l}}"),
        **_layer_names("mtp.layers.{l}", "mtp.layers.{l}"),
        **{f"mtp.layers.{{l}}.{ours}.weight": f"mtp.{theirs}.weight" for ours, theirs in _MTP_NAMES.items()},
        **qwen3_tower_names("model.visual"),
    }


_CONVOLUTION = {"mixer.conv": ("mixer.q_conv", "mixer.k_conv", "mixer.v_conv")}
_IN = "mixer.in_{}_proj"
# Qwen3-Next goes through its joined projections by key head: each head's q, k, v and z, then the next head's.
_NEXT_STORAGE = Storage(
    joined={
        **_CONVOLUTION,
        _IN.format("qkvz"): tuple(_IN.format(name) for name in "qkvz"),
        _IN.format("ba"): tuple(_IN.format(name) for name in "ba"),
    },
    by_turns=(_IN.format("qkvz"), _IN.format("ba")),
)
_STORAGE = Storage(joined={**_CONVOLUTION, _IN.format("qkv"): tuple(_IN.format(name) for name in "qkv")})

# The state is float32 whatever mamba_ssm_dtype tells other engines, the norm's gate is silu (which output_gate_type
# calls swish), and every layer of this line is routed or none is, whatever mlp_only_layers says.
_QWEN3_5_INERT = ("mamba_ssm_dtype", "output_gate_type", "mlp_only_layers", "model_type")

QWEN3_NEXT = Family(
    name="qwen3_next",
    model_types=("qwen3_next",),
    architectures=("Qwen3NextForCausalLM",),
    native=True,
    read_mixer=_read_next_mixer,
    read_feed_forward=_read_next_experts,
    norm_kind="rms_plus_one",
    names=_names("model"),
    storage=_NEXT_STORAGE,
    # Its releases hold a predictor that their configs do not mention.
    unread=tuple(name.replace("{expert}", "{l}") for path, name in _names("model").items() if path.startswith("mtp.")),
)

QWEN3_5 = Family(
    name="qwen3_5",
    model_types=("qwen3_5",),
    architectures=("Qwen3_5ForConditionalGeneration",),
    native=True,
    text_section="text_config",
    read_mixer=_read_dense_mixer,
    read_feed_forward=read_dense,
    read_vision=read_qwen3_5_tower,
    read_mtp=_read_dense_mtp,
    norm_kind="rms_plus_one",
    names=_names("model.language_model"),
    storage=_STORAGE,
    inert=_QWEN3_5_INERT + _IMAGE_TOKENS,
    tiny_extras=TINY_IMAGES,
)

# Text alone keeps the names it has under the tower, unless it was trained alone.
QWEN3_5_TEXT = replace(
    QWEN3_5,
    name="qwen3_5_text",
    model_types=("qwen3_5_text",),
    architectures=("Qwen3_5ForCausalLM",),
    text_section=None,
    read_vision=no_vision,
    variants=("qwen3_5_text_alone",),
    inert=_QWEN3_5_INERT,
)

QWEN3_5_MOE = replace(
    QWEN3_5,
    name="qwen3_5_moe",
    model_types=("qwen3_5_moe",),
    architectures=("Qwen3_5MoeForConditionalGeneration",),
    read_mixer=_read_sparse_mixer,
    read_feed_forward=_read_experts,
    read_mtp=_read_sparse_mtp,
    variants=("qwen3_5_moe_stacked",),
)

QWEN3_5_MOE_TEXT = replace(
    QWEN3_5_MOE,
    name="qwen3_5_moe_text",
    model_types=("qwen3_5_moe_text",),
    architectures=("Qwen3_5MoeForCausalLM",),
    text_section=None,
    read_vision=no_vision,
    variants=("qwen3_5_moe_text_stacked", "qwen3_5_moe_text_alone"),
    inert=_QWEN3_5_INERT,
)


def _variant(family: Family, name: str, *, model: str, stacked: bool = False) -> Family:
    """The same model as other files lay it out; no config names it. `stacked` has all experts of a layer in one."""
    names = _names(model)
    if stacked:
        names = {path: name for path, name in names.items() if ".ffn.experts." not in path}
        for ours, theirs in (("layers.{l}", f"{model}.layers.{{l}}"), ("mtp.layers.{l}", "mtp.layers.{l}")):
            names[f"{ours}.ffn.experts.gate_up.weight"] = f"{theirs}.mlp.experts.gate_up_proj"
            names[f"{ours}.ffn.experts.down.weight"] = f"{theirs}.mlp.experts.down_proj"
    storage = (
        replace(_STORAGE, joined={**_STORAGE.joined, **_JOINED_EXPERTS}, stacked_experts=True) if stacked else _STORAGE
    )
    return replace(family, name=name, model_types=(), architectures=(), names=names, storage=storage, variants=())


_JOINED_EXPERTS = {"ffn.experts.gate_up": ("ffn.experts.gate", "ffn.experts.up")}
_UNDER_TOWER = "model.language_model"

QWEN_HYBRIDS = (
    QWEN3_NEXT,
    QWEN3_5,
    QWEN3_5_TEXT,
    _variant(QWEN3_5_TEXT, "qwen3_5_text_alone", model="model"),
    QWEN3_5_MOE,
    _variant(QWEN3_5_MOE, "qwen3_5_moe_stacked", model=_UNDER_TOWER, stacked=True),
    QWEN3_5_MOE_TEXT,
    _variant(QWEN3_5_MOE_TEXT, "qwen3_5_moe_text_stacked", model=_UNDER_TOWER, stacked=True),
    _variant(QWEN3_5_MOE_TEXT, "qwen3_5_moe_text_alone", model="model"),
)
