"""What encoders of images and sounds need, part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from day0.inventory.use import DTYPE_WORDS, Use, linear, use
from day0.profile.profile import ArchitectureProfile, AudioTower, VisionTower
from day0.profile.tower_parts import (
    AxialRotation,
    BranchEnd,
    EncoderAttention,
    EncoderConvolution,
    GatedProduct,
    HeadNorm,
    LearntTable,
    Nonlinearity,
    Part,
    PatchEmbedding,
    PatchMerge,
    PatchPool,
    Projection,
    Stage,
    TowerActivation,
    TowerExperts,
    TowerNorm,
)

_NORMS = {
    "rms": "rms_norm",
    "rms_plus_one": "rms_norm_plus_one",
    "layer": "layer_norm",
    "layer_without_bias": "layer_norm_without_bias",
    "unit": "unit_rms_norm",
}
_GELU_FORMS = {"gelu": "erf", "gelu_tanh": "tanh"}


def tower(spec: VisionTower | AudioTower, profile: ArchitectureProfile) -> Iterator[Use]:
    """All of an encoder's uses in the order of the forward pass, up to its vectors' taking the place of tokens."""
    kind = "vision" if isinstance(spec, VisionTower) else "audio"
    for stage in spec.stages:
        if stage.used:
            yield from _stage(stage, DTYPE_WORDS[profile.dtype])
            # The code of the frame is added to the positions, which no part of its own stores.
            if isinstance(spec, VisionTower) and "frames" in spec.positions and _has_grid(stage.parts):
                yield use("vision_frame_embed", "vision.tower.frames", width=spec.hidden_size)
    yield use("embedding_scatter", f"{kind}.embeddings", width=spec.output_size)
    if any(stage.taps for stage in spec.stages):
        yield use("embedding_scatter_add", f"{kind}.deepstack", width=spec.output_size)


def _has_grid(parts: Sequence[Part]) -> bool:
    return any(isinstance(part, LearntTable) and part.role == "grid" for part in parts)


def _stage(stage: Stage, dtype: str) -> Iterator[Use]:
    path = stage.path.replace(".{block}", "").replace(".{level}", "")
    for part in stage.parts:
        yield from _part(part, path, dtype)


def _part(part: Part, path: str, dtype: str) -> Iterator[Use]:
    match part:
        case PatchEmbedding():
            yield _patch_embedding(part, f"{path}.{part.path}")
        case Projection():
            yield from _projection(part, f"{path}.{part.path}")
        case TowerNorm():
            yield use(_NORMS[part.form], f"{path}.{part.path}", width=part.width, eps=part.eps)
        case HeadNorm():
            sizes = {"heads": part.heads, "kv_heads": part.kv_heads, "head_dim": part.head_dim}
            yield use("qk_norm", f"{path}.{part.path}.qk_norm", eps=part.eps, form="head", **sizes)
        case LearntTable():
            yield from _table(part, f"{path}.{part.path}")
        case AxialRotation():
            yield from _rotation(part, f"{path}.attention.rope")
        case EncoderAttention():
            yield _attention(part, f"{path}.attention")
        case Nonlinearity():
            yield _activation(part.kind, part.width, f"{path}.activation")
        case GatedProduct():
            yield from _gated(part, f"{path}.activation")
        case BranchEnd():
            if part.factor != 1.0:
                yield use("constant_scale", f"{path}.branch", width=part.width, factor=part.factor)
            yield use("residual_add", path, width=part.width)
        case PatchMerge():
            yield use("patch_merge", f"{path}.merge", width=part.width, cell=prod(part.cell))
        case PatchPool():
            yield use("patch_pool", f"{path}.pool", width=part.width, pooled=prod(part.cell), factor=part.factor)
        case EncoderConvolution():
            yield _convolution(part, f"{path}.{part.path}")
        case TowerExperts():
            yield from _experts(part, f"{path}.{part.path}", dtype)


def _patch_embedding(part: PatchEmbedding, place: str) -> Use:
    values = part.channels * prod(part.patch)
    return use(
        "biased_patch_embed" if part.bias else "vision_patch_embed", place, width=part.width, patch_values=values
    )


def _projection(part: Projection, place: str) -> Iterator[Use]:
    if part.bounded:
        yield use("bounds_clamp", f"{place}.input", width=part.inputs, single=1)
    yield linear(place, part.inputs, part.outputs, bias=part.bias)
    if part.bounded:
        yield use("bounds_clamp", f"{place}.output", width=part.outputs, single=1)


def _table(part: LearntTable, place: str) -> Iterator[Use]:
    width = part.shape[-1]
    match part.role:
        case "grid":
            places = prod(part.shape[:-1])
            yield use("vision_grid_embed", place, places=places, width=width, resampling=part.resampling)
        case "positions":
            yield use("vision_place_embed", place, position_axes=1, places=part.shape[0], width=width)
        case "axes":
            axes, places, _ = part.shape
            yield use("vision_place_embed", place, position_axes=axes, places=places, width=width)
        case "tiles":
            yield use("vision_tile_embed", place, aspect_ratios=part.shape[0], tile_values=width, width=part.width)
        case "first":
            yield use("first_token", place, width=width)
        case "gate" | "positions_gate":
            yield use("tanh_gate", place, width=part.width, single=1)
        case "shift":
            yield use("standardize", place, width=width)
        case "scale":
            pass  # of the same operator as the shift
        case "head_scale":
            yield use("softplus_scale", place, head_dim=width, heads=part.width // width)


def _rotation(part: AxialRotation, place: str) -> Iterator[Use]:
    sizes = {"heads": part.heads, "head_dim": part.head_dim, "rope_pairs": part.pairs}
    if part.axes == 1:
        yield use("rope_table", place, rope_pairs=part.pairs, theta=part.theta, scaling="none")
        yield use("rope", place, layout=part.layout, **sizes)
    elif part.axes == 3:
        yield use("vision_rope_3d", place, **sizes)
    elif part.layout == "in_turn":
        yield use("vision_rope_2d", place, **sizes)
    else:
        layout = "neox" if part.layout == "apart" else part.layout
        yield use("vision_axial_rope", place, layout=layout, apart=part.layout == "apart", **sizes)


def _attention(part: EncoderAttention, place: str) -> Use:
    if part.chunk is not None:
        return use(
            "audio_chunk_attention",
            place,
            heads=part.heads,
            head_dim=part.head_dim,
            distances=part.past + part.future + 1,
            scale=part.scale,
            chunk=part.chunk,
            past=part.past,
            future=part.future,
            softcap=part.softcap,
        )
    if place.startswith("audio."):
        return use("audio_attention", place, heads=part.heads, head_dim=part.head_dim, scale=part.scale)
    if part.window is None and part.kv_heads == part.heads:
        return use("vision_attention", place, heads=part.heads, head_dim=part.head_dim, scale=part.scale)
    return use(
        "vision_window_attention",
        place,
        heads=part.heads,
        kv_heads=part.kv_heads,
        head_dim=part.head_dim,
        scale=part.scale,
        window_side=part.window,
    )


def _activation(kind: TowerActivation, width: int, place: str) -> Use:
    if kind in _GELU_FORMS:
        return use("gelu", place, width=width, approximate=_GELU_FORMS[kind])
    return use(kind, place, width=width)


def _gated(part: GatedProduct, place: str) -> Iterator[Use]:
    match part.kind:
        case "sigmoid":
            yield use("sigmoid_gate", place, width=part.width)
        case "silu" if part.limit is not None:
            yield use("clamped_silu_and_mul", place, width=part.width, limit=part.limit)
        case "silu":
            yield use("silu_and_mul", place, width=part.width)
        case "gelu" | "gelu_tanh":
            yield use("gelu_and_mul", place, width=part.width, approximate=_GELU_FORMS[part.kind])
        case _:
            yield _activation(part.kind, part.width, place)
            yield use("multiply", place, width=part.width)


def _convolution(part: EncoderConvolution, place: str) -> Use:
    taps = prod(part.kernel)
    if part.depthwise:
        return use("depthwise_convolution", place, width=part.outputs, taps=taps, bias=part.bias)
    sizes = {"in_features": part.inputs, "out_features": part.outputs, "taps": taps}
    return use("encoder_convolution", place, bias=part.bias, step=part.stride, **sizes)


def _experts(part: TowerExperts, place: str, dtype: str) -> Iterator[Use]:
    yield linear(f"{place}.router", part.hidden, part.experts)
    yield use(
        "moe_router_topk_sigmoid_bias",
        f"{place}.router",
        experts=part.experts,
        top_k=part.top_k,
        renormalize=True,
        scaling_factor=part.scaling,
        correction_bias=True,
        num_groups=1,
        topk_groups=1,
    )
    yield use(
        "routed_experts",
        f"{place}.experts",
        expert_in=part.hidden,
        experts=part.experts,
        top_k=part.top_k,
        expert_width=part.width,
        activation=part.activation,
        weight_format=dtype,
    )
