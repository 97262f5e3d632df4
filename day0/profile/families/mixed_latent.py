"""Decoders that mix kinds of layer around latent attention: dots3 (windows), GLM-5 Next (linear attention)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import inside, layer_names
from day0.profile.families.deepseek import DERIVED, TRAINED_WITH
from day0.profile.families.dots_towers import DOTS_TOWER_NAMES, read_dots_audio, read_dots_tower
from day0.profile.families.family import Family
from day0.profile.families.glm_vision import glm_tower_names, read_glm5_tower
from day0.profile.families.latent_names import LATENT_NAMES, PREDICTOR_COPIES, with_predictors
from day0.profile.profile import KimiDeltaAttention, Mixer, OutputGate
from day0.profile.read_hyper_connections import read_manifold_connections
from day0.profile.read_latent import LatentDefaults, read_latent
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.read_mixers import read_kda
from day0.profile.read_predictors import read_predictors
from day0.profile.read_shared_experts import ExpertDefaults, read_shared_experts
from day0.profile.read_sparse import IndexDefaults, read_sparse_latent, scheduled_indexers

_DOTS_KINDS = {
    "indexed_attention": "indexed_attention",
    "sliding_attention": "sliding_attention",
    "full_attention": "full_attention",
}
_DOTS_WINDOWED = {
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1024,
    "kv_lora_rank": 1024,
    "head_dim": 256,
    "qk_nope_head_dim": 192,
    "v_head_dim": 128,
}
"""Sizes of dots3's windowed layers where the config has neither `per_layer_config` nor its older `swa_` keys."""
_DOTS_LATENT = LatentDefaults(
    latent_eps=None,
    model_eps=1e-5,
    theta=8e7,
    output_gate=OutputGate(per="head"),
    rope_key_norm=True,
    scaled_latents=True,
)


# As transformers has it; an engine's reading of the release turns the last channels of a head instead. The two choose
# other tokens, which tells only beyond the `index_topk` tokens that are all read.
_DOTS_INDEX = IndexDefaults(interleaved=True)


def _dots_kind(reader: ConfigReader, index: int) -> str:
    """The kind of a layer; older configs call sparse layers "full_attention" and say by `use_dsa` what they are."""
    windows = reader.flag("use_sliding_window", True)
    kind = read_layer_kind(
        reader,
        index,
        _DOTS_KINDS,
        lambda layer: "indexed_attention" if not windows or layer < 2 or layer % 4 == 1 else "sliding_attention",
    )
    if kind == "sliding_attention":
        return kind
    if reader.has("use_dsa") or not reader.has("per_layer_config"):
        return "indexed_attention" if reader.flag("use_dsa", True) else "full_attention"
    return kind


def _dots_sizes(reader: ConfigReader, index: int, kind: str) -> ConfigReader:
    """The config as layer `index` has it."""
    section = reader.section("per_layer_config")
    if section is not None:
        key = next((key for key in section.values if key.isdigit() and int(key) == index), None)
        layer = section.section(key) if key is not None else None
        if layer is None:
            return reader
        layer.ignore(*_DOTS_WINDOWED, "qk_rope_head_dim")
        return reader.overlaid(layer.values)
    reader.ignore(*(f"swa_{name}" for name in (*_DOTS_WINDOWED, "qk_rope_head_dim")))
    if kind != "sliding_attention":
        return reader
    sizes = {name: reader.values.get(f"swa_{name}", size) for name, size in _DOTS_WINDOWED.items()}
    rotated = reader.integer("swa_head_dim", 256) - reader.integer("swa_qk_nope_head_dim", 192)
    return reader.overlaid({**sizes, "qk_rope_head_dim": reader.integer("swa_qk_rope_head_dim", rotated)})


def _dots_mixer(reader: ConfigReader, index: int) -> Mixer:
    kind = _dots_kind(reader, index)
    sizes = _dots_sizes(reader, index, kind)
    latent = replace(_DOTS_LATENT, kind=kind)
    match kind:
        case "sliding_attention":
            window_key = "sliding_window" if reader.has("sliding_window") else "sliding_window_size"
            window = reader.integer(window_key, 512)
            return read_latent(sizes, replace(latent, theta=5e4, theta_key="swa_rope_theta"), window)
        case "full_attention":
            return read_latent(sizes, latent)
        case _:
            return read_sparse_latent(sizes, index, latent=latent, defaults=_DOTS_INDEX, earlier=())


def _dots_experts(reader: ConfigReader) -> ExpertDefaults:
    old = "moe_shared_expert_intermediate_size"
    key = old if reader.has(old) else "shared_experts_intermediate_size"
    return ExpertDefaults(first_dense=1, shared_width_key=key)


DOTS3_NOTE = Family(
    name="dots3_note",
    model_types=("dots3_note", "dots3_note_text"),
    architectures=("Dots3NoteForConditionalGeneration", "Dots3NoteForCausalLM"),
    native=True,
    text_section="text_config",
    flat_text=True,
    read_mixer=_dots_mixer,
    read_feed_forward=lambda reader, index: read_shared_experts(reader, index, defaults=_dots_experts(reader)),
    norm_eps_default=1e-5,
    read_vision=read_dots_tower,
    read_audio=read_dots_audio,
    names={**with_predictors(LATENT_NAMES), **DOTS_TOWER_NAMES},
    unread=PREDICTOR_COPIES,
    # No MLP has biases. The top level repeats what the text section says.
    inert=(*DERIVED, *TRAINED_WITH, "mlp_bias", "model_type", "architectures"),
    tiny={
        "vision_config.mlp_layer_types": ["dense", "dense", "sparse", "sparse"],
        "vision_config.per_layer_config": {"2": {"num_local_experts": 4}, "3": {"num_local_experts": 6}},
        "audio_config.adapter_input_size": 64,
        "audio_config.downsample_hidden_size": 32,
    },
)

_NEXT_KINDS = {"linear_attention": True, "indexed_attention": False, "full_attention": False}
_NEXT_LATENT = LatentDefaults(latent_eps=None, model_eps=1e-5, nope=True)
_NEXT_INDEX = IndexDefaults(pool=16, runs=scheduled_indexers)


def _is_linear(reader: ConfigReader, index: int) -> bool:
    """Whether a layer is linear; those that predict further tokens are not."""
    if index >= reader.integer("num_hidden_layers"):
        return False
    return read_layer_kind(reader, index, _NEXT_KINDS, lambda layer: layer % 4 != 3)


def _next_delta(reader: ConfigReader) -> KimiDeltaAttention:
    """Delta attention by flat keys, or by the section that Kimi's configs have."""
    eps = reader.number("rms_norm_eps", 1e-5)
    section = reader.section("linear_attn_config")
    if section is not None:
        spec = replace(read_kda(section, eps), decay_rates="plain")
        safe = section.flag("safe_gate", True)
        return replace(spec, gate_lower_bound=-5.0) if safe and spec.gate_lower_bound is None else spec
    bounded = "linear_lower_bound" not in reader.values or reader.has("linear_lower_bound")
    return KimiDeltaAttention(
        num_heads=reader.integer("linear_num_heads"),
        head_dim=reader.integer("linear_head_dim"),
        conv_kernel=reader.integer("linear_conv_kernel_dim", minimum=2),
        gate_lower_bound=reader.number("linear_lower_bound", -5.0) if bounded else None,
        full_rank_gate=False,
        norm_eps=eps,
        decay_rates="plain",
    )


def _next_mixer(reader: ConfigReader, index: int) -> Mixer:
    delta = _next_delta(reader)
    if _is_linear(reader, index):
        return delta
    earlier = (layer for layer in range(index) if not _is_linear(reader, layer))
    return read_sparse_latent(reader, index, latent=_NEXT_LATENT, defaults=_NEXT_INDEX, earlier=earlier)


_NEXT_EXPERTS = partial(read_shared_experts, defaults=ExpertDefaults(first_dense=3, scaling=2.5, limit=10.0))
_KDA_LEAVES = (
    *(f"{name}_proj.weight" for name in ("k", "v", "f_a", "f_b", "b", "g_a", "g_b")),
    "o_norm.weight",
    "A_log",
    "dt_bias",
)
_NEXT_NAMES = {
    **LATENT_NAMES,
    **layer_names({f"mixer.{leaf}": f"self_attn.{leaf}" for leaf in _KDA_LEAVES}),
    **layer_names({f"mixer.{axis}_conv.weight": f"self_attn.{axis}_conv1d.weight" for axis in "qkv"}),
    **layer_names({f"mixer_res.{leaf}": f"hc_attn_{leaf}" for leaf in ("fn", "base", "scale")}),
    **layer_names({f"ffn_res.{leaf}": f"hc_ffn_{leaf}" for leaf in ("fn", "base", "scale")}),
}
_next_connections = partial(read_manifold_connections, learned_head=False)

GLM5_NEXT = Family(
    name="glm5_next",
    native=True,
    model_types=("glm5_next", "glm5_next_text"),
    architectures=("Glm5NextForConditionalGeneration", "Glm5NextForCausalLM"),
    text_section="text_config",
    flat_text=True,
    read_mixer=_next_mixer,
    read_feed_forward=_NEXT_EXPERTS,
    read_residual=_next_connections,
    read_mtp=partial(
        read_predictors,
        key="num_nextn_predict_layers",
        mixer=_next_mixer,
        feed_forward=_NEXT_EXPERTS,
        residual=_next_connections,
        numbered_on=True,
        like_last=False,
    ),
    norm_eps_default=1e-5,
    read_vision=read_glm5_tower,
    names={**inside(with_predictors(_NEXT_NAMES), "model.language_model."), **glm_tower_names("model.visual")},
    unread=tuple(name.replace("model.", "model.language_model.", 1) for name in PREDICTOR_COPIES),
    # The top level repeats what the text section says, and marks where images begin and end for the prompt's renderer.
    inert=(
        *(*DERIVED, *TRAINED_WITH, "model_type", "architectures"),
        *("image_start_token_id", "image_end_token_id", "video_start_token_id", "video_end_token_id"),
    ),
)

MIXED_LATENT_DECODERS = (DOTS3_NOTE, GLM5_NEXT)
