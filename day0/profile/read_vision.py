"""Vision towers as configs spell them."""

from __future__ import annotations

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import VisionSpec

TOWER_NORM_EPS = 2.0**-23
"""Epsilon of the tower's norms: the model definition names none, so the framework's default (float32's) applies."""

# One known word each: another word is another tower, and must be an error rather than a wrong picture.
_FIXED_WORDS = {
    "pos_emb_type": "divided_fixed",
    "pos_emb_interpolation_mode": "bilinear",
    "norm_type": "rmsnorm",
    "mlp_type": "mlp2",
    "merge_type": "sd2_tpool",
    "mm_projector_type": "patchmergerv2",
}
_MAX_LAYERS = 1024
"""A tower of more layers than this is a typing error, and its tensors would never be counted to the end."""
_BIASES = ("attn_bias", "linear_bias", "patch_embed_proj_bias")


def read_kimi_vision(top: ConfigReader) -> VisionSpec | None:
    """The tower and projector of `vision_config`, None without that section. The placeholder's id is beside it."""
    section = top.section("vision_config")
    if section is None:
        return None
    # The publisher's code reads neither activation: GELU is the tanh form in the tower, the erf form after it.
    section.ignore("_attn_implementation", "activation_func", "projector_hidden_act")
    for key, word in _FIXED_WORDS.items():
        section.choice(key, {word: word})
    for key in _BIASES:
        if section.flag(key):
            raise InputError("biases in the vision tower are not known here", where=section.where(key))
    spec = VisionSpec(
        patch_size=section.integer("patch_size"),
        hidden_size=section.integer("vt_hidden_size"),
        qkv_size=section.integer("qkv_hidden_size"),
        num_layers=section.integer("vt_num_hidden_layers", maximum=_MAX_LAYERS),
        num_heads=section.integer("vt_num_attention_heads"),
        mlp_width=section.integer("vt_intermediate_size"),
        position_grid=(section.integer("init_pos_emb_height"), section.integer("init_pos_emb_width")),
        position_frames=section.integer("init_pos_emb_time"),
        merge=_read_merge(section),
        text_hidden_size=section.integer("text_hidden_size"),
        norm_eps=TOWER_NORM_EPS,
        projector_norm_eps=section.number("projector_ln_eps"),
        placeholder_token_id=top.integer("media_placeholder_token_id", minimum=0),
    )
    _check(section, spec, top.required_section("text_config").integer("hidden_size"))
    return spec


def _read_merge(section: ConfigReader) -> tuple[int, int]:
    merge = section.integers("merge_kernel_size")
    if len(merge) != 2 or min(merge) < 1:
        raise InputError(f"must be two positive integers, got {list(merge)}", where=section.where("merge_kernel_size"))
    return merge[0], merge[1]


def _check(section: ConfigReader, spec: VisionSpec, hidden_size: int) -> None:
    """Raise InputError where two sizes that must agree do not."""
    if spec.text_hidden_size != hidden_size:
        raise InputError(
            f"is {spec.text_hidden_size}, the text model's hidden size is {hidden_size}",
            where=section.where("text_hidden_size"),
        )
    if section.integer("mm_hidden_size") != spec.hidden_size:
        raise InputError(f"must equal vt_hidden_size, {spec.hidden_size}", where=section.where("mm_hidden_size"))
    if spec.hidden_size % 2:
        raise InputError("must be even: half of the time signal is sine", where=section.where("vt_hidden_size"))
    if spec.qkv_size % spec.num_heads or spec.head_dim % 4:
        raise InputError(
            f"{spec.qkv_size} must divide into {spec.num_heads} heads whose width is a multiple of 4 (2-D rotation)",
            where=section.where("qkv_hidden_size"),
        )
