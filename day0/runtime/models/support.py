"""What the blocks of this room read of each spec. Anything else a profile asks for is refused, never passed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any

from day0.profile.feed_forward import ActivationSpec, DenseFeedForward, NoFeedForward, RoutedExperts, RouterSpec
from day0.profile.grouped_query import GroupedQueryAttention, OutputGate
from day0.profile.latent_attention import LatentAttention
from day0.profile.mixers import KimiDeltaAttention, NoMixer
from day0.profile.mixers_linear import GatedDeltaNet, LinearMap, Mamba, Mamba2, ShortConvolution
from day0.profile.mixers_sparse import IndexerSpec, SparseLatentAttention
from day0.profile.positions import RopeSpec
from day0.profile.profile import ArchitectureProfile, LayerSpec
from day0.profile.residuals import AttentionResidual, PlainResidual
from day0.runtime.ops.rope import SCALINGS

READ: Mapping[type, tuple[str, ...]] = {
    LayerSpec: ("index", "mixer", "feed_forward", "residual", "norms"),
    GroupedQueryAttention: (
        *("num_heads", "num_kv_heads", "head_dim", "rope", "scale"),
        *("qk_norm", "qkv_bias", "o_bias", "window"),
    ),
    LatentAttention: (
        *("num_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
        *("rope", "scale", "latent_norm_eps", "output_gate", "bias", "window", "sinks"),
        *("rope_key_norm", "scaled_latents", "raw_query_latent"),
    ),
    SparseLatentAttention: ("attention", "top_k", "indexer"),
    IndexerSpec: ("num_heads", "head_dim", "top_k", "rope", "norm_eps", "rope_last", "pool", "pool_tail"),
    OutputGate: ("per", "in_query"),
    KimiDeltaAttention: (
        *("num_heads", "head_dim", "conv_kernel", "gate_lower_bound", "full_rank_gate", "norm_eps"),
        *("full_rank_decay", "decay_rates"),
    ),
    GatedDeltaNet: (
        *("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel", "norm_eps"),
        "negative_eigenvalues",
    ),
    Mamba: (
        *("width", "state_size", "step_rank", "conv_kernel", "conv_bias", "proj_bias"),
        *("inner_norms", "norm_eps"),
    ),
    Mamba2: (
        *("num_heads", "head_dim", "num_groups", "state_size", "conv_kernel", "conv_bias", "proj_bias", "norm_eps"),
        *("norm", "norm_first", "step_limit"),
    ),
    ShortConvolution: ("width", "conv_kernel", "bias"),
    LinearMap: ("bias",),
    NoMixer: (),
    NoFeedForward: (),
    RopeSpec: ("theta", "dim", "layout", "scaling", "parameters"),
    DenseFeedForward: ("width", "activation", "bias"),
    ActivationSpec: ("name", "beta", "linear_beta"),
    RoutedExperts: ("router", "width", "activation", "shared_width", "latent_dim", "latent_norm"),
    RouterSpec: (
        *("num_experts", "top_k", "scoring", "renormalize", "scaling_factor", "correction_bias"),
        *("num_groups", "topk_groups", "best_of_group"),
    ),
    PlainResidual: (),
    AttentionResidual: ("block_size",),
}
"""By spec, the fields that its block acts on; the others must have their default."""

VALUES: Mapping[tuple[type, str], tuple[Any, ...]] = {
    (GroupedQueryAttention, "qk_norm"): (None, "head"),
    (RopeSpec, "scaling"): SCALINGS,
    (ActivationSpec, "name"): ("silu", "gelu", "gelu_tanh", "situ"),
    (RouterSpec, "scoring"): ("softmax", "sigmoid"),
}
"""The values of a field that its block knows, where it does not know them all."""

_WHOLE_MODEL = ("ends", "norm_kind")
"""Facts of the whole model that the decoder does not act on."""


def missing_part(profile: ArchitectureProfile) -> str | None:
    """The first thing a profile asks for that these blocks do not do, by its place; None if they do it all."""
    by_name = {field.name: field for field in fields(profile)}
    for name in _WHOLE_MODEL:
        if getattr(profile, name) != _default(by_name[name]):
            return f"{name} = {getattr(profile, name)!r}"
    seen: set[LayerSpec] = set()
    for layer in profile.layers:
        alike = replace(layer, index=0)
        if alike not in seen:  # one look at layers that are the same
            found = _unread(layer, f"layer {layer.index}") or _other_norms(layer)
            if found is not None:
                return found
            seen.add(alike)
    return None


def _other_norms(layer: LayerSpec) -> str | None:
    """Norms that are not one before each branch that the layer has."""
    absent = {NoMixer: "mixer_norm", NoFeedForward: "ffn_norm"}
    without = {absent.get(type(layer.mixer)), absent.get(type(layer.feed_forward))}
    if layer.norms == tuple(norm for norm in ("mixer_norm", "ffn_norm") if norm not in without):
        return None
    return f"layer {layer.index}: norms = {layer.norms!r}"


def _unread(spec: Any, place: str) -> str | None:
    kind = type(spec)
    if kind not in READ:
        return f"{place}: {getattr(kind, 'kind', kind.__name__)}"
    for field in fields(spec):
        value, where = getattr(spec, field.name), f"{place}: {field.name}"
        if field.name not in READ[kind]:
            if value != _default(field):
                return f"{where} = {value!r}"
        elif (kind, field.name) in VALUES and value not in VALUES[kind, field.name]:
            return f"{where} = {value!r}"
        elif is_dataclass(value) and (found := _unread(value, where)) is not None:
            return found
    return None


def _default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING
