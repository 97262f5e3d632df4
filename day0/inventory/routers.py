"""What choosing experts needs: logits, what is done to them, the choice, and the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from day0.inventory.use import Fact, Use, linear, use
from day0.profile.profile import RouterSpec

_SCORED: Mapping[str, str] = {
    "softmax": "moe_router_topk_softmax",
    "sigmoid": "moe_router_topk_sigmoid_bias",
    "sqrtsoftplus": "moe_router_topk_sqrtsoftplus_bias",
    "sparsemixer": "moe_router_sparsemixer",
}


def router(spec: RouterSpec, hidden: int, eps: float) -> Iterator[Use]:
    place, experts = "ffn.router", spec.num_experts
    if spec.scaled_input:
        yield use("rms_norm", f"{place}.scale", width=hidden, eps=eps)
        yield use("constant_scale", f"{place}.scale", width=hidden, factor=hidden**-0.5)
    yield linear(place, hidden, experts, bias=spec.bias)
    if spec.logit_scale != 1.0:
        yield use("constant_scale", f"{place}.logits", width=experts, factor=spec.logit_scale)
    if spec.logit_softcap is not None:
        yield use("softcap", f"{place}.logits", width=experts, softcap=spec.logit_softcap)
    yield _choice(spec, place)
    if spec.expert_scales:
        yield use("moe_expert_scale", f"{place}.expert_scale", experts=experts, top_k=spec.top_k)


def _choice(spec: RouterSpec, place: str) -> Use:
    weights: dict[str, Fact] = {
        "experts": spec.num_experts,
        "top_k": spec.top_k,
        "renormalize": spec.renormalize,
        "scaling_factor": spec.scaling_factor,
    }
    if spec.hash_rows:
        return use("moe_router_hash", place, table_rows=spec.hash_rows, scoring=spec.scoring, **weights)
    if spec.choose_logits and spec.correction_bias and spec.scoring == "sigmoid":
        return use("moe_router_topk_logit_bias", place, **weights)
    name = "moe_router_group_best_softmax" if spec.best_of_group else _SCORED[spec.scoring]
    return use(
        name,
        place,
        correction_bias=spec.correction_bias,
        num_groups=spec.num_groups,
        topk_groups=spec.topk_groups,
        **weights,
    )
