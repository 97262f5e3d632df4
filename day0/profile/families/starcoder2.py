"""StarCoder2: grouped queries, layer norms and MLPs without a gate, biases throughout."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, norm_names, under
from day0.profile.families.family import Family
from day0.profile.profile import DenseFeedForward
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import GqaLine, read_gqa_line, window_where_set

_LINE = GqaLine(kv_heads=2, bias_key="use_bias", bias=True, kind=window_where_set)


def _mlp(reader: ConfigReader, index: int) -> DenseFeedForward:
    """down(gelu(up x)), with biases unless the config says otherwise."""
    spec = read_dense(reader, index, silent="gelu_pytorch_tanh")
    return replace(spec, gated=False, bias=reader.flag("use_bias", True))


STARCODER2 = Family(
    name="starcoder2",
    model_types=("starcoder2",),
    architectures=("Starcoder2ForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa_line, line=_LINE),
    read_feed_forward=_mlp,
    norm_kind="layer_bias",
    norm_eps_key="norm_epsilon",
    norm_eps_default=1e-5,
    tie_default=True,
    names={
        **LLAMA_NAMES,
        **norm_names({"mixer_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}),
        **under("layers.{l}.ffn.up_proj", "model.layers.{l}.mlp.c_fc", ("weight", "bias")),
        **under("layers.{l}.ffn.down_proj", "model.layers.{l}.mlp.c_proj", ("weight", "bias")),
        "norm.bias": "model.norm.bias",
    },
    inert=("residual_dropout", "embedding_dropout"),
)
