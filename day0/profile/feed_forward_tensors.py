"""The tensors of each feed-forward block, by paths relative to the layer: one function per spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.errors import InputError
from day0.profile.draft import Draft
from day0.profile.feed_forward import DenseFeedForward, NoFeedForward, RoutedExperts, RouterSpec
from day0.profile.linear_tensors import linear_map_drafts
from day0.profile.mixers_linear import LinearMap
from day0.profile.quantization import QuantizationSpec


def mlp_drafts(
    path: str, hidden: int, width: int, group: str, bias: bool = False, gated: bool = True
) -> Iterator[Draft]:
    for name in ("gate", "up") if gated else ("up",):
        yield Draft(f"{path}.{name}_proj.weight", (width, hidden), group, 0, width)
        if bias:
            yield Draft(f"{path}.{name}_proj.bias", (width,), group, 0, width)
    yield Draft(f"{path}.down_proj.weight", (hidden, width), group, 1, width)
    if bias:
        yield Draft(f"{path}.down_proj.bias", (hidden,), group)


def dense_drafts(spec: DenseFeedForward, hidden: int, quantization: QuantizationSpec | None) -> Iterator[Draft]:
    del quantization
    yield from mlp_drafts("ffn", hidden, spec.width, "dense_mlp", spec.bias, spec.gated)


def routed_drafts(spec: RoutedExperts, hidden: int, quantization: QuantizationSpec | None) -> Iterator[Draft]:
    if spec.parallel is not None:
        yield from mlp_drafts("ffn.parallel", hidden, spec.parallel.width, "dense_mlp", spec.parallel.bias)
        for norm in ("parallel_post_norm", "experts_norm", "experts_post_norm"):
            yield Draft(f"ffn.{norm}.weight", (hidden,), "norm")
    yield from _router_drafts(spec.router, hidden)
    latent = hidden if spec.latent_dim is None else spec.latent_dim
    if spec.latent_dim is not None:
        yield Draft("ffn.latent_down.weight", (latent, hidden), "latent_moe_proj")
        yield Draft("ffn.latent_up.weight", (hidden, latent), "latent_moe_proj")
        if spec.latent_input_norm:
            yield Draft("ffn.latent_input_norm.weight", (latent,), "norm")
        if spec.latent_norm:
            yield Draft("ffn.latent_norm.weight", (latent,), "latent_moe_proj")
    if spec.expert_norm:
        yield Draft("ffn.experts.norm.weight", (latent,), "routed_experts")
    if spec.shared_width:
        yield from mlp_drafts("ffn.shared", hidden, spec.shared_width, "shared_experts", spec.shared_bias, spec.gated)
        if spec.shared_gate:
            yield Draft("ffn.shared_gate.weight", (1, hidden), "shared_experts")
    yield from _expert_drafts(spec, latent, quantization)


def _router_drafts(spec: RouterSpec, hidden: int) -> Iterator[Draft]:
    experts = spec.num_experts
    yield Draft("ffn.router.weight", (experts, hidden), "router")
    if spec.bias:
        yield Draft("ffn.router.bias", (experts,), "router")
    if spec.correction_bias:
        yield Draft("ffn.router.correction_bias", (experts,), "router", dtype="F32", keep_float32=True)
    if spec.hash_rows:
        yield Draft("ffn.router.table", (spec.hash_rows, spec.top_k), "router", parameters=0, dtype="I64")
    if spec.scaled_input:
        yield Draft("ffn.router.scale", (hidden,), "router")
    if spec.expert_scales:
        yield Draft("ffn.router.expert_scale", (experts,), "router")


def _expert_drafts(spec: RoutedExperts, latent: int, quantization: QuantizationSpec | None) -> Iterator[Draft]:
    packed = quantization if quantization and "routed_experts" in quantization.targets else None
    experts, width = spec.router.num_experts, spec.width
    for name, shape, axis in (("gate", (width, latent), 0), ("up", (width, latent), 0), ("down", (latent, width), 1)):
        if name == "gate" and not spec.gated:
            continue
        path = f"ffn.experts.{name}"
        yield from _expert_matrix(path, shape, axis, experts, packed)
        if spec.bias:
            # The biases of gate and up are cut with their rows; down's is added once, to the sum.
            cut, units = (0, width) if axis == 0 else (None, 1)
            yield Draft(f"{path}.bias", shape[:1], "routed_experts", cut, units, experts=experts)


def _expert_matrix(
    path: str, shape: tuple[int, int], axis: int, experts: int, packed: QuantizationSpec | None
) -> Iterator[Draft]:
    """One projection of every expert, plain or packed (two 4-bit values a byte, one scale byte a group)."""
    group, (rows, columns) = "routed_experts", shape
    if packed is None:
        yield Draft(f"{path}.weight", shape, group, axis, shape[axis], experts=experts)
        return
    if columns % packed.group_size:
        raise InputError(
            f"rows of {columns} values do not split into groups of {packed.group_size} ({packed.format})",
            where=path,
            hint="the widths of the routed experts and the quantisation section contradict each other",
        )
    # The expert's inner width is cut, and down's groups run along it: a cut must fall between groups.
    units = shape[axis] // packed.group_size
    yield Draft(f"{path}.packed", (rows, columns // 2), group, axis, units, rows * columns, "U8", experts)
    yield Draft(f"{path}.scale", (rows, columns // packed.group_size), group, axis, units, 0, "U8", experts)


FEED_FORWARD_DRAFTS: Mapping[type, Callable[[Any, int, QuantizationSpec | None], Iterator[Draft]]] = {
    DenseFeedForward: dense_drafts,
    RoutedExperts: routed_drafts,
    LinearMap: lambda spec, hidden, quantization: linear_map_drafts(spec, hidden, "ffn", "dense_mlp"),
    NoFeedForward: lambda spec, hidden, quantization: iter(()),
}
"""Called with the spec, the model's hidden size and how its weights are packed."""
