"""What the blocks of this room read of each spec. Anything else a profile asks for is refused, never passed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any

from day0.profile.feed_forward import ActivationSpec, DenseFeedForward, NoFeedForward, RoutedExperts, RouterSpec
from day0.profile.grouped_query import GroupedQueryAttention, OutputGate, QueryTemperature
from day0.profile.hyper_connections import HyperConnections
from day0.profile.latent_attention import LatentAttention
from day0.profile.mixers import KimiDeltaAttention, NoMixer
from day0.profile.mixers_convolved import ParallelMixers
from day0.profile.mixers_linear import GatedDeltaNet, LightningAttention, LinearMap, Mamba, Mamba2, ShortConvolution
from day0.profile.mixers_sparse import (
    BlockIndexer,
    BlockSparseAttention,
    CompressedSparseAttention,
    HeavilyCompressedAttention,
    IndexerSpec,
    SharedKeyValueAttention,
    SparseLatentAttention,
)
from day0.profile.positions import RopeSpec
from day0.profile.profile import ArchitectureProfile, LayerSpec
from day0.profile.residuals import (
    AttentionResidual,
    ParallelResidual,
    PlainResidual,
    ScaledResidual,
    WeighedResidual,
)
from day0.runtime.ops.rope import SCALINGS

READ: Mapping[type, tuple[str, ...]] = {
    LayerSpec: (
        *("index", "mixer", "feed_forward", "residual", "norms", "unit_norms", "post_norm_eps"),
        *("gated_norms", "norm_gate_rank"),
    ),
    GroupedQueryAttention: (
        *("num_heads", "num_kv_heads", "head_dim", "rope", "scale", "qk_norm", "qkv_bias", "o_bias"),
        *("window", "chunked", "v_head_dim", "output_gate", "sinks", "norm_after_rope", "values_are_keys"),
        *("value_norm", "output_norm", "value_scale", "softcap", "temperature", "cache_of"),
    ),
    QueryTemperature: ("floor", "scale", "offset"),
    LatentAttention: (
        *("num_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
        *("rope", "scale", "latent_norm_eps", "output_gate", "bias", "window", "sinks"),
        *("rope_key_norm", "scaled_latents", "raw_query_latent", "temperature"),
    ),
    SparseLatentAttention: ("attention", "top_k", "indexer"),
    SharedKeyValueAttention: (
        *("num_heads", "head_dim", "q_lora_rank", "o_groups", "o_lora_rank", "rope", "scale", "window", "norm_eps"),
    ),
    HeavilyCompressedAttention: ("attention", "ratio"),
    CompressedSparseAttention: ("attention", "ratio", "indexer"),
    IndexerSpec: ("num_heads", "head_dim", "top_k", "rope", "norm_eps", "rope_last", "pool", "pool_tail"),
    BlockSparseAttention: ("attention", "indexer"),
    BlockIndexer: ("num_heads", "head_dim", "block", "top_k", "local_blocks", "rope"),
    OutputGate: ("per", "activation", "in_query"),
    KimiDeltaAttention: (
        *("num_heads", "head_dim", "conv_kernel", "gate_lower_bound", "full_rank_gate", "norm_eps"),
        *("full_rank_decay", "decay_rates"),
    ),
    GatedDeltaNet: (
        *("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel", "norm_eps"),
        "negative_eigenvalues",
    ),
    LightningAttention: ("num_heads", "head_dim", "norm_groups", "norm_eps", "qkv_activation"),
    Mamba: (
        *("width", "state_size", "step_rank", "conv_kernel", "conv_bias", "proj_bias"),
        *("inner_norms", "norm_eps"),
    ),
    Mamba2: (
        *("num_heads", "head_dim", "num_groups", "state_size", "conv_kernel", "conv_bias", "proj_bias", "norm_eps"),
        *("norm", "norm_first", "step_limit"),
    ),
    ParallelMixers: (
        *("attention", "state_space", "attention_in", "attention_out", "key_scale", "state_in", "state_out"),
        "projection_scales",
    ),
    ShortConvolution: ("width", "conv_kernel", "bias"),
    LinearMap: ("bias",),
    NoMixer: (),
    NoFeedForward: (),
    RopeSpec: (
        *("theta", "dim", "layout", "scaling", "parameters", "sections", "interleaved_sections"),
        *("short_factors", "long_factors"),
    ),
    DenseFeedForward: ("width", "activation", "bias", "gated", "global_scale", "gate_scale", "down_scale"),
    ActivationSpec: ("name", "beta", "linear_beta", "alpha", "limit"),
    RoutedExperts: (
        *("router", "width", "activation", "gated", "bias", "weights_on_input", "parallel"),
        *("shared_width", "shared_activation", "shared_bias", "shared_gate"),
        *("latent_dim", "latent_norm", "latent_input_norm"),
    ),
    RouterSpec: (
        *("num_experts", "top_k", "scoring", "renormalize", "scaling_factor", "correction_bias", "bias"),
        *("num_groups", "topk_groups", "best_of_group", "logit_scale", "logit_softcap", "choose_logits"),
        *("scaled_input", "expert_scales", "hash_rows"),
    ),
    PlainResidual: ("branch_scale",),
    ParallelResidual: ("branch_scale",),
    ScaledResidual: (),
    WeighedResidual: ("mixer_skip", "mixer_branch", "ffn_skip", "ffn_branch", "normed"),
    AttentionResidual: ("block_size",),
    HyperConnections: ("streams", "eps", "sinkhorn_iterations", "write_scale", "learned_head"),
}
"""By spec, the fields that its block acts on; the others must have their default."""

VALUES: Mapping[tuple[type, str], tuple[Any, ...]] = {
    (RopeSpec, "scaling"): SCALINGS,
    (LightningAttention, "norm_groups"): (1,),
}
"""The values of a field that its block knows, where it does not know them all."""


def missing_part(profile: ArchitectureProfile) -> str | None:
    """The first thing a profile asks for that these blocks do not do, by its place; None if they do it all."""
    seen: set[LayerSpec] = set()
    for layer in profile.layers:
        alike = replace(layer, index=0)
        if alike not in seen:  # one look at layers that are the same
            found = _unread(layer, f"layer {layer.index}") or _odd_parts(layer)
            if found is not None:
                return found
            seen.add(alike)
    return None


_PLACES = {"mixer_norm", "mixer_post_norm", "ffn_norm", "ffn_post_norm", "layer_input_norm"}
"""Places of norms that a layer has."""


def _odd_parts(layer: LayerSpec) -> str | None:
    """What no field alone shows: norms in other places, rules of rotation and gates without a meaning here."""
    place = f"layer {layer.index}"
    if strange := {*layer.norms, *layer.unit_norms} - _PLACES:
        return f"{place}: norms in {', '.join(sorted(strange))}"
    rope = getattr(layer.mixer, "rope", None)
    if isinstance(rope, RopeSpec) and rope.sections and sum(rope.sections) != rope.dim // 2:
        return f"{place}: rotary sections {list(rope.sections)} for {rope.dim // 2} pairs of channels"
    if isinstance(rope, RopeSpec) and rope.follows_length and (lacking := _unknown_lengths(rope, layer)) is not None:
        return f"{place}: rope scaling {rope.scaling!r} {lacking}"
    block = layer.feed_forward
    if isinstance(block, DenseFeedForward | RoutedExperts) and not _activates(block.activation, block.gated):
        return f"{place}: activation {block.activation.name!r} of an MLP that is{'' if block.gated else ' not'} gated"
    return None


def _unknown_lengths(rope: RopeSpec, layer: LayerSpec) -> str | None:
    """What a rotation that follows the length cannot do without."""
    needed = ["original_max_position_embeddings"] if rope.scaling == "longrope" else ["factor", "trained_length"]
    if missing := [name for name in needed if name not in dict(rope.parameters)]:
        return f"without {' and '.join(missing)}"
    if isinstance(layer.mixer, SharedKeyValueAttention | HeavilyCompressedAttention | CompressedSparseAttention):
        return "in compressed attention"
    return None


def _activates(activation: ActivationSpec, gated: bool) -> bool:
    return activation.name != "relu2" if gated else activation.name in ("relu2", "silu", "gelu", "gelu_tanh")


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
