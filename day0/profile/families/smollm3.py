"""SmolLM3: every fourth layer goes without positions."""

from __future__ import annotations

from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES
from day0.profile.families.family import Family
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import LAYER_KINDS, GqaLine, LayerKind, read_gqa_line, rotated_by_list
from day0.profile.read_layer_kinds import read_layer_kind


def _kind(reader: ConfigReader, index: int) -> LayerKind:
    """By `layer_types`, else windows behind `use_sliding_window` in the layers without positions."""
    reader.ignore("sliding_window")
    slides = reader.flag("use_sliding_window", False) and reader.has("sliding_window")

    def default(layer: int) -> LayerKind:
        return "sliding_attention" if slides and not rotated_by_list(reader, layer) else "full_attention"

    return read_layer_kind(reader, index, LAYER_KINDS, default)


SMOLLM3 = Family(
    name="smollm3",
    model_types=("smollm3",),
    architectures=("SmolLM3ForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa_line, line=GqaLine(kv_heads=4, theta=2e6, kind=_kind, rotated=rotated_by_list)),
    read_feed_forward=partial(read_dense, bias_key="mlp_bias"),
    tie_default=True,
    names=LLAMA_NAMES,
    # A setting of the line that SmolLM3 was written after; nothing here reads it.
    inert=("max_window_layers",),
)
