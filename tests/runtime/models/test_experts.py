"""The block of routed experts: what its parts add up to, and in which dtype it routes."""

import torch

from day0.profile.profile import ActivationSpec, RoutedExperts, RouterSpec
from day0.runtime.batch import ForwardBatch
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.models.experts import RoutedBlock, Router
from day0.runtime.ops.registry import choose_operators
from day0.runtime.trace import Trace

CPU = torch.device("cpu")
OPS = choose_operators(CPU, torch.float32)
ROUTER = RouterSpec(num_experts=7, top_k=3, scoring="sigmoid", renormalize=True, correction_bias=True)
SPEC = RoutedExperts(ROUTER, width=64, activation=ActivationSpec("situ", 4.0, 25.0), shared_width=32, latent_dim=32)


def context(trace: Trace | None = None) -> LayerContext:
    none = torch.empty(0, dtype=torch.int64)
    return LayerContext(0, ForwardBatch(none, none, none, none, (), trace=trace), None, {})


def block() -> RoutedBlock:
    found = RoutedBlock(SPEC, Build(48, 1e-5, OPS))
    for parameter in found.parameters():
        parameter.data = torch.randn(parameter.shape) / parameter.shape[-1] ** 0.5
    return found


def test_routed_and_shared_parts_add_up():
    kept, x = Trace(), torch.randn(5, 48)
    output = block()(x, context(kept))
    parts = [kept.tensors[f"layers.0.ffn.{name}_out"] for name in ("routed", "shared")]
    assert torch.equal(output, parts[0] + parts[1])
    assert all(part.abs().max() > 1e-3 for part in parts)


def test_router_scores_in_float32_whatever_the_model_is():
    router = Router(ROUTER, Build(48, 1e-5, OPS))
    router.weight.data = torch.randn(7, 48).bfloat16()
    logits = router.logits(torch.randn(3, 48).bfloat16())
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float()), "products are not rounded on the way"
