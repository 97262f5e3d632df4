"""Packed experts compute what the same numbers compute unpacked, whatever the workspace holds."""

import pytest
import torch

from day0.profile.packing_formats import mxfp4
from day0.profile.profile import ActivationSpec, QuantizationSpec, RoutedExperts, RouterSpec
from day0.profile.quantization import GroupPacking
from day0.runtime.batch import ForwardBatch
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.models.experts import RoutedBlock, Router
from day0.runtime.ops.registry import choose_operators
from day0.runtime.quant.mxfp4 import MXFP4Decoder
from day0.runtime.quant.workspace import ExpertWorkspace
from day0.runtime.trace import Trace

CPU = torch.device("cpu")
OPS = choose_operators(CPU, torch.float32)
ROUTER = RouterSpec(num_experts=7, top_k=3, scoring="sigmoid", renormalize=True, correction_bias=True)
SPEC = RoutedExperts(ROUTER, width=64, activation=ActivationSpec("situ", 4.0, 25.0), shared_width=32, latent_dim=32)
MXFP4 = QuantizationSpec("compressed-tensors", groups=(GroupPacking("routed_experts", (mxfp4(),), plain=False),))


def context(trace: Trace | None = None) -> LayerContext:
    none = torch.empty(0, dtype=torch.int64)
    return LayerContext(0, ForwardBatch(none, none, none, none, (), trace=trace), None, {})


def blocks(capacity: int) -> tuple[RoutedBlock, RoutedBlock]:
    """A packed block and a plain one that holds the same numbers."""
    room = ExpertWorkspace(capacity, SPEC.width, 32, torch.float32, CPU)
    packed = RoutedBlock(SPEC, Build(48, 1e-5, OPS, lambda: room, quantization=MXFP4))
    plain = RoutedBlock(SPEC, Build(48, 1e-5, OPS, lambda: room))
    decoder = MXFP4Decoder(CPU)
    theirs = dict(plain.named_parameters())
    for name, parameter in packed.named_parameters():
        if name.endswith("packed"):
            parameter.data = torch.randint(0, 256, parameter.shape, dtype=torch.uint8)
        elif name.endswith("scale"):
            parameter.data = torch.randint(122, 126, parameter.shape, dtype=torch.uint8)
        else:
            parameter.data = torch.randn(parameter.shape) / parameter.shape[-1] ** 0.5
            theirs[name].data = parameter.data
    for name in ("gate", "up", "down"):
        matrix = getattr(packed.experts, name)
        unpacked = torch.empty(getattr(plain.experts, name).weight.shape)
        getattr(plain.experts, name).weight.data = decoder.decode(matrix.packed, matrix.scale, unpacked)
    return packed, plain


@pytest.mark.parametrize("tokens", [1, 17, 63])
@pytest.mark.parametrize("capacity", [1, 2, 7])
def test_packed_is_plain(capacity, tokens):
    packed, plain = blocks(capacity)
    x = torch.randn(tokens, 48)
    assert torch.equal(packed(x, context()), plain(x, context()))


def test_routed_and_shared_parts_add_up():
    packed, _ = blocks(7)
    kept, x = Trace(), torch.randn(5, 48)
    output = packed(x, context(kept))
    parts = [kept.tensors[f"layers.0.ffn.{name}_out"] for name in ("routed", "shared")]
    assert torch.equal(output, parts[0] + parts[1])
    assert all(part.abs().max() > 1e-3 for part in parts)


def test_router_scores_in_float32_whatever_the_model_is():
    router = Router(ROUTER, Build(48, 1e-5, OPS, lambda: pytest.fail("not packed")))
    router.weight.data = torch.randn(7, 48).bfloat16()
    logits = router.logits(torch.randn(3, 48).bfloat16())
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float()), "products are not rounded on the way"
