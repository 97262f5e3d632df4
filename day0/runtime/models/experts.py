"""Routed experts: router, expert weights (plain or packed), latent projections and the shared MLP."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from day0.profile.profile import RoutedExperts, RouterSpec
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.models.feed_forward import GatedMLP, gate_function
from day0.runtime.models.linear import weight
from day0.runtime.ops.routed_experts import ExpertMatrices
from day0.runtime.quant.workspace import ExpertWorkspace


class Router(nn.Module):
    """Scores in float32: x [tokens, hidden] -> weights and expert numbers, [tokens, top_k]."""

    def __init__(self, spec: RouterSpec, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        self.weight = weight(spec.num_experts, build.hidden)
        self.correction_bias = weight(spec.num_experts) if spec.correction_bias else None

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return self.ops["linear"](x.float(), self.weight.float())

    def choose(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        spec = self.spec
        if spec.scoring == "softmax" and not spec.best_of_group:
            choose = self.ops["moe_router_topk_softmax"]
            return choose(logits, spec.top_k, spec.renormalize, spec.scaling_factor, self.correction_bias)
        grouped = "moe_router_group_best_softmax" if spec.best_of_group else "moe_router_topk_sigmoid_bias"
        return self.ops[grouped](
            logits,
            spec.top_k,
            spec.renormalize,
            spec.scaling_factor,
            self.correction_bias,
            spec.num_groups,
            spec.topk_groups,
        )


class PlainMatrix(nn.Module):
    """One projection of all experts, [experts, out, in]."""

    def __init__(self, experts: int, out_features: int, in_features: int) -> None:
        super().__init__()
        self.weight = weight(experts, out_features, in_features)


class PackedMatrix(nn.Module):
    """One projection of all experts, two 4-bit values a byte: packed [experts, out, in / 2], scale [.., in / group]."""

    def __init__(self, experts: int, out_features: int, in_features: int, group_size: int) -> None:
        super().__init__()
        self.packed = _bytes(experts, out_features, in_features // 2)
        self.scale = _bytes(experts, out_features, in_features // group_size)


def _bytes(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape, dtype=torch.uint8), requires_grad=False)


class PlainExperts(nn.Module):
    """Expert weights in the model's dtype."""

    def __init__(self, spec: RoutedExperts, inner: int) -> None:
        super().__init__()
        experts = spec.router.num_experts
        self.gate = PlainMatrix(experts, spec.width, inner)
        self.up = PlainMatrix(experts, spec.width, inner)
        self.down = PlainMatrix(experts, inner, spec.width)

    def matrices(self, experts: list[int]) -> Iterator[ExpertMatrices]:
        for expert in experts:
            yield expert, self.gate.weight[expert], self.up.weight[expert], self.down.weight[expert]


class PackedExperts(nn.Module):
    """Expert weights as stored; the chosen ones are converted into a workspace that all layers share."""

    def __init__(
        self, spec: RoutedExperts, inner: int, group_size: int, workspace: Callable[[], ExpertWorkspace]
    ) -> None:
        super().__init__()
        experts = spec.router.num_experts
        self.gate = PackedMatrix(experts, spec.width, inner, group_size)
        self.up = PackedMatrix(experts, spec.width, inner, group_size)
        self.down = PackedMatrix(experts, inner, spec.width, group_size)
        self._workspace = workspace

    def matrices(self, experts: list[int]) -> Iterator[ExpertMatrices]:
        parts = {"gate": self.gate, "up": self.up, "down": self.down}
        packed = {name: part.packed for name, part in parts.items()}
        scales = {name: part.scale for name, part in parts.items()}
        return self._workspace().convert(experts, packed, scales)


class RoutedBlock(nn.Module):
    """Mixture of experts as a layer's feed-forward, x [tokens, hidden]."""

    def __init__(self, spec: RoutedExperts, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        self.router = Router(spec.router, build)
        hidden = build.hidden
        inner = hidden if spec.latent_dim is None else spec.latent_dim
        self.experts: PlainExperts | PackedExperts
        packing = build.quantization.of("routed_experts") if build.quantization is not None else None
        if packing is not None:
            self.experts = PackedExperts(spec, inner, packing.group_size, build.workspace)
        else:
            self.experts = PlainExperts(spec, inner)
        self.activation = gate_function(spec.activation, build.ops)
        self.latent_down = build.linear(hidden, inner) if spec.latent_dim is not None else None
        self.latent_up = build.linear(inner, hidden) if spec.latent_dim is not None else None
        self.latent_norm = build.norm(inner) if spec.latent_dim is not None and spec.latent_norm else None
        self.shared = GatedMLP(spec.shared_width, spec.activation, build) if spec.shared_width else None

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        logits = self.router.logits(x)
        weights, ids = self.router.choose(logits)
        for name, tensor in (("router_logits", logits), ("topk_weights", weights), ("topk_ids", ids)):
            context.save(f"ffn.{name}", tensor)
        output = self._routed(x, weights, ids, context)
        if self.shared is not None:
            shared = self.shared(x)
            context.save("ffn.shared_out", shared)
            output = output + shared
        return output

    def _routed(self, x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, context: LayerContext) -> torch.Tensor:
        """The routed experts' share; in a latent space where the spec has one (router and shared MLP stay outside)."""
        inputs = x if self.latent_down is None else self.latent_down(x)
        context.save("ffn.latent_in", inputs)
        mixed = self.ops["routed_experts"](
            inputs, weights, ids, self.spec.router.num_experts, self.experts.matrices, self.activation
        )
        context.save("ffn.routed_sum", mixed)
        if self.latent_norm is not None:
            mixed = self.latent_norm(mixed)
            context.save("ffn.latent_norm", mixed)
        if self.latent_up is not None:
            mixed = self.latent_up(mixed)
        context.save("ffn.routed_out", mixed)
        return mixed
