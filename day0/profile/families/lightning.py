"""Hybrids around lightning attention: MiniMax-Text-01 and M1, and the Ling hybrids, whose third turn is KDA."""

from __future__ import annotations

from dataclasses import replace

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, MLP_LEAVES, experts, under
from day0.profile.families.family import Family
from day0.profile.profile import (
    KimiDeltaAttention,
    LayerSpec,
    Mixer,
    MultiTokenPrediction,
    OutputGate,
    PlainResidual,
    RopeSpec,
    RoutedExperts,
    WeighedResidual,
)
from day0.profile.read_feed_forward import read_mixtral_experts
from day0.profile.read_hybrid_experts import read_bailing_experts
from day0.profile.read_latent import LatentDefaults, read_latent
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.read_linear import read_bailing_lightning, read_minimax_lightning
from day0.profile.read_mixers import GqaDefaults, read_gqa
from day0.profile.read_positions import read_rope
from day0.profile.storage import Storage

_JOINED_QKV = {"mixer.qkv_proj": ("mixer.in_q_proj", "mixer.in_k_proj", "mixer.in_v_proj")}
_KINDS = {"linear_attention": True, "full_attention": False}


def _minimax_is_linear(reader: ConfigReader, index: int) -> bool:
    """By the publisher's list of 0 (lightning) and 1 (softmax), by kinds of layer, else every second layer."""
    if not reader.has("attn_type_list"):
        return read_layer_kind(reader, index, _KINDS, lambda i: bool(i % 2))
    kinds, layers = reader.integers("attn_type_list"), reader.integer("num_hidden_layers")
    if len(kinds) != layers or not set(kinds) <= {0, 1}:
        raise InputError(f"must be 0 or 1 for each of {layers} layers", where=reader.where("attn_type_list"))
    return kinds[index] == 0


def _read_minimax_mixer(reader: ConfigReader, index: int) -> Mixer:
    if _minimax_is_linear(reader, index):
        return read_minimax_lightning(reader)
    plain = read_gqa(reader, index, defaults=GqaDefaults(kv_heads=8, theta=1e6, bias=None))
    share = reader.integer("rotary_dim", plain.head_dim) / plain.head_dim if reader.has("rotary_dim") else 1.0
    return replace(plain, rope=read_rope(reader, plain.head_dim, theta=1e6, fraction=share))


def _read_minimax_experts(reader: ConfigReader, index: int) -> RoutedExperts:
    routed = read_mixtral_experts(reader, index)
    shared = reader.integer("shared_intermediate_size", 0, minimum=0)
    if not shared:
        reader.ignore("shared_moe_mode")
        return routed
    reader.choice("shared_moe_mode", {"sigmoid": "sigmoid"}, "sigmoid")
    return replace(routed, shared_width=shared, shared_gate=True)


def _weigh_branches(reader: ConfigReader, layer: LayerSpec) -> LayerSpec:
    """What the residual keeps and takes, in the publisher's words or in those of transformers."""
    linear = _minimax_is_linear(reader, layer.index)
    kind = "linear" if linear else "full"
    published = {place: f"layernorm_{kind}_attention_{place}" for place in ("alpha", "beta")}
    saved = {place: f"{kind}_attn_{place}_factor" for place in ("alpha", "beta")}
    words = published if reader.has(published["alpha"]) else saved
    mlp = "layernorm_mlp_{}" if reader.has("layernorm_mlp_alpha") else "mlp_{}_factor"
    residual = WeighedResidual(
        mixer_skip=reader.number(words["alpha"], 1.0),
        mixer_branch=reader.number(words["beta"], 1.0),
        ffn_skip=reader.number(mlp.format("alpha"), 1.0),
        ffn_branch=reader.number(mlp.format("beta"), 1.0),
        normed=reader.flag("postnorm", True) if reader.has("postnorm") else True,
    )
    return replace(layer, residual=residual)


_MINIMAX_LAYER = "model.layers.{l}"
_MINIMAX_MOE = f"{_MINIMAX_LAYER}.block_sparse_moe"

MINIMAX_01 = Family(
    name="minimax_m1",
    # The same model under the publisher's two names and under the one that transformers gave it.
    model_types=("minimax_m1", "minimax_text_01", "minimax"),
    architectures=("MiniMaxM1ForCausalLM", "MiniMaxText01ForCausalLM", "MiniMaxForCausalLM"),
    native=True,
    read_mixer=_read_minimax_mixer,
    read_feed_forward=_read_minimax_experts,
    finish_layer=_weigh_branches,
    norm_eps_default=1e-5,
    # Each head's q, k and v, then the next head's.
    storage=Storage(joined=_JOINED_QKV, by_turns=tuple(_JOINED_QKV), float32=("ffn.router.weight",)),
    names={
        **LLAMA_NAMES,
        "layers.{l}.mixer.qkv_proj.weight": f"{_MINIMAX_LAYER}.self_attn.qkv_proj.weight",
        "layers.{l}.mixer.g_proj.weight": f"{_MINIMAX_LAYER}.self_attn.output_gate.weight",
        "layers.{l}.mixer.o_norm.weight": f"{_MINIMAX_LAYER}.self_attn.norm.weight",
        "layers.{l}.mixer.out_proj.weight": f"{_MINIMAX_LAYER}.self_attn.out_proj.weight",
        "layers.{l}.ffn.router.weight": f"{_MINIMAX_MOE}.gate.weight",
        **experts(f"{_MINIMAX_MOE}.experts.{{expert}}", {"gate": "w1", "up": "w3", "down": "w2"}),
        **under("layers.{l}.ffn.shared", f"{_MINIMAX_LAYER}.shared_mlp", MLP_LEAVES),
        "layers.{l}.ffn.shared_gate.weight": f"{_MINIMAX_LAYER}.coefficient.weight",
    },
    # Tokens the lightning kernel takes at a time.
    inert=("block_size", "sliding_window"),
    # Decays that follow from the numbers of head and layer, saved by transformers.
    unread=tuple(
        f"{_MINIMAX_LAYER}.self_attn.{name}" for name in ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
    ),
)


def _bailing_is_linear(reader: ConfigReader, index: int) -> bool:
    """All but the last of each group, and but the layers after the last whole group."""
    size, layers = reader.integer("layer_group_size", 6), reader.integer("num_hidden_layers")
    whole = layers // size * size
    return read_layer_kind(reader, index, _KINDS, lambda i: bool((i + 1) % size) and i < whole)


_GATES = {"head_wise": OutputGate(per="head"), "element_wise": OutputGate(per="channel")}


def _is_kda(reader: ConfigReader) -> bool:
    """Ling 3 says how its delta rule decays; the 2.x line, which has the same model type, has no such word."""
    return any(reader.has(key) for key in ("kda_safe_gate", "kda_lower_bound", "short_conv_kernel_size"))


def _read_bailing_latent(reader: ConfigReader) -> Mixer:
    gate = None
    if _is_kda(reader):
        key = "gated_attention_proj_granularity_type"
        said = key in reader.values and not reader.has(key)
        gate = None if said else reader.choice(key, _GATES, "head_wise")
    spec = read_latent(reader, LatentDefaults(bias=None, theta=6e6, output_gate=gate))
    return replace(spec, bias=reader.flag("use_qkv_bias", False))


def _read_bailing_kda(reader: ConfigReader) -> KimiDeltaAttention:
    heads = reader.integer("num_attention_heads")
    bounded = reader.flag("kda_safe_gate", True)
    bound = reader.number("kda_lower_bound", -5.0)
    full = reader.flag("no_kda_lora", True)
    return KimiDeltaAttention(
        num_heads=heads,
        # transformers saves the width of the linear heads apart from that of the latent attention.
        head_dim=reader.integer("linear_head_dim" if reader.has("linear_head_dim") else "head_dim", 128),
        conv_kernel=reader.integer("short_conv_kernel_size", 4, minimum=2),
        gate_lower_bound=bound if bounded else None,
        full_rank_gate=full,
        norm_eps=reader.number("rms_norm_eps", 1e-6),
        full_rank_decay=full,
        decay_rates="plain",
    )


def _bailing_rope(reader: ConfigReader) -> RopeSpec:
    return read_rope(reader, reader.integer("head_dim", 128), theta=6e6)


def _read_bailing_mixer(reader: ConfigReader, index: int) -> Mixer:
    if not _bailing_is_linear(reader, index):
        return _read_bailing_latent(reader)
    if _is_kda(reader):
        return _read_bailing_kda(reader)
    return read_bailing_lightning(reader, _bailing_rope(reader))


def _read_bailing_mtp(reader: ConfigReader) -> MultiTokenPrediction | None:
    """Predictors with latent attention, numbered on from the decoder's layers."""
    count, layers = (
        reader.integer("num_nextn_predict_layers", 0, minimum=0, maximum=64),
        reader.integer("num_hidden_layers"),
    )
    if not count:
        return None
    specs = tuple(
        LayerSpec(layers + n, _read_bailing_latent(reader), read_bailing_experts(reader, layers - 1), PlainResidual())
        for n in range(count)
    )
    return MultiTokenPrediction(specs, depths=count)


_DELTA_LEAVES = (
    *(f"{name}_proj.weight" for name in ("q", "k", "v", "f", "f_a", "f_b", "g", "g_a", "g_b", "b", "o")),
    *("A_log", "dt_bias", "o_norm.weight"),
)


def _bailing_layer(ours: str) -> dict[str, str]:
    layer = "model.layers.{l}"
    attention, mlp = f"{layer}.attention", f"{layer}.mlp"
    renamed = {
        "qkv_proj": "query_key_value",
        "q_norm": "query_layernorm",
        "k_norm": "key_layernorm",
        "out_proj": "dense",
        "q_a_proj": "q_a_proj",
        "q_a_norm": "q_a_layernorm",
        "q_b_proj": "q_b_proj",
        "kv_a_proj": "kv_a_proj_with_mqa",
        "kv_a_norm": "kv_a_layernorm",
        "kv_b_proj": "kv_b_proj",
        **{f"{axis}_conv": f"{axis}_conv1d" for axis in "qkv"},
    }
    return {
        f"{ours}.mixer_norm.weight": f"{layer}.input_layernorm.weight",
        f"{ours}.ffn_norm.weight": f"{layer}.post_attention_layernorm.weight",
        **under(f"{ours}.mixer", attention, _DELTA_LEAVES),
        **{
            f"{ours}.mixer.{mine}.{leaf}": f"{attention}.{theirs}.{leaf}"
            for mine, theirs in renamed.items()
            for leaf in ("weight", "bias")
        },
        **under(f"{ours}.ffn", mlp, MLP_LEAVES),
        f"{ours}.ffn.router.weight": f"{mlp}.gate.weight",
        f"{ours}.ffn.router.correction_bias": f"{mlp}.gate.expert_bias",
        **under(f"{ours}.ffn.shared", f"{mlp}.shared_experts", MLP_LEAVES),
        **{
            f"{ours}.ffn.experts.{name}.weight": f"{mlp}.experts.{{expert}}.{name}_proj.weight"
            for name in ("gate", "up", "down")
        },
    }


_PREDICTOR = {"embed_norm": "enorm", "hidden_norm": "hnorm", "join_proj": "eh_proj", "norm": "final_layernorm"}

BAILING_HYBRID = Family(
    name="bailing_hybrid",
    model_types=("bailing_hybrid",),
    architectures=("BailingMoeV2_5ForCausalLM", "BailingMoeV3ForCausalLM", "BailingHybridForCausalLM"),
    read_mixer=_read_bailing_mixer,
    read_feed_forward=read_bailing_experts,
    read_mtp=_read_bailing_mtp,
    max_position_keys=("max_position_embeddings", "model_max_length"),
    storage=Storage(joined=_JOINED_QKV),
    names={
        "embed.weight": "model.word_embeddings.weight",
        "norm.weight": "model.norm.weight",
        "lm_head.weight": "lm_head.weight",
        **_bailing_layer("layers.{l}"),
        "layers.{l}.mixer.o_proj.weight@mla": "model.layers.{l}.attention.dense.weight",
        "layers.{l}.mixer.o_proj.bias@mla": "model.layers.{l}.attention.dense.bias",
        "layers.{l}.mixer.o_norm.weight@lightning": "model.layers.{l}.attention.g_norm.weight",
        **_bailing_layer("mtp.layers.{l}"),
        "mtp.layers.{l}.mixer.o_proj.weight": "model.layers.{l}.attention.dense.weight",
        "mtp.layers.{l}.mixer.o_proj.bias": "model.layers.{l}.attention.dense.bias",
        **{
            f"mtp.layers.{{l}}.{ours}.weight": f"model.layers.{{l}}.{theirs}.weight"
            for ours, theirs in _PREDICTOR.items()
        },
    },
    inert=(
        # Training: dropout, auxiliary losses.
        *("embedding_dropout", "output_dropout", "mtp_loss_scaling_factor", "seq_aux"),
        # What the architecture fixes anyway: RMS norms, products of sizes, and the one way of routing.
        *("use_rmsnorm", "qk_head_dim", "max_window_layers", "router_dtype", "topk_method", "scoring_func"),
        *("linear_attention", "norm_head", "use_sliding_window", "sliding_window"),
        # Rotation of the linear layers only, by a share of their heads; KDA has none.
        "partial_rotary_factor",
        # Sizes that transformers saves a second time, and switches of the other line of the same model type.
        *("linear_num_heads", "linear_conv_kernel_dim", "linear_silu", "use_qk_norm", "use_bias", "use_qkv_bias"),
        *("group_norm_size", "num_kv_heads_for_linear_attn", "mlp_layer_types", "head_dim", "attention_bias"),
    ),
)

LIGHTNINGS = (MINIMAX_01, BAILING_HYBRID)
