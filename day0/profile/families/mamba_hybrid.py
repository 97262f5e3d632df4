"""Hybrids of state spaces and attention: Jamba, Bamba, Nemotron-H with one branch a layer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import ATTENTION_LEAVES, MLP_LEAVES, under
from day0.profile.families.family import MAX_LAYERS, Family
from day0.profile.profile import (
    FeedForward,
    LayerSpec,
    Mixer,
    MultiTokenPrediction,
    NoFeedForward,
    NoMixer,
    PlainResidual,
)
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_hybrid_experts import read_jamba_feed_forward, read_nemotron_h_experts, read_nemotron_h_mlp
from day0.profile.read_layer_kinds import known_kind
from day0.profile.read_linear import (
    BAMBA_KEYS,
    NEMOTRON_H_KEYS,
    read_mamba,
    read_mamba2,
    read_unrotated_attention,
)
from day0.profile.read_mixers import GqaDefaults, read_gqa
from day0.profile.read_positions import read_rope

_MAMBA_LEAVES = (
    *("in_proj.weight", "in_proj.bias", "out_proj.weight", "out_proj.bias"),
    *("x_proj.weight", "dt_proj.weight", "dt_proj.bias", "A_log", "D", "dt_bias", "norm.weight"),
)


def mamba_names(ours: str, theirs: str) -> dict[str, str]:
    return {
        **under(ours, theirs, _MAMBA_LEAVES),
        **{f"{ours}.conv.{leaf}": f"{theirs}.conv1d.{leaf}" for leaf in ("weight", "bias")},
        **{f"{ours}.{name}_norm.weight": f"{theirs}.{name}_layernorm.weight" for name in ("dt", "b", "c")},
    }


_LAYER = "model.layers.{l}"
_TWO_BRANCH_NAMES = {
    "embed.weight": "model.embed_tokens.weight",
    "norm.weight": "model.final_layernorm.weight",
    "lm_head.weight": "lm_head.weight",
    "layers.{l}.mixer_norm.weight": f"{_LAYER}.input_layernorm.weight",
    "layers.{l}.ffn_norm.weight": f"{_LAYER}.pre_ff_layernorm.weight",
    **mamba_names("layers.{l}.mixer", f"{_LAYER}.mamba"),
    **under("layers.{l}.mixer", f"{_LAYER}.self_attn", ATTENTION_LEAVES),
    **under("layers.{l}.ffn", f"{_LAYER}.feed_forward", MLP_LEAVES),
    "layers.{l}.ffn.router.weight": f"{_LAYER}.feed_forward.router.weight",
    **{
        f"layers.{{l}}.ffn.experts.{name}.weight": f"{_LAYER}.feed_forward.experts.{{expert}}.{name}_proj.weight"
        for name in ("gate", "up", "down")
    },
}
# Which implementation of the scan runs, and how many logits generation asks for.
KERNEL_CHOICES = (
    *("use_mamba_kernels", "use_mambapy", "use_associative_scan", "mamba_chunk_size", "chunk_size"),
    *("num_logits_to_keep", "calc_logits_for_entire_prompt"),
)


def _read_jamba_mixer(reader: ConfigReader, index: int) -> Mixer:
    """Attention every `attn_layer_period` layers from `attn_layer_offset` on, Mamba between."""
    period, offset = reader.integer("attn_layer_period", 8), reader.integer("attn_layer_offset", 4, minimum=0)
    if offset >= period:
        raise InputError(f"must be less than the period {period}", where=reader.where("attn_layer_offset"))
    return read_unrotated_attention(reader, kv_heads=8) if index % period == offset else read_mamba(reader)


JAMBA = Family(
    name="jamba",
    model_types=("jamba",),
    architectures=("JambaForCausalLM",),
    native=True,
    read_mixer=_read_jamba_mixer,
    read_feed_forward=read_jamba_feed_forward,
    names=_TWO_BRANCH_NAMES,
    inert=(*KERNEL_CHOICES, "sliding_window"),
)


def _read_bamba_mixer(reader: ConfigReader, index: int) -> Mixer:
    """Attention in the layers listed, half of each head rotated; Mamba-2 in the others."""
    listed = reader.integers("attn_layer_indices", ()) if reader.has("attn_layer_indices") else ()
    if index not in listed:
        return read_mamba2(reader, BAMBA_KEYS, width=reader.integer("mamba_expand", 2) * reader.integer("hidden_size"))
    plain = read_gqa(reader, index, defaults=GqaDefaults(kv_heads=8))
    return replace(plain, rope=read_rope(reader, plain.head_dim, fraction=0.5))


BAMBA = Family(
    name="bamba",
    model_types=("bamba",),
    architectures=("BambaForCausalLM",),
    native=True,
    read_mixer=_read_bamba_mixer,
    read_feed_forward=partial(read_dense, bias_key="mlp_bias"),
    names=_TWO_BRANCH_NAMES,
    norm_eps_default=1e-5,
    # attn_rotary_emb repeats, in channels, that half of a head is rotated; the z-loss is for training.
    inert=(*KERNEL_CHOICES, "attn_rotary_emb", "z_loss_coefficient"),
)

_LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
_WORDS = {
    **{word: word for word in _LETTERS.values()},
    "linear_attention": "mamba",
    "full_attention": "attention",
}


def _kinds(reader: ConfigReader, list_key: str, pattern_key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """Kinds of layer from a list of words, else from a pattern of letters."""
    if reader.has(list_key):
        reader.ignore(pattern_key)
        return tuple(known_kind(reader, list_key, word, _WORDS) for word in reader.words(list_key))
    if reader.has(pattern_key):
        return tuple(known_kind(reader, pattern_key, letter, _LETTERS) for letter in reader.word(pattern_key))
    return default


def _nemotron_kinds(reader: ConfigReader) -> tuple[str, ...]:
    key = "layers_block_type" if reader.has("layers_block_type") or not reader.has("layer_types") else "layer_types"
    return _kinds(reader, key, "hybrid_override_pattern", ("mamba", "moe", "attention", "mlp"))


def _count_nemotron_layers(reader: ConfigReader) -> int:
    kinds = _nemotron_kinds(reader)
    said = reader.integer("num_hidden_layers", len(kinds), maximum=MAX_LAYERS) if _says_layers(reader) else len(kinds)
    if said != len(kinds) or not kinds:
        raise InputError(
            f"says {said} layers where the list of their kinds has {len(kinds)}",
            where=reader.where("num_hidden_layers"),
        )
    return said


def _says_layers(reader: ConfigReader) -> bool:
    return reader.has("num_hidden_layers")


def _nemotron_mixer(reader: ConfigReader, kind: str) -> Mixer:
    if kind == "mamba":
        return read_mamba2(reader, NEMOTRON_H_KEYS)
    if kind == "attention":
        return read_unrotated_attention(reader, kv_heads=8, head_dim=128, bias=False)
    return NoMixer()


def _nemotron_feed_forward(reader: ConfigReader, kind: str) -> FeedForward:
    if kind == "moe":
        return read_nemotron_h_experts(reader)
    return read_nemotron_h_mlp(reader) if kind == "mlp" else NoFeedForward()


def _read_nemotron_mixer(reader: ConfigReader, index: int) -> Mixer:
    return _nemotron_mixer(reader, _nemotron_kinds(reader)[index])


def _read_nemotron_feed_forward(reader: ConfigReader, index: int) -> FeedForward:
    return _nemotron_feed_forward(reader, _nemotron_kinds(reader)[index])


def _read_nemotron_mtp(reader: ConfigReader) -> MultiTokenPrediction | None:
    """Predictors of the kinds listed for one, each kind a layer of its own, numbered from 0 through all of them."""
    depths = reader.integer("num_nextn_predict_layers", 0, minimum=0, maximum=64)
    kinds = _kinds(reader, "mtp_layers_block_type", "mtp_hybrid_override_pattern", ("attention", "moe"))
    if not depths:
        return None
    layers = tuple(
        LayerSpec(
            index,
            _nemotron_mixer(reader, kind),
            _nemotron_feed_forward(reader, kind),
            PlainResidual(),
            ("mixer_norm",) if kind in ("mamba", "attention") else ("ffn_norm",),
        )
        for index, kind in enumerate(kinds * depths)
    )
    return MultiTokenPrediction(layers, depths=depths)


def _one_branch_names(ours: str, theirs: str) -> dict[str, str]:
    """Every layer is one norm and one branch, called mixer whatever it is."""
    branch = f"{theirs}.mixer"
    mlp = ("up_proj.weight", "up_proj.bias", "down_proj.weight", "down_proj.bias")
    return {
        f"{ours}.mixer_norm.weight": f"{theirs}.norm.weight",
        f"{ours}.ffn_norm.weight": f"{theirs}.norm.weight",
        **mamba_names(f"{ours}.mixer", branch),
        **under(f"{ours}.mixer", branch, ATTENTION_LEAVES),
        **under(f"{ours}.ffn", branch, mlp),
        f"{ours}.ffn.router.weight": f"{branch}.gate.weight",
        f"{ours}.ffn.router.correction_bias": f"{branch}.gate.e_score_correction_bias",
        f"{ours}.ffn.latent_down.weight": f"{branch}.fc1_latent_proj.weight",
        f"{ours}.ffn.latent_up.weight": f"{branch}.fc2_latent_proj.weight",
        **under(f"{ours}.ffn.shared", f"{branch}.shared_experts", mlp),
        **{
            f"{ours}.ffn.experts.{name}.weight": f"{branch}.experts.{{expert}}.{name}_proj.weight"
            for name in ("up", "down")
        },
    }


_PREDICTOR = {"embed_norm": "enorm", "hidden_norm": "hnorm", "join_proj": "eh_proj", "norm": "final_layernorm"}

NEMOTRON_H = Family(
    name="nemotron_h",
    model_types=("nemotron_h",),
    architectures=("NemotronHForCausalLM",),
    native=True,
    read_mixer=_read_nemotron_mixer,
    read_feed_forward=_read_nemotron_feed_forward,
    read_mtp=_read_nemotron_mtp,
    count_layers=_count_nemotron_layers,
    norm_eps_key="layer_norm_epsilon",
    norm_eps_default=1e-5,
    names={
        "embed.weight": "backbone.embeddings.weight",
        "norm.weight": "backbone.norm_f.weight",
        "lm_head.weight": "lm_head.weight",
        **_one_branch_names("layers.{l}", "backbone.layers.{l}"),
        **_one_branch_names("mtp.layers.{l}", "mtp.layers.{l}"),
        **{
            f"mtp.layers.{{l}}.{ours}.weight": f"mtp.layers.{{l}}.{theirs}.weight"
            for ours, theirs in _PREDICTOR.items()
        },
    },
    inert=(
        *KERNEL_CHOICES,
        # The scan's state is float32, its activation silu; heads say how wide Mamba is.
        *("mamba_ssm_cache_dtype", "mamba_hidden_act", "expand", "mamba_proj_bias"),
        # How weights were drawn, and dropout.
        *("time_step_min", "time_step_max", "time_step_floor", "rescale_prenorm_residual", "hidden_dropout"),
        # Attention has neither positions nor a window; the stream keeps the model's dtype in the reference code.
        *("rope_theta", "partial_rotary_factor", "sliding_window", "residual_in_fp32", "norm_eps", "rms_norm_eps"),
        # Widths for kinds of layer that the model may not have, and when shared experts run.
        *("intermediate_size", "moe_shared_expert_overlap"),
    ),
)

MAMBA_HYBRIDS = (JAMBA, BAMBA, NEMOTRON_H)
