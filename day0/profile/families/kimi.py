"""Kimi K3 and Kimi-Linear: delta attention and latent attention; K3 mixes residuals and has latent experts in MXFP4."""

from __future__ import annotations

from dataclasses import replace

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import MLP_LEAVES, under
from day0.profile.families.family import Family
from day0.profile.families.kimi_k3_vision import VISION_NAMES
from day0.profile.profile import (
    AttentionResidual,
    FeedForward,
    KimiDeltaAttention,
    Mixer,
    PlainResidual,
    Residual,
)
from day0.profile.read_feed_forward import read_dense, read_kimi_moe
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.read_mixers import read_kimi_mixer, read_mla
from day0.profile.read_vision import read_kimi_vision

_KDA_LEAVES = (
    *(f"{name}_proj.weight" for name in ("q", "k", "v", "f_a", "f_b", "b", "g", "g_a", "g_b", "o")),
    "o_norm.weight",
    "A_log",
    "dt_bias",
)
_MLA_NAMES = {
    "q_a_proj.weight": "q_a_proj.weight",
    "q_a_norm.weight": "q_a_layernorm.weight",
    "q_b_proj.weight": "q_b_proj.weight",
    "kv_a_proj.weight": "kv_a_proj_with_mqa.weight",
    "kv_a_norm.weight": "kv_a_layernorm.weight",
    "kv_b_proj.weight": "kv_b_proj.weight",
}
_EXPERT_NAMES = {"gate": "w1", "up": "w3", "down": "w2"}


def _names(prefix: str) -> dict[str, str]:
    """Names of a decoder whose checkpoint puts `prefix` before all of them."""
    layer = f"{prefix}model.layers.{{l}}"
    attention, moe = f"{layer}.self_attn", f"{layer}.block_sparse_moe"
    return {
        "embed.weight": f"{prefix}model.embed_tokens.weight",
        "norm.weight": f"{prefix}model.norm.weight",
        "lm_head.weight": f"{prefix}lm_head.weight",
        "output_res.norm.weight": f"{prefix}model.output_attn_res_norm.weight",
        "output_res.proj.weight": f"{prefix}model.output_attn_res_proj.weight",
        "layers.{l}.mixer_norm.weight": f"{layer}.input_layernorm.weight",
        "layers.{l}.ffn_norm.weight": f"{layer}.post_attention_layernorm.weight",
        "layers.{l}.mixer_res.norm.weight": f"{layer}.self_attention_res_norm.weight",
        "layers.{l}.mixer_res.proj.weight": f"{layer}.self_attention_res_proj.weight",
        "layers.{l}.ffn_res.norm.weight": f"{layer}.mlp_res_norm.weight",
        "layers.{l}.ffn_res.proj.weight": f"{layer}.mlp_res_proj.weight",
        **under("layers.{l}.mixer", attention, _KDA_LEAVES),
        **{f"layers.{{l}}.mixer.{axis}_conv.weight": f"{attention}.{axis}_conv1d.weight" for axis in "qkv"},
        **{f"layers.{{l}}.mixer.{ours}": f"{attention}.{theirs}" for ours, theirs in _MLA_NAMES.items()},
        **under("layers.{l}.ffn", f"{layer}.mlp", MLP_LEAVES),
        "layers.{l}.ffn.router.weight": f"{moe}.gate.weight",
        "layers.{l}.ffn.router.correction_bias": f"{moe}.gate.e_score_correction_bias",
        "layers.{l}.ffn.latent_down.weight": f"{moe}.routed_expert_down_proj.weight",
        "layers.{l}.ffn.latent_norm.weight": f"{moe}.routed_expert_norm.weight",
        "layers.{l}.ffn.latent_up.weight": f"{moe}.routed_expert_up_proj.weight",
        **under("layers.{l}.ffn.shared", f"{moe}.shared_experts", MLP_LEAVES),
        **{
            f"layers.{{l}}.ffn.experts.{ours}.weight": f"{moe}.experts.{{expert}}.{theirs}.weight"
            for ours, theirs in _EXPERT_NAMES.items()
        },
    }


def _residual(reader: ConfigReader) -> Residual:
    block = reader.optional_integer("attn_res_block_size")
    return PlainResidual() if block is None else AttentionResidual(block)


KIMI_K3 = Family(
    name="kimi_k3",
    model_types=("kimi_k3",),
    architectures=("KimiK3ForConditionalGeneration",),
    native=True,
    text_section="text_config",
    read_mixer=read_kimi_mixer,
    read_feed_forward=read_kimi_moe,
    read_residual=_residual,
    read_vision=read_kimi_vision,
    quantized=("routed_experts",),
    norm_eps_default=1e-5,
    names={
        **_names("language_model."),
        **VISION_NAMES,
    },
    # The top level repeats ids and the image marker, which the prompt renderer needs and the decoder does not.
    inert=(
        "image_placeholder",
        "model_type",
        "architectures",
        "tie_word_embeddings",
        "num_nextn_predict_layers",
        "rope_theta",
    ),
    tiny={
        "text_config.hidden_size": 128,
        "text_config.intermediate_size": 320,
        "text_config.num_hidden_layers": 9,
        "text_config.num_attention_heads": 6,
        "text_config.num_key_value_heads": 6,
        "text_config.q_lora_rank": 48,
        "text_config.kv_lora_rank": 32,
        "text_config.qk_nope_head_dim": 24,
        "text_config.qk_rope_head_dim": 8,
        "text_config.v_head_dim": 16,
        "text_config.linear_attn_config.kda_layers": [1, 2, 3, 5, 6, 7],
        "text_config.linear_attn_config.full_attn_layers": [4, 8, 9],
        "text_config.linear_attn_config.num_heads": 12,
        "text_config.linear_attn_config.head_dim": 16,
        "text_config.attn_res_block_size": 3,
        "text_config.num_experts": 16,
        "text_config.num_experts_per_token": 4,
        "text_config.moe_intermediate_size": 96,
        "text_config.routed_expert_hidden_size": 64,
        "text_config.max_position_embeddings": 4096,
        "vision_config.init_pos_emb_height": 8,
        "vision_config.init_pos_emb_width": 8,
        "vision_config.vt_hidden_size": 64,
        "vision_config.mm_hidden_size": 64,
        "vision_config.vt_num_hidden_layers": 3,
        "vision_config.vt_num_attention_heads": 4,
        "vision_config.qkv_hidden_size": 96,
        "vision_config.vt_intermediate_size": 160,
        "vision_config.text_hidden_size": 128,
    },
    tiny_extras={
        "preprocessor_config.json": {
            "media_proc_cfg.in_patch_limit": 48,
            "media_proc_cfg.patch_limit_on_one_side": 12,
        }
    },
)

_KINDS = {"linear_attention": True, "full_attention": False}


def _read_linear_mixer(reader: ConfigReader, index: int) -> Mixer:
    """As the section of the delta attention says, else in the words under which transformers saves the same."""
    if reader.has("linear_attn_config"):
        spec = read_kimi_mixer(reader, index)
        return replace(spec, decay_rates="four_axes") if isinstance(spec, KimiDeltaAttention) else spec
    if not read_layer_kind(reader, index, _KINDS, lambda i: i == 0 or i % 4 > 0):
        return read_mla(reader, nope=reader.flag("mla_use_nope", True), output_gate=False)
    return KimiDeltaAttention(
        num_heads=reader.integer("linear_num_heads", 32),
        head_dim=reader.integer("linear_head_dim", 128),
        conv_kernel=reader.integer("linear_conv_kernel_dim", 4, minimum=2),
        gate_lower_bound=None,
        full_rank_gate=False,
        norm_eps=reader.number("rms_norm_eps", 1e-5),
        decay_rates="four_axes",
    )


def _read_linear_feed_forward(reader: ConfigReader, index: int) -> FeedForward:
    dense = {"dense": True, "sparse": False}
    if reader.has("mlp_layer_types") and read_layer_kind(reader, index, dense, lambda i: False, "mlp_layer_types"):
        return read_dense(reader, index)
    return read_kimi_moe(reader, index)


KIMI_LINEAR = Family(
    name="kimi_linear",
    model_types=("kimi_linear",),
    architectures=("KimiLinearForCausalLM",),
    native=True,
    read_mixer=_read_linear_mixer,
    read_feed_forward=_read_linear_feed_forward,
    norm_eps_default=1e-5,
    max_position_keys=("model_max_length",),
    names=_names(""),
    # Nothing is rotated; latent and linear heads have sizes of their own; there are no predictors.
    # transformers saves the section's facts a second time.
    inert=(
        *("rope_theta", "rope_scaling", "head_dim", "qk_head_dim", "num_nextn_predict_layers", "attention_bias"),
        *("layer_types", "linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"),
    ),
    tiny={
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 24,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "linear_attn_config.kda_layers": [1, 2, 3, 5],
        "linear_attn_config.full_attn_layers": [4],
        "linear_attn_config.num_heads": 6,
        "linear_attn_config.head_dim": 16,
        "num_experts": 16,
        "num_experts_per_token": 4,
        "moe_intermediate_size": 48,
        "model_max_length": 4096,
    },
)

KIMIS = (KIMI_K3, KIMI_LINEAR)
