"""EXAONE 4, 4.5 and MoE: norms after each branch, windows with positions, full attention without."""

from __future__ import annotations

from functools import partial

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, POST_NORMS, QWEN_MOE_NAMES, inside, predictor_names
from day0.profile.families.family import Family
from day0.profile.families.qwen_vision import read_exaone_tower, windowed_tower_names
from day0.profile.profile import MultiTokenPrediction
from day0.profile.read_experts import ExpertLine, read_expert_line, routed_after, routed_by_words
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import GqaLine, by_period, read_gqa_line, rotated_where_sliding
from day0.profile.read_predictors import read_predictors

MAX_PERIOD = 4096


def _period(reader: ConfigReader) -> int:
    """Layers from one full attention to the next: a number, or a pattern such as "LLLG" of local and global ones."""
    if not reader.has("sliding_window"):
        return 0
    if not isinstance(reader.values.get("sliding_window_pattern"), str):
        return reader.integer("sliding_window_pattern", 4, minimum=0, maximum=MAX_PERIOD)
    pattern = reader.word("sliding_window_pattern")
    if not pattern.endswith("G") or set(pattern[:-1]) > {"L"}:
        raise InputError(f"pattern {pattern!r} is not known here", where=reader.where("sliding_window_pattern"))
    return len(pattern)


_KIND = by_period(_period)
_EXAONE4 = GqaLine(
    kv_heads=32, bias_key=None, qk_norm="head", kind=_KIND, window=4096, rotated=rotated_where_sliding(_KIND)
)
_attention = partial(read_gqa_line, line=_EXAONE4)
_NORMS = ("mixer_post_norm", "ffn_post_norm")
_NAMES = {**LLAMA_NAMES, **POST_NORMS}
_JOINT = {
    "embed_norm.weight": "pre_fc_norm_embedding.weight",
    "hidden_norm.weight": "pre_fc_norm_hidden.weight",
    "join_proj.weight": "fc.weight",
    "norm.weight": "norm.weight",
}
_PREDICTORS = predictor_names(_NAMES, "mtp.layers.{l}", _JOINT)


def _predictors(reader: ConfigReader) -> MultiTokenPrediction | None:
    return read_predictors(
        reader, key="num_nextn_predict_layers", mixer=_attention, feed_forward=read_dense, norms=_NORMS
    )


EXAONE4 = Family(
    name="exaone4",
    model_types=("exaone4",),
    architectures=("Exaone4ForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=read_dense,
    norms=_NORMS,
    norm_eps_default=1e-5,
    names=_NAMES,
    # What `layer_types` says layer by layer comes first.
    inert=("sliding_window_pattern",),
)

EXAONE4_5 = Family(
    name="exaone4_5",
    model_types=("exaone4_5",),
    architectures=("Exaone4_5_ForConditionalGeneration",),
    native=True,
    text_section="text_config",
    read_mixer=_attention,
    read_feed_forward=read_dense,
    read_mtp=_predictors,
    norms=_NORMS,
    norm_eps_default=1e-5,
    read_vision=read_exaone_tower,
    names={**inside(_NAMES, "model.language_model."), **_PREDICTORS, **windowed_tower_names("model.visual")},
    # `layer_types` comes before the pattern; marks of images and the vocabulary's size are repeated for the prompt's
    # renderer; the training of the predictor leaves its settings behind.
    inert=(
        "sliding_window_pattern",
        "vision_token_id",
        "vision_start_token_id",
        "vision_end_token_id",
        "vocab_size",
        "_num_mtp_layers",
        "mtp_loss_scaling_factor",
        "mtp_share_layers",
    ),
)

_moe_experts = partial(
    read_expert_line,
    line=ExpertLine(
        experts=("num_experts", "num_local_experts", "n_routed_experts"),
        shared="num_shared_experts",
        shared_default=1,
        routed=routed_by_words(routed_after(1)),
        scoring="sigmoid",
        renormalize_default=True,
        correction_bias=True,
        grouped=True,
        scaling="routed_scaling_factor",
    ),
)
_MOE_NAMES = {
    **LLAMA_NAMES,
    **QWEN_MOE_NAMES,
    "layers.{l}.ffn.router.correction_bias": "model.layers.{l}.mlp.e_score_correction_bias",
}

EXAONE_MOE = Family(
    name="exaone_moe",
    model_types=("exaone_moe",),
    architectures=("ExaoneMoEForCausalLM", "ExaoneMoeForCausalLM"),
    native=True,
    read_mixer=_attention,
    read_feed_forward=_moe_experts,
    read_mtp=partial(read_predictors, key="num_nextn_predict_layers", mixer=_attention, feed_forward=_moe_experts),
    norm_eps_default=1e-5,
    names={**_MOE_NAMES, **predictor_names(_MOE_NAMES, "mtp.layers.{l}", _JOINT)},
    # What `layer_types` and `mlp_layer_types` say layer by layer comes first; the scores are fixed.
    inert=("sliding_window_pattern", "is_moe_layer", "first_k_dense_replace", "scoring_func", "topk_method"),
)

EXAONES = (EXAONE4, EXAONE4_5, EXAONE_MOE)
