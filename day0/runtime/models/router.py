"""The router of a mixture of experts: logits, what is done to them, the choice, and the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from day0.profile.profile import RouterSpec, Scoring
from day0.runtime.models.build import Build
from day0.runtime.models.linear import weight

CHOICES: Mapping[Scoring, str] = {
    "softmax": "moe_router_topk_softmax",
    "sigmoid": "moe_router_topk_sigmoid_bias",
    "sqrtsoftplus": "moe_router_topk_sqrtsoftplus_bias",
    "sparsemixer": "moe_router_sparsemixer",
}
"""The operator that chooses and weighs by each kind of score."""

SCORES: Mapping[Scoring, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": partial(torch.softmax, dim=-1),
    "sigmoid": torch.sigmoid,
    "sqrtsoftplus": lambda logits: functional.softplus(logits).sqrt(),
    "sparsemixer": lambda logits: logits,
}
"""The scores themselves, for a trace: the operators keep theirs to themselves."""


class Router(nn.Module):
    """Scores in float32: x [tokens, hidden] -> weights and expert numbers, [tokens, top_k]."""

    def __init__(self, spec: RouterSpec, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        self.weight = weight(spec.num_experts, build.hidden)
        self.bias = weight(spec.num_experts) if spec.bias else None
        self.correction_bias = weight(spec.num_experts) if spec.correction_bias else None
        self.input_norm = build.unit_norm() if spec.scaled_input else None
        self.scale = weight(build.hidden) if spec.scaled_input else None
        self.expert_scale = weight(spec.num_experts) if spec.expert_scales else None
        self.table = _ids(spec.hash_rows, spec.top_k) if spec.hash_rows else None

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, experts] float32."""
        spec = self.spec
        if self.input_norm is not None and self.scale is not None:
            x = self.ops["constant_scale"](self.input_norm(x) * self.scale, x.shape[-1] ** -0.5)
        bias = None if self.bias is None else self.bias.float()
        logits = self.ops["linear"](x.float(), self.weight.float(), bias)
        if spec.logit_scale != 1.0:
            logits = self.ops["constant_scale"](logits, spec.logit_scale)
        return logits if spec.logit_softcap is None else self.ops["softcap"](logits, spec.logit_softcap)

    def choose(self, logits: torch.Tensor, token_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights float32 and expert numbers, [tokens, top_k]; `token_ids` [tokens] are for routers with a table."""
        weights, ids = self._choose(logits, token_ids)
        if self.expert_scale is not None:
            weights = self.ops["moe_expert_scale"](weights, ids, self.expert_scale)
        return weights, ids

    def choice_scores(self, logits: torch.Tensor) -> torch.Tensor:
        """What a router with a correction bias chooses by, before groups are ruled out: [tokens, experts] float32."""
        assert self.correction_bias is not None, "without a bias the logits say the order"
        scores = logits if self.spec.choose_logits else SCORES[self.spec.scoring](logits)
        return scores + self.correction_bias.float()

    def _choose(self, logits: torch.Tensor, token_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        spec = self.spec
        weighing = (spec.renormalize, spec.scaling_factor)
        if self.table is not None:
            return self.ops["moe_router_hash"](logits, token_ids, self.table, spec.scoring, *weighing)
        if spec.choose_logits and self.correction_bias is not None:
            assert spec.scoring == "sigmoid", "the operator has these scores alone"
            return self.ops["moe_router_topk_logit_bias"](logits, spec.top_k, *weighing, self.correction_bias)
        operator = "moe_router_group_best_softmax" if spec.best_of_group else CHOICES[spec.scoring]
        groups = (spec.num_groups, spec.topk_groups)
        return self.ops[operator](logits, spec.top_k, *weighing, self.correction_bias, *groups)


def _ids(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape, dtype=torch.int64), requires_grad=False)
