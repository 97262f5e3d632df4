"""ERNIE 4.5, dense and mixture of experts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, QWEN_MOE_NAMES
from day0.profile.families.family import Family
from day0.profile.profile import FeedForward, ModelEnds, RoutedExperts
from day0.profile.read_experts import ExpertLine, read_expert_line
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import GqaLine, read_gqa_line
from day0.profile.storage import Storage

_LINE = GqaLine(theta=5e5, layout="interleaved", bias_key="use_bias")


def _routed(reader: ConfigReader, index: int) -> bool:
    """Between two layers, both among them, every so many: counted from 1, as `moe_layer_interval` is."""
    last = reader.integer("num_hidden_layers") - 1
    start, end = (
        reader.integer("moe_layer_start_index", 1, minimum=0),
        reader.integer("moe_layer_end_index", -1, minimum=-1),
    )
    step = reader.integer("moe_layer_interval", 1)
    return (index + 1) % step == 0 and start <= index <= (last if end == -1 else end)


_EXPERTS = ExpertLine(
    experts=("moe_num_experts",),
    top_k="moe_k",
    shared="moe_num_shared_experts",
    routed=_routed,
    renormalize=True,
    correction_bias=True,
)


def _feed_forward(reader: ConfigReader, index: int) -> FeedForward:
    """Softmax scores; a learnt bias takes part in the choice. `moe_norm_min` bounds the sum of the chosen ones."""
    reader.ignore("moe_norm_min")
    spec = read_expert_line(reader, index, line=_EXPERTS)
    bias = reader.flag("use_bias", False)
    if isinstance(spec, RoutedExperts):
        return replace(spec, shared_bias=bias)
    return replace(spec, bias=bias)


def _moe_ends(reader: ConfigReader) -> ModelEnds:
    """Where there are biases, the head has one too."""
    return ModelEnds(head_bias=reader.flag("use_bias", False))


ERNIE = Family(
    name="ernie4_5",
    model_types=("ernie4_5",),
    architectures=("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"),
    native=True,
    read_mixer=partial(read_gqa_line, line=_LINE),
    read_feed_forward=partial(read_dense, bias_key="use_bias"),
    norm_eps_default=1e-5,
    tie_default=True,
    names=LLAMA_NAMES,
)

ERNIE_MOE = Family(
    name="ernie4_5_moe",
    model_types=("ernie4_5_moe",),
    architectures=("Ernie4_5_MoeForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa_line, line=_LINE),
    read_feed_forward=_feed_forward,
    read_ends=_moe_ends,
    norm_eps_default=1e-5,
    tie_default=True,
    names={
        **LLAMA_NAMES,
        **QWEN_MOE_NAMES,
        "lm_head.bias": "lm_head.bias",
        "layers.{l}.ffn.router.correction_bias": "model.layers.{l}.mlp.moe_statics.e_score_correction_bias",
    },
    storage=Storage(unit_axis=("ffn.router.correction_bias",)),
)

ERNIES = (ERNIE, ERNIE_MOE)
