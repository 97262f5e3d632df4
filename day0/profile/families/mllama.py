"""Llama 3.2 Vision's decoder: Llama 3.1 with layers of attention to the image encoder between its own."""

from __future__ import annotations

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, layer_names
from day0.profile.families.family import Family
from day0.profile.families.llama_vision import MLLAMA_TOWER_NAMES, read_mllama_tower
from day0.profile.profile import CrossAttention, Mixer, ModelEnds
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import GqaLine, read_gqa_line

_LINE = GqaLine(kv_heads=8, bias_key=None)
_CROSS_LAYERS = (3, 8, 13, 18, 23, 28, 33, 38)
_CROSS_LEAVES = ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
_EXTRA_ROWS = 8
"""The input table's rows for marks of images, which are never predicted."""


def _attention(reader: ConfigReader, index: int) -> Mixer:
    own = read_gqa_line(reader, index, line=_LINE)
    if index not in reader.integers("cross_attention_layers", _CROSS_LAYERS):
        return own
    return CrossAttention(own.num_heads, own.num_kv_heads, own.head_dim, own.scale)


def _ends(reader: ConfigReader) -> ModelEnds:
    del reader
    return ModelEnds(extra_rows=_EXTRA_ROWS)


_NAMES = {
    **LLAMA_NAMES,
    **layer_names({f"mixer.cross.{leaf}.weight": f"cross_attn.{leaf}.weight" for leaf in _CROSS_LEAVES}),
    **layer_names(
        {"mixer.cross.attention_gate": "cross_attn_attn_gate", "mixer.cross.ffn_gate": "cross_attn_mlp_gate"}
    ),
}

MLLAMA = Family(
    name="mllama",
    model_types=("mllama",),
    architectures=("MllamaForConditionalGeneration",),
    text_section="text_config",
    read_mixer=_attention,
    read_feed_forward=read_dense,
    read_ends=_ends,
    norm_eps_default=1e-5,
    read_vision=read_mllama_tower,
    names={**{ours: f"language_model.{theirs}" for ours, theirs in _NAMES.items()}, **MLLAMA_TOWER_NAMES},
    # Off at inference.
    inert=("dropout",),
    # The tower gives its last features and those of three blocks.
    tiny={
        "text_config.cross_attention_layers": [3],
        "vision_config.vision_output_dim": 256,
        "vision_config.intermediate_layers_indices": [0, 1, 2],
    },
)
