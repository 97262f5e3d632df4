"""LFM2: gated short convolutions with attention between them, dense or with experts, alone or under a vision tower."""

from __future__ import annotations

from dataclasses import replace

from day0.profile.config_reader import ConfigReader
from day0.profile.families.family import Family
from day0.profile.families.siglip_vision import LFM2_FLAT_TOWER_NAMES, LFM2_TOWER_NAMES, read_lfm2_tower
from day0.profile.profile import Mixer
from day0.profile.read_hybrid_experts import read_lfm2_dense, read_lfm2_experts
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.read_linear import read_short_convolution
from day0.profile.read_mixers import GqaDefaults, read_gqa

_KINDS = {"conv": True, "full_attention": False}
_ATTENTION = GqaDefaults(kv_heads=8, theta=1e6, bias=None, qk_norm="head")


def _is_convolution(reader: ConfigReader, index: int) -> bool:
    if reader.has("layer_types"):
        reader.ignore("full_attn_idxs")
    return read_layer_kind(reader, index, _KINDS, lambda i: _not_listed(reader, i))


def _not_listed(reader: ConfigReader, index: int) -> bool:
    """Attention in the layers of `full_attn_idxs`; without that list in all of them."""
    return reader.has("full_attn_idxs") and index not in reader.integers("full_attn_idxs")


def _read_mixer(reader: ConfigReader, index: int) -> Mixer:
    if _is_convolution(reader, index):
        return read_short_convolution(reader)
    return read_gqa(reader, index, defaults=_ATTENTION)


def _names(model: str) -> dict[str, str]:
    layer, ours = f"{model}.layers.{{l}}", "layers.{l}"
    attention, block = f"{layer}.self_attn", f"{layer}.feed_forward"
    matrices = {"gate": "w1", "up": "w3", "down": "w2"}
    convolution = ("in_proj", "conv", "out_proj")
    return {
        "embed.weight": f"{model}.embed_tokens.weight",
        "norm.weight": f"{model}.embedding_norm.weight",
        "lm_head.weight": "lm_head.weight",
        f"{ours}.mixer_norm.weight": f"{layer}.operator_norm.weight",
        f"{ours}.ffn_norm.weight": f"{layer}.ffn_norm.weight",
        **{f"{ours}.mixer.{axis}_proj.weight": f"{attention}.{axis}_proj.weight" for axis in "qkv"},
        **{f"{ours}.mixer.{axis}_norm.weight": f"{attention}.{axis}_layernorm.weight" for axis in "qk"},
        f"{ours}.mixer.o_proj.weight": f"{attention}.out_proj.weight",
        **{
            f"{ours}.mixer.{part}.{leaf}": f"{layer}.conv.{part}.{leaf}"
            for part in convolution
            for leaf in ("weight", "bias")
        },
        **{f"{ours}.ffn.{name}_proj.weight": f"{block}.{stored}.weight" for name, stored in matrices.items()},
        f"{ours}.ffn.router.weight": f"{block}.gate.weight",
        f"{ours}.ffn.router.correction_bias": f"{block}.expert_bias",
        **{
            f"{ours}.ffn.experts.{name}.weight": f"{block}.experts.{{expert}}.{stored}.weight"
            for name, stored in matrices.items()
        },
    }


# Earlier writers repeat sizes under names of their own, say how weights were drawn, and that the MLP is gated.
_REPEATED = (
    *("block_dim", "block_norm_eps", "block_use_swiglu", "conv_dim", "conv_dim_out", "num_heads", "use_pos_enc"),
    *("block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init", "conv_use_xavier_init"),
)
# A tied model's words for the tie; where the prompt renderer puts images, and how the processor cuts them.
_IMAGES = (
    *("use_image_special_tokens", "use_thumbnail", "do_image_splitting", "tile_size"),
    *("min_tiles", "max_tiles", "min_image_tokens", "max_image_tokens", "max_pixels_tolerance", "encoder_patch_size"),
    *("model_type", "max_num_patches", "architectures"),
)

LFM2 = Family(
    name="lfm2",
    model_types=("lfm2",),
    architectures=("Lfm2ForCausalLM",),
    native=True,
    read_mixer=_read_mixer,
    read_feed_forward=read_lfm2_dense,
    names=_names("model"),
    norm_eps_key="norm_eps",
    norm_eps_default=1e-5,
    tie_keys=("tie_embedding", "tie_word_embeddings"),
    tie_default=True,
    inert=_REPEATED,
)

LFM2_MOE = replace(
    LFM2,
    name="lfm2_moe",
    model_types=("lfm2_moe",),
    architectures=("Lfm2MoeForCausalLM",),
    read_feed_forward=read_lfm2_experts,
)

LFM2_VL = replace(
    LFM2,
    name="lfm2_vl",
    model_types=("lfm2_vl", "lfm2-vl"),
    architectures=("Lfm2VlForConditionalGeneration",),
    text_section="text_config",
    read_vision=read_lfm2_tower,
    names={**_names("model.language_model"), **LFM2_TOWER_NAMES},
    variants=("lfm2_vl_flat_tower",),
    inert=_REPEATED + _IMAGES,
)

LFM2_VL_FLAT = replace(
    LFM2_VL,
    name="lfm2_vl_flat_tower",
    model_types=(),
    architectures=(),
    names={**LFM2_VL.names, **LFM2_FLAT_TOWER_NAMES},
    variants=(),
)

LFM2S = (LFM2, LFM2_MOE, LFM2_VL, LFM2_VL_FLAT)
