import pytest
import torch
from torch.nn import functional

from day0.runtime.ops import relaid_linear
from day0.runtime.ops.registry import KERNELS, REFERENCE, choose_operators

CPU = torch.device("cpu")
VERIFIED = [("linear", "onednn-relaid"), ("lm_head", "onednn-relaid"), ("biased_lm_head", "onednn-relaid")]


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


@pytest.mark.parametrize(("outs", "ins"), [(1, 1), (7, 5), (63, 100), (300, 33), (192, 576)])
@pytest.mark.parametrize("tokens", [0, 1, 2, 31, 63])
def test_relaid_matrices_multiply_like_the_reference_bit_for_bit(tokens: int, outs: int, ins: int) -> None:
    x, weight, bias = drawn(tokens, ins), drawn(outs, ins), drawn(outs)
    blocks = relaid_linear.relaid(weight)
    assert torch.equal(blocks.to_dense(), weight)
    for added in (None, bias):
        assert torch.equal(relaid_linear.linear(x, blocks, added), functional.linear(x, weight, added))
    assert torch.equal(relaid_linear.lm_head(x, blocks), functional.linear(x, weight).float())
    assert torch.equal(relaid_linear.biased_lm_head(x, blocks, bias), functional.linear(x, weight, bias).float())


def test_plain_rows_are_taken_too() -> None:
    x, weight = drawn(3, 8).float(), drawn(5, 8).float()  # a router's product is in float32 whatever the model's dtype
    assert torch.equal(relaid_linear.linear(x, weight), x @ weight.T)
    assert torch.equal(relaid_linear.lm_head(x, weight.bfloat16()), x @ weight.T)


def test_it_is_chosen_in_bfloat16_alone() -> None:
    for dtype, provider in ((torch.bfloat16, "onednn-relaid"), (torch.float32, REFERENCE), (torch.float16, REFERENCE)):
        ops = choose_operators(CPU, dtype, VERIFIED)
        assert {choice.provider for choice in ops.choices if choice.operator == "linear"} == {provider}
        assert set(ops.layouts) == ({name for name, _ in VERIFIED} if provider != REFERENCE else set())


def test_an_operator_that_is_replaced_keeps_no_layout() -> None:
    ops = choose_operators(CPU, torch.bfloat16, VERIFIED).replaced("linear", functional.linear)
    assert set(ops.layouts) == {"lm_head", "biased_lm_head"}
    assert KERNELS["linear"][-1].layout is None
