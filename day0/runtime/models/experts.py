"""Routed experts as a block: router, experts, latent projections, the shared MLP and one beside them."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.profile import DenseFeedForward, RoutedExperts
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.models.expert_weights import PackedExperts, PlainExperts
from day0.runtime.models.feed_forward import MLP, gate_function, plain_function
from day0.runtime.models.router import Router
from day0.runtime.parallel.dispatch import dispatch


class RoutedBlock(nn.Module):
    """Mixture of experts as a layer's feed-forward, x [tokens, hidden].

    Where ranks share the layer, what it gives is this rank's part of a sum over those that cut the layer with it. Each
    of them sends some of the tokens to the ranks that have their experts, where experts are dealt out whole.
    """

    def __init__(self, spec: RoutedExperts, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        self.ranks = build.ranks
        self.router = Router(spec.router, build)
        hidden = build.hidden
        inner = hidden if spec.latent_dim is None else spec.latent_dim
        self.inner, self.num_own = inner, len(build.ranks.experts(spec.router.num_experts))
        self.experts: PlainExperts | PackedExperts = PlainExperts(spec, inner, self.num_own)
        self.activation = (gate_function if spec.gated else plain_function)(spec.activation, build.ops)
        self.operator = _operator(spec)
        self.latent_down = build.linear(hidden, inner) if spec.latent_dim is not None else None
        self.latent_up = build.linear(inner, hidden) if spec.latent_dim is not None else None
        self.latent_input_norm = build.norm(inner) if spec.latent_dim is not None and spec.latent_input_norm else None
        self.latent_norm = build.norm(inner) if spec.latent_dim is not None and spec.latent_norm else None
        self.shared = MLP(_shared(spec), build) if spec.shared_width else None
        self.shared_gate = build.linear(hidden, 1) if spec.shared_width and spec.shared_gate else None

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        output = self._routed(x, *self._choose(x, context), context)
        if self.shared is not None:
            shared = self.shared(x)
            if self.shared_gate is not None:
                shared = self.ops["token_sigmoid_gate"](shared, self.shared_gate(x)[:, 0])
            context.save("ffn.shared_out", shared)
            output = output + shared
        return output

    def _choose(self, x: torch.Tensor, context: LayerContext) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights and expert numbers, [tokens, top_k]."""
        logits = self.router.logits(x)
        weights, ids = self.router.choose(logits, context.batch.token_ids)
        context.save("ffn.router_logits", logits)
        if self.router.correction_bias is not None and context.wants("ffn.choice_scores"):
            context.save("ffn.choice_scores", self.router.choice_scores(logits))
        context.save("ffn.topk_weights", weights)
        context.save("ffn.topk_ids", ids)
        return _replayed(weights, ids, context)

    def _routed(self, x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, context: LayerContext) -> torch.Tensor:
        """The routed experts' share; in a latent space where the spec has one (router and shared MLP stay outside)."""
        if self.ranks.layout.ep == 1 or self.ranks.tp.alone:
            return self._through_experts(x, weights, ids, context)
        own = self.ranks.tp.own(len(x))
        rows, output = slice(own.start, own.stop), torch.zeros_like(x)
        output[rows] = self._through_experts(x[rows], weights[rows], ids[rows], context)
        return output

    def _through_experts(
        self, x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, context: LayerContext
    ) -> torch.Tensor:
        inputs = x if self.latent_down is None else self.latent_down(x)
        if self.latent_input_norm is not None:
            inputs = self.latent_input_norm(inputs)
        context.save("ffn.latent_in", inputs)
        if self.ranks.layout.ep > 1:
            mixed = dispatch(inputs, weights, ids, self.spec.router.num_experts, self.ranks, self._run)
        else:
            mixed = self._run(inputs, weights, ids)
        cut = self.latent_norm is not None and self.ranks.layout.ep == 1
        if cut:  # a norm reads the sum of all ranks, and what follows is then the same on each
            mixed = self.ranks.tp.sum(mixed)
        context.save("ffn.routed_sum", mixed)
        if self.latent_norm is not None:
            mixed = self.latent_norm(mixed)
            context.save("ffn.latent_norm", mixed)
        if self.latent_up is not None:
            mixed = self.latent_up(mixed)
        context.save("ffn.routed_out", mixed)
        return self.ranks.tp.once(mixed) if cut else mixed

    def _run(self, inputs: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """The weighted sum over experts that this rank has, by their numbers here."""
        experts = self.experts
        return self.ops[self.operator](
            inputs, weights, ids, self.num_own, experts.matrices, self.activation, experts.stacked()
        )

    def serve_others(self, x: torch.Tensor) -> None:
        """Take part in the exchange without tokens of one's own; x [0, hidden] gives dtype and device."""
        if self.ranks.layout.ep > 1:
            top_k, num_experts = self.spec.router.top_k, self.spec.router.num_experts
            nothing = x.new_empty(0, top_k, dtype=torch.int64)
            dispatch(x.new_empty(0, self.inner), x.new_empty(0, top_k), nothing, num_experts, self.ranks, self._run)


class ParallelExpertsBlock(RoutedBlock):
    """Experts that read the residual stream beside a dense MLP that reads its norm; each with norms of its own."""

    def __init__(self, spec: RoutedExperts, build: Build) -> None:
        super().__init__(spec, build)
        assert spec.parallel is not None
        self.parallel = MLP(spec.parallel, build)
        self.parallel_post_norm = build.norm(build.hidden)
        self.experts_norm = build.norm(build.hidden)
        self.experts_post_norm = build.norm(build.hidden)

    def forward(self, x: torch.Tensor, context: LayerContext, stream: torch.Tensor | None = None) -> torch.Tensor:
        """x is what the layer's norm gives of `stream`, both [tokens, hidden]."""
        assert stream is not None, "the layer hands the stream over where experts stand beside an MLP"
        dense = self.parallel_post_norm(self.ranks.tp.sum(self.parallel(x)))
        context.save("ffn.parallel_out", dense)
        weights, ids = self._choose(stream, context)
        routed = self.ranks.tp.sum(self._routed(self.experts_norm(stream), weights, ids, context))
        return self.ranks.tp.once(dense + self.experts_post_norm(routed))


def _replayed(weights: torch.Tensor, ids: torch.Tensor, context: LayerContext) -> tuple[torch.Tensor, torch.Tensor]:
    """The choice of another run for the tokens where it differs, with that run's weights: nothing here weighs those."""
    other_ids = context.replacement("ffn.topk_ids", ids)
    other_weights = context.replacement("ffn.topk_weights", weights)
    if other_ids is None or other_weights is None:
        return weights, ids
    differ = (ids.sort(dim=-1).values != other_ids.sort(dim=-1).values).any(dim=-1, keepdim=True)
    return torch.where(differ, other_weights, weights), torch.where(differ, other_ids, ids)


def routed_block(spec: RoutedExperts, build: Build) -> RoutedBlock:
    """The block of a mixture of experts, with a dense MLP beside them or not."""
    return RoutedBlock(spec, build) if spec.parallel is None else ParallelExpertsBlock(spec, build)


def _shared(spec: RoutedExperts) -> DenseFeedForward:
    """The shared experts as one MLP."""
    activation = spec.shared_activation or spec.activation
    return DenseFeedForward(spec.shared_width, activation, spec.shared_bias, spec.gated)


def _operator(spec: RoutedExperts) -> str:
    if spec.bias:
        return "biased_routed_experts"
    if spec.weights_on_input:
        return "input_weighted_experts"
    return "routed_experts" if spec.gated else "routed_experts_ungated"
