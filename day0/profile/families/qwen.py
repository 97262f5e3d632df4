"""Qwen2, Qwen2-MoE and the vision-language models of the Qwen2 and Qwen3 lines (their decoders)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import (
    LLAMA_NAMES,
    MLP_LEAVES,
    QWEN_MOE_NAMES,
    STACKED_NAMES,
    inside,
    layer_names,
    predictor_names,
    under,
)
from day0.profile.families.family import Family
from day0.profile.families.qwen_vision import (
    TINY_IMAGES,
    qwen3_tower_names,
    read_qwen2_tower,
    read_qwen3_tower,
    read_windowed_tower,
    windowed_tower_names,
)
from day0.profile.families.tower_names import PLAIN
from day0.profile.profile import GroupedQueryAttention, MultiTokenPrediction
from day0.profile.read_experts import ExpertLine, read_expert_line, routed_by_step
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import GqaLine, LayerKind, read_gqa_line, window_from_layer
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.read_predictors import read_predictors
from day0.profile.storage import Storage

_QWEN2 = GqaLine(
    kv_heads=32, bias_key=None, bias=True, o_bias=False, kind=window_from_layer("use_sliding_window", first=28)
)
_QWEN2_VL = replace(
    _QWEN2, kv_heads=8, sections=(16, 24, 24), theta=1e6, kind=window_from_layer("use_sliding_window", first=80)
)
_QWEN3_VL = GqaLine(kv_heads=32, head_dim=128, theta=5e5, qk_norm="head", sections=(24, 20, 20))
_QWEN3_VL_MOE = replace(_QWEN3_VL, kv_heads=16, head_dim=None)
_READ_IMAGES = (
    "vision_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
)
"""Marks of images in the prompt: the prompt's renderer needs them, the decoder does not."""


def _alternating_window(reader: ConfigReader, index: int) -> LayerKind:
    """Qwen2-MoE's default: behind `use_sliding_window`, every other layer below `max_window_layers`."""
    reader.ignore("sliding_window", "max_window_layers")
    slides = reader.flag("use_sliding_window", False)

    def default(layer: int) -> LayerKind:
        below = slides and layer < reader.integer("max_window_layers", 28, minimum=0)
        return "sliding_attention" if below and layer % 2 == 0 else "full_attention"

    known: dict[str, LayerKind] = {"full_attention": "full_attention", "sliding_attention": "sliding_attention"}
    return read_layer_kind(reader, index, known, default)


def _qwen3_vl_attention(reader: ConfigReader, index: int, *, line: GqaLine) -> GroupedQueryAttention:
    """Qwen3-VL deals the channel pairs out to the three axes in turn, whatever the config says."""
    spec = read_gqa_line(reader, index, line=line)
    assert spec.rope is not None
    if sum(spec.rope.sections) != spec.rope.dim // 2:
        raise InputError(
            f"sections {list(spec.rope.sections)} do not share out {spec.rope.dim // 2} channel pairs",
            where=reader.where("rope_scaling.mrope_section"),
        )
    return replace(spec, rope=replace(spec.rope, interleaved_sections=True))


_qwen2_attention = partial(read_gqa_line, line=_QWEN2)


def _mimo_predictors(reader: ConfigReader) -> MultiTokenPrediction | None:
    return read_predictors(reader, key="num_nextn_predict_layers", mixer=_qwen2_attention, feed_forward=read_dense)


QWEN2 = Family(
    name="qwen2",
    model_types=("qwen2",),
    architectures=("Qwen2ForCausalLM",),
    native=True,
    read_mixer=_qwen2_attention,
    read_feed_forward=read_dense,
    names=LLAMA_NAMES,
)

MIMO = Family(
    name="mimo",
    model_types=("mimo",),
    architectures=("MiMoForCausalLM",),
    native=True,
    read_mixer=_qwen2_attention,
    read_feed_forward=read_dense,
    read_mtp=_mimo_predictors,
    names={
        **LLAMA_NAMES,
        **predictor_names(
            LLAMA_NAMES,
            "model.mtp_layers.{l}",
            {
                "embed_norm.weight": "token_layernorm.weight",
                "hidden_norm.weight": "hidden_layernorm.weight",
                "join_proj.weight": "input_proj.weight",
                "norm.weight": "final_layernorm.weight",
            },
        ),
    },
    # The architecture fixes the biases of q, k and v; positions have one axis.
    inert=("attention_bias", "use_mrope"),
)

QWEN2_MOE = Family(
    name="qwen2_moe",
    model_types=("qwen2_moe",),
    architectures=("Qwen2MoeForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa_line, line=replace(_QWEN2, kv_heads=16, bias_key="qkv_bias", kind=_alternating_window)),
    read_feed_forward=partial(
        read_expert_line,
        line=ExpertLine(
            experts=("num_experts", "num_local_experts"),
            shared="shared_expert_intermediate_size",
            shared_default=5632,
            shared_is_width=True,
            shared_gate=True,
            routed=routed_by_step(),
        ),
    ),
    names={
        **LLAMA_NAMES,
        **QWEN_MOE_NAMES,
        **under("layers.{l}.ffn.shared", "model.layers.{l}.mlp.shared_expert", MLP_LEAVES),
    },
)

QWEN2_5_VL = Family(
    name="qwen2_5_vl",
    model_types=("qwen2_5_vl",),
    architectures=("Qwen2_5_VLForConditionalGeneration",),
    native=True,
    text_section="text_config",
    flat_text=True,
    read_mixer=partial(read_gqa_line, line=_QWEN2_VL),
    read_feed_forward=read_dense,
    read_vision=read_windowed_tower,
    names={**LLAMA_NAMES, **windowed_tower_names("visual")},
    norm_eps_default=1e-5,
    inert=_READ_IMAGES,
)

QWEN2_VL = replace(
    QWEN2_5_VL,
    name="qwen2_vl",
    model_types=("qwen2_vl",),
    architectures=("Qwen2VLForConditionalGeneration",),
    read_vision=read_qwen2_tower,
    names={**LLAMA_NAMES, **windowed_tower_names("visual", PLAIN)},
    # What the tower gives, not its own width.
    tiny={"vision_config.hidden_size": 128},
)

QWEN3_VL = Family(
    name="qwen3_vl",
    model_types=("qwen3_vl",),
    architectures=("Qwen3VLForConditionalGeneration",),
    native=True,
    text_section="text_config",
    read_mixer=partial(_qwen3_vl_attention, line=_QWEN3_VL),
    read_feed_forward=read_dense,
    read_vision=read_qwen3_tower,
    names={**inside(LLAMA_NAMES, "model.language_model."), **qwen3_tower_names("model.visual")},
    inert=_READ_IMAGES,
    tiny_extras=TINY_IMAGES,
)

QWEN3_VL_MOE = Family(
    name="qwen3_vl_moe",
    model_types=("qwen3_vl_moe",),
    architectures=("Qwen3VLMoeForConditionalGeneration",),
    native=True,
    text_section="text_config",
    read_mixer=partial(_qwen3_vl_attention, line=_QWEN3_VL_MOE),
    read_feed_forward=partial(
        read_expert_line,
        line=ExpertLine(experts=("num_experts", "num_local_experts"), renormalize=True, routed=routed_by_step()),
    ),
    read_vision=read_qwen3_tower,
    names={
        **inside(
            {**LLAMA_NAMES, **STACKED_NAMES, **layer_names({"ffn.router.weight": "mlp.gate.weight"})},
            "model.language_model.",
        ),
        **qwen3_tower_names("model.visual"),
    },
    storage=Storage(
        joined={"ffn.experts.gate_up": ("ffn.experts.gate", "ffn.experts.up")}, stacked_experts=True, input_first=True
    ),
    # The weights of the chosen experts are always made to add up to 1.
    inert=(*_READ_IMAGES, "norm_topk_prob"),
    # Other loaders tell by the shape alone which way round stacked experts lie: none may be square.
    tiny={"text_config.moe_intermediate_size": 96},
    tiny_extras=TINY_IMAGES,
)

QWENS = (QWEN2, MIMO, QWEN2_MOE, QWEN2_5_VL, QWEN2_VL, QWEN3_VL, QWEN3_VL_MOE)
