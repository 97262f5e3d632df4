"""What choosing experts needs: logits, what is done to them, the choice, and the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from day0.inventory.use import Fact, Use, linear, use
from day0.profile.profile import RouterMlp, RouterSpec

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
    rows = experts + spec.skip + spec.shared_choices
    if spec.mlp is not None:
        yield from _mlp(spec.mlp, rows, hidden, eps)
    else:
        yield linear(place, hidden, rows, bias=spec.bias)
    if spec.logit_scale != 1.0:
        yield use("constant_scale", f"{place}.logits", width=experts, factor=spec.logit_scale)
    if spec.logit_softcap is not None:
        yield use("softcap", f"{place}.logits", width=experts, softcap=spec.logit_softcap)
    yield _choice(spec, place)
    if spec.expert_scales:
        yield use("moe_expert_scale", f"{place}.expert_scale", experts=experts, top_k=spec.top_k)


def _mlp(spec: RouterMlp, rows: int, hidden: int, eps: float) -> Iterator[Use]:
    """The logits of a router that is a small MLP, which may go on from that of the layer before."""
    place, width = "ffn.router", spec.width
    yield linear(f"{place}.down_proj", hidden, width, bias=True)
    if spec.carried:
        yield use("multiply", f"{place}.carried_scale", width=width)
        yield use("residual_add", f"{place}.carried", width=width)
    yield use("rms_norm", f"{place}.norm", width=width, eps=eps)
    for name in ("fc1", "fc2"):
        yield linear(f"{place}.{name}", width, width, bias=True)
        yield use("gelu", f"{place}.{name}", width=width, approximate="erf")
    yield linear(place, width, rows)


def _choice(spec: RouterSpec, place: str) -> Use:
    weights: dict[str, Fact] = {
        "experts": spec.num_experts,
        "top_k": spec.top_k,
        "renormalize": spec.renormalize,
        "scaling_factor": spec.scaling_factor,
    }
    choices = spec.num_experts + spec.skip + spec.shared_choices
    if spec.skip:
        assert spec.scoring == "softmax" and spec.correction_bias, "the operator has both"
        return use("moe_router_topk_skip", place, choices=choices, top_k=spec.top_k)
    if spec.shared_choices:
        assert spec.scoring == "sigmoid" and spec.correction_bias and spec.global_scale, "the operator has all"
        return use(
            "moe_router_topk_shared",
            place,
            choices=choices,
            experts=spec.num_experts,
            top_k=spec.top_k,
            shared_experts=spec.shared_choices,
            single=1,
            scaling_factor=spec.scaling_factor,
        )
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
