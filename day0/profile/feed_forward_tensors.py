"""The tensors of each feed-forward block, by paths relative to the layer: one function per spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.profile.draft import Draft
from day0.profile.feed_forward import DenseFeedForward, NoFeedForward, RoutedExperts, RouterMlp, RouterSpec
from day0.profile.linear_tensors import linear_map_drafts
from day0.profile.mixers_linear import LinearMap


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


def dense_drafts(spec: DenseFeedForward, hidden: int) -> Iterator[Draft]:
    yield from mlp_drafts("ffn", hidden, spec.width, "dense_mlp", spec.bias, spec.gated)
    if spec.global_scale:
        yield Draft("ffn.global_scale", (1,), "dense_mlp")


def routed_drafts(spec: RoutedExperts, hidden: int) -> Iterator[Draft]:
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
        yield from _shared_drafts(spec, hidden)
        if spec.shared_gate:
            yield Draft("ffn.shared_gate.weight", (1, hidden), "shared_experts")
    yield from _expert_drafts(spec, latent)


def _router_drafts(spec: RouterSpec, hidden: int) -> Iterator[Draft]:
    experts = spec.num_experts
    rows = experts + spec.skip + spec.shared_choices
    if spec.mlp is None:
        yield Draft("ffn.router.weight", (rows, hidden), "router")
    else:
        yield from _router_mlp_drafts(spec.mlp, rows, hidden)
    if spec.bias:
        yield Draft("ffn.router.bias", (experts,), "router")
    if spec.correction_bias:
        size = experts + spec.skip
        yield Draft("ffn.router.correction_bias", (size,), "router", dtype="F32", keep_float32=True)
    if spec.global_scale:
        yield Draft("ffn.router.global_scale", (1,), "router", dtype="F32", keep_float32=True)
    if spec.hash_rows:
        yield Draft("ffn.router.table", (spec.hash_rows, spec.top_k), "router", parameters=0, dtype="I64")
    if spec.scaled_input:
        yield Draft("ffn.router.scale", (hidden,), "router")
    if spec.expert_scales:
        yield Draft("ffn.router.expert_scale", (experts,), "router")


def _router_mlp_drafts(spec: RouterMlp, rows: int, hidden: int) -> Iterator[Draft]:
    width = spec.width
    for name, shape in (("down_proj", (width, hidden)), ("fc1", (width, width)), ("fc2", (width, width))):
        yield Draft(f"ffn.router.{name}.weight", shape, "router")
        yield Draft(f"ffn.router.{name}.bias", (width,), "router")
    yield Draft("ffn.router.norm.weight", (width,), "router")
    yield Draft("ffn.router.weight", (rows, width), "router")
    if spec.carried:
        yield Draft("ffn.router.carried_scale", (width,), "router")


def _shared_drafts(spec: RoutedExperts, hidden: int) -> Iterator[Draft]:
    """One MLP, or, where the router weighs them, the shared experts one after another along a first axis."""
    count, group = spec.router.shared_choices, "shared_experts"
    if not count:
        yield from mlp_drafts("ffn.shared", hidden, spec.shared_width, group, spec.shared_bias, spec.gated)
        return
    width = spec.shared_width // count
    for name in ("gate", "up"):
        yield Draft(f"ffn.shared.{name}_proj.weight", (count, width, hidden), group, 1, width)
    yield Draft("ffn.shared.down_proj.weight", (count, hidden, width), group, 2, width)


def _expert_drafts(spec: RoutedExperts, latent: int) -> Iterator[Draft]:
    experts, width = spec.router.num_experts, spec.width
    for name, shape, axis in (("gate", (width, latent), 0), ("up", (width, latent), 0), ("down", (latent, width), 1)):
        if name == "gate" and not spec.gated:
            continue
        path = f"ffn.experts.{name}"
        yield Draft(f"{path}.weight", shape, "routed_experts", axis, shape[axis], experts=experts)
        if spec.bias:
            # The biases of gate and up are cut with their rows; down's is added once, to the sum.
            cut, units = (0, width) if axis == 0 else (None, 1)
            yield Draft(f"{path}.bias", shape[:1], "routed_experts", cut, units, experts=experts)


FEED_FORWARD_DRAFTS: Mapping[type, Callable[[Any, int], Iterator[Draft]]] = {
    DenseFeedForward: dense_drafts,
    RoutedExperts: routed_drafts,
    LinearMap: lambda spec, hidden: linear_map_drafts(spec, hidden, "ffn", "dense_mlp"),
    NoFeedForward: lambda spec, hidden: iter(()),
}
"""Called with the spec and the model's hidden size."""
