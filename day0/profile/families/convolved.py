"""ZAYA and Inkling: attention whose queries, keys or values pass short convolutions."""

from __future__ import annotations

from dataclasses import replace

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, MLP_LEAVES, under
from day0.profile.families.family import Family
from day0.profile.profile import AffineResidual, LayerSpec, ModelEnds, Residual
from day0.profile.read_convolved import (
    read_cca,
    read_inkling_convolution,
    read_inkling_feed_forward,
    read_relative_attention,
    read_zaya_experts,
)
from day0.profile.storage import Storage

_LAYER = "model.layers.{l}"
_STACKED = Storage(joined={"ffn.experts.gate_up": ("ffn.experts.gate", "ffn.experts.up")}, stacked_experts=True)
_EXPERT_NAMES = {
    "layers.{l}.ffn.experts.gate_up.weight": f"{_LAYER}.mlp.experts.gate_up_proj",
    "layers.{l}.ffn.experts.down.weight": f"{_LAYER}.mlp.experts.down_proj",
}


def _affine(reader: ConfigReader) -> Residual:
    del reader
    return AffineResidual()


def _zaya_ends(reader: ConfigReader) -> ModelEnds:
    return ModelEnds(head_bias=reader.flag("lm_head_bias", False))


_CCA = {
    **{f"{name}_proj": f"{name}_proj" for name in "qk"},
    "v_proj": "v_proj_current",
    "v_delayed_proj": "v_proj_delayed",
    "conv": "conv_qk_depthwise",
    "head_conv": "conv_qk_grouped",
}
_ROUTER = {
    "down_proj": "down_proj",
    "norm": "router_mlp.norm",
    "fc1": "router_mlp.fc1",
    "fc2": "router_mlp.fc2",
}
_RESIDUAL_LEAVES = {
    "scale": "residual_scale",
    "shift": "residual_bias",
    "branch_scale": "hidden_states_scale",
    "branch_shift": "hidden_states_bias",
}

ZAYA = Family(
    name="zaya",
    model_types=("zaya",),
    architectures=("ZayaForCausalLM",),
    read_mixer=read_cca,
    read_feed_forward=read_zaya_experts,
    read_residual=_affine,
    read_ends=_zaya_ends,
    norm_eps_default=1e-5,
    tie_default=True,
    storage=_STACKED,
    names={
        **LLAMA_NAMES,
        **_EXPERT_NAMES,
        "lm_head.bias": "lm_head.bias",
        "input_res.scale": "model.input_hidden_states_scale",
        "input_res.shift": "model.input_hidden_states_bias",
        **{
            f"layers.{{l}}.mixer.{ours}.{leaf}": f"{_LAYER}.self_attn.qkv_proj.{theirs}.{leaf}"
            for ours, theirs in _CCA.items()
            for leaf in ("weight", "bias")
        },
        "layers.{l}.mixer.key_scale": f"{_LAYER}.self_attn.qk_norm.temp",
        **{
            f"layers.{{l}}.ffn.router.{ours}.{leaf}": f"{_LAYER}.mlp.gate.{theirs}.{leaf}"
            for ours, theirs in _ROUTER.items()
            for leaf in ("weight", "bias")
        },
        "layers.{l}.ffn.router.weight": f"{_LAYER}.mlp.gate.router_mlp.out_proj.weight",
        "layers.{l}.ffn.router.carried_scale": f"{_LAYER}.mlp.gate.router_states_scale",
        "layers.{l}.ffn.router.correction_bias": f"{_LAYER}.mlp.gate.balancing_biases",
        **{
            f"layers.{{l}}.{site}.{ours}": f"{_LAYER}.{place}.{theirs}"
            for site, place in (
                ("mixer_res", "post_attention_residual_scale"),
                ("ffn_res", "post_mlp_residual_scale"),
            )
            for ours, theirs in _RESIDUAL_LEAVES.items()
        },
    },
)


def _convolve(reader: ConfigReader, layer: LayerSpec) -> LayerSpec:
    return replace(layer, convolution=read_inkling_convolution(reader))


def _inkling_ends(reader: ConfigReader) -> ModelEnds:
    # Other than null, these have an effect that nothing here describes: they stay unread, and are reported.
    reader.ignore(*(key for key in ("unpadded_vocab_size", "num_mtp_layers") if reader.values.get(key) is None))
    return ModelEnds(
        embedding_norm=True,
        embedding_weight=True,
        logit_scale=1.0 / reader.number("logits_mup_width_multiplier", 24.0),
    )


INKLING_TEXT = Family(
    name="inkling_text",
    model_types=("inkling_text",),
    architectures=("InklingForCausalLM",),
    read_mixer=read_relative_attention,
    read_feed_forward=read_inkling_feed_forward,
    read_ends=_inkling_ends,
    finish_layer=_convolve,
    max_position_keys=("max_position_embeddings", "model_max_length"),
    storage=_STACKED,
    names={
        **LLAMA_NAMES,
        **_EXPERT_NAMES,
        "embed.norm.weight": "model.embed_tokens.embed_norm.weight",
        "layers.{l}.mixer.r_proj.weight": f"{_LAYER}.self_attn.r_proj.weight",
        "layers.{l}.mixer.distance_profiles": f"{_LAYER}.self_attn.rel_logits_proj.proj",
        **{f"layers.{{l}}.mixer.{axis}_conv.weight": f"{_LAYER}.self_attn.{axis}_sconv.conv1d.weight" for axis in "kv"},
        "layers.{l}.mixer_conv.weight": f"{_LAYER}.attn_sconv.conv1d.weight",
        "layers.{l}.ffn_conv.weight": f"{_LAYER}.mlp_sconv.conv1d.weight",
        **under("layers.{l}.ffn", f"{_LAYER}.mlp", (*MLP_LEAVES, "global_scale")),
        "layers.{l}.ffn.router.weight": f"{_LAYER}.mlp.gate.weight",
        "layers.{l}.ffn.router.global_scale": f"{_LAYER}.mlp.gate.global_scale",
        "layers.{l}.ffn.router.correction_bias": f"{_LAYER}.mlp.gate.e_score_correction_bias",
        **{
            f"layers.{{l}}.ffn.shared.{name}_proj.weight": f"{_LAYER}.mlp.shared_experts.{name}_proj"
            for name in ("gate", "up", "down")
        },
    },
    inert=(
        # Counted from the architecture; the router has neither a norm nor a way to leave its shared experts out.
        *("number_of_conv_states", "rms_norm_eps_moe_gate", "shared_expert_sink"),
        # How predictors would chain, where there are any.
        *("chain_hidden_post_norm", "mtp_hidden_states_first", "mtp_local_layer_ids"),
    ),
)

CONVOLVED = (ZAYA, INKLING_TEXT)
