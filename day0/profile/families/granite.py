"""IBM Granite: dense and mixture-of-experts decoders whose embeddings, branches, attention and logits are scaled."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, layer_names
from day0.profile.families.family import Family
from day0.profile.profile import FeedForward, GroupedQueryAttention, ModelEnds, PlainResidual, Residual
from day0.profile.read_experts import ExpertLine, read_expert_line
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import GqaLine, read_gqa_line
from day0.profile.storage import Storage

_LINE = GqaLine()
_MOE = ExpertLine(experts=("num_local_experts", "num_experts"), width="intermediate_size", renormalize=True)


def _attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    spec = read_gqa_line(reader, index, line=_LINE)
    return replace(spec, scale=reader.number("attention_multiplier", 1.0))


def _residual(reader: ConfigReader) -> Residual:
    return PlainResidual(branch_scale=reader.number("residual_multiplier", 1.0))


def _ends(reader: ConfigReader) -> ModelEnds:
    return ModelEnds(
        embedding_scale=reader.number("embedding_multiplier", 1.0),
        logit_scale=1.0 / reader.number("logits_scaling", 1.0),
    )


def _shared(reader: ConfigReader, index: int) -> FeedForward:
    """Experts beside one shared MLP."""
    line = replace(_MOE, shared="shared_intermediate_size", shared_is_width=True)
    return read_expert_line(reader, index, line=line)


_MOE_NAMES = {
    **LLAMA_NAMES,
    **layer_names(
        {
            "ffn.router.weight": "block_sparse_moe.router.layer.weight",
            "ffn.experts.gate_up.weight": "block_sparse_moe.input_linear.weight",
            "ffn.experts.down.weight": "block_sparse_moe.output_linear.weight",
            "ffn.shared.gate_up_proj.weight": "shared_mlp.input_linear.weight",
            "ffn.shared.down_proj.weight": "shared_mlp.output_linear.weight",
        }
    ),
}
_STORAGE = Storage(
    joined={
        "ffn.experts.gate_up": ("ffn.experts.gate", "ffn.experts.up"),
        "ffn.shared.gate_up_proj": ("ffn.shared.gate_proj", "ffn.shared.up_proj"),
    },
    stacked_experts=True,
)

GRANITE = Family(
    name="granite",
    model_types=("granite",),
    architectures=("GraniteForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=partial(read_dense, bias_key="mlp_bias"),
    read_residual=_residual,
    read_ends=_ends,
    names=LLAMA_NAMES,
)

GRANITE_MOE = Family(
    name="granitemoe",
    model_types=("granitemoe",),
    architectures=("GraniteMoeForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=partial(read_expert_line, line=_MOE),
    read_residual=_residual,
    read_ends=_ends,
    names=_MOE_NAMES,
    storage=_STORAGE,
)

GRANITE_MOE_SHARED = replace(
    GRANITE_MOE,
    name="granitemoeshared",
    model_types=("granitemoeshared",),
    architectures=("GraniteMoeSharedForCausalLM",),
    read_feed_forward=_shared,
)

GRANITES = (GRANITE, GRANITE_MOE, GRANITE_MOE_SHARED)
