"""GLM 4 decoders with grouped-query attention: dense, mixture of experts, inside GLM-4.5V; and dots.llm1."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, QWEN_MOE_NAMES, inside, layer_names, predictor_names
from day0.profile.families.family import Family
from day0.profile.families.glm_vision import glm_tower_names, read_glm4v_tower
from day0.profile.profile import GroupedQueryAttention, MultiTokenPrediction
from day0.profile.read_experts import ExpertLine, read_expert_line, routed_after
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import GqaLine, read_gqa_line, window_from_layer
from day0.profile.read_predictors import read_predictors
from day0.profile.storage import Storage

_GLM4 = GqaLine(kv_heads=2, head_dim=128, layout="interleaved", fraction=0.5, o_bias=False)
_GLM4_MOE = GqaLine(kv_heads=8, fraction=0.5, o_bias=False)
_GLM4V_MOE = replace(_GLM4_MOE, bias=True, sections=(8, 12, 12))
_DOTS1 = GqaLine(kv_heads=32, qk_norm="head", kind=window_from_layer(None, first=62), window=4096)

_EXPERTS = ExpertLine(
    shared="n_shared_experts",
    shared_default=1,
    routed=routed_after(1),
    scoring="sigmoid",
    renormalize_default=True,
    correction_bias=True,
    grouped=True,
    scaling="routed_scaling_factor",
)
_DOTS1_EXPERTS = replace(_EXPERTS, shared_default=0, routed=routed_after(0), renormalize_default=False)
_FIXED = ("scoring_func", "topk_method", "moe_layer_freq")
"""The architecture fixes how experts are scored and chosen, and that every layer after the first ones is routed."""


def _glm4_moe_attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    spec = read_gqa_line(reader, index, line=_GLM4_MOE)
    return replace(spec, qk_norm="head" if reader.flag("use_qk_norm", False) else None)


_glm4_moe_experts = partial(read_expert_line, line=_EXPERTS)


def _predictors(reader: ConfigReader) -> MultiTokenPrediction | None:
    key = "num_mtp_layers" if reader.has("num_mtp_layers") else "num_nextn_predict_layers"
    return read_predictors(reader, key=key, mixer=_glm4_moe_attention, feed_forward=_glm4_moe_experts, numbered_on=True)


_MOE_NAMES = {**LLAMA_NAMES, **QWEN_MOE_NAMES}
_JOINT = {
    "embed_norm.weight": "enorm.weight",
    "hidden_norm.weight": "hnorm.weight",
    "join_proj.weight": "eh_proj.weight",
    "norm.weight": "shared_head.norm.weight",
}

_JOINED_MLP = Storage(joined={"ffn.gate_up_proj": ("ffn.gate_proj", "ffn.up_proj")})
_JOINED_NAMES = {**LLAMA_NAMES, **layer_names({"ffn.gate_up_proj.weight": "mlp.gate_up_proj.weight"})}

GLM = Family(
    name="glm",
    model_types=("glm",),
    architectures=("GlmForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa_line, line=replace(_GLM4, bias=True)),
    read_feed_forward=read_dense,
    norm_eps_default=1.5625e-07,
    names=_JOINED_NAMES,
    storage=_JOINED_MLP,
)

GLM4 = Family(
    name="glm4",
    model_types=("glm4",),
    architectures=("Glm4ForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa_line, line=_GLM4),
    read_feed_forward=read_dense,
    norms=("mixer_norm", "mixer_post_norm", "ffn_norm", "ffn_post_norm"),
    norm_eps_default=1.5625e-07,
    names={
        **_JOINED_NAMES,
        **layer_names(
            {
                "mixer_post_norm.weight": "post_self_attn_layernorm.weight",
                "ffn_post_norm.weight": "post_mlp_layernorm.weight",
            }
        ),
    },
    storage=_JOINED_MLP,
)

GLM4_MOE = Family(
    name="glm4_moe",
    model_types=("glm4_moe",),
    architectures=("Glm4MoeForCausalLM",),
    native=True,
    read_mixer=_glm4_moe_attention,
    read_feed_forward=_glm4_moe_experts,
    read_mtp=_predictors,
    norm_eps_default=1e-5,
    names={**_MOE_NAMES, **predictor_names(_MOE_NAMES, "model.layers.{l}", _JOINT)},
    inert=_FIXED,
)

GLM4V_MOE = Family(
    name="glm4v_moe",
    model_types=("glm4v_moe",),
    architectures=("Glm4vMoeForConditionalGeneration",),
    native=True,
    text_section="text_config",
    read_mixer=partial(read_gqa_line, line=_GLM4V_MOE),
    read_feed_forward=_glm4_moe_experts,
    norm_eps_default=1e-5,
    read_vision=read_glm4v_tower,
    names={**inside(_MOE_NAMES, "model.language_model."), **glm_tower_names("model.visual")},
    # Marks of images in the prompt: the prompt's renderer needs them, the decoder does not. No norm on queries and keys
    # and no predictor here, whatever the config says.
    inert=(
        *_FIXED,
        "image_start_token_id",
        "image_end_token_id",
        "video_start_token_id",
        "video_end_token_id",
        "use_qk_norm",
        "num_nextn_predict_layers",
    ),
)

DOTS1 = Family(
    name="dots1",
    model_types=("dots1",),
    architectures=("Dots1ForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa_line, line=_DOTS1),
    read_feed_forward=partial(read_expert_line, line=_DOTS1_EXPERTS),
    names=_MOE_NAMES,
    inert=_FIXED,
)

GLMS = (GLM, GLM4, GLM4_MOE, GLM4V_MOE, DOTS1)
