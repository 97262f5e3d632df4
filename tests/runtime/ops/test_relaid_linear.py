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


@pytest.mark.parametrize(("outs", "ins"), [(1, 1), (7, 5), (63, 100), (300, 33), (192, 576)])
def test_in_float32_a_row_is_the_same_in_any_batch_of_two_and_more(monkeypatch, outs: int, ins: int) -> None:
    monkeypatch.setattr(relaid_linear, "SMALL", 0)
    x, weight, bias = drawn(70, ins).float(), drawn(outs, ins).float(), drawn(outs).float()
    blocks, whole = relaid_linear.relaid(weight), relaid_linear.linear(x, weight, bias)
    torch.testing.assert_close(whole, functional.linear(x, weight, bias))
    for tokens in (2, 3, 8, 17, 33, 64, 70):
        for matrix in (weight, blocks):
            assert torch.equal(relaid_linear.linear(x[:tokens], matrix, bias), whole[:tokens])
    assert torch.equal(relaid_linear.linear(x[:1], weight, bias), functional.linear(x[:1], weight, bias))
    assert 1 not in relaid_linear.served(weight)
    monkeypatch.setattr(relaid_linear, "SMALL", outs * ins + 1)
    assert not relaid_linear.served(weight)
    assert torch.equal(relaid_linear.linear(x[:8], weight), functional.linear(x[:8], weight))


@pytest.mark.parametrize("pieces", [1, 4])
def test_many_tokens_are_multiplied_in_float32_and_rounded_once(monkeypatch, pieces: int) -> None:
    x, weight, bias = drawn(relaid_linear.WIDE, 100), drawn(80, 100), drawn(80)
    monkeypatch.setattr(relaid_linear, "WIDE_NUMBERS", 80 * 100 // pieces)
    exact = (x.double() @ weight.double().T + bias.double()).float()
    found = relaid_linear.linear(x, weight, bias)
    # What lies half-way between two bfloat16 may go to either.
    assert ((found.float() - exact).abs() <= exact.abs() * 2**-8 * 1.001 + 1e-6).all()
    assert relaid_linear.WIDE not in relaid_linear.served(weight)


def test_tables_of_another_dtype_are_converted() -> None:
    x, weight, bias = drawn(3, 8).float(), drawn(5, 8), drawn(5)
    assert torch.equal(relaid_linear.lm_head(x, weight), relaid_linear.linear(x, weight.float()))
    added = relaid_linear.linear(x, weight.float(), bias.float())
    assert torch.equal(relaid_linear.biased_lm_head(x, weight, bias), added)


def test_it_is_chosen_where_rows_and_blocks_agree() -> None:
    chosen = ((torch.bfloat16, "onednn-relaid"), (torch.float32, "onednn-relaid"), (torch.float16, REFERENCE))
    for dtype, provider in chosen:
        ops = choose_operators(CPU, dtype, VERIFIED)
        assert {choice.provider for choice in ops.choices if choice.operator == "linear"} == {provider}
        assert set(ops.layouts) == ({name for name, _ in VERIFIED} if provider != REFERENCE else set())


def test_an_operator_that_is_replaced_keeps_no_layout() -> None:
    ops = choose_operators(CPU, torch.bfloat16, VERIFIED).replaced("linear", functional.linear)
    assert set(ops.layouts) == {"lm_head", "biased_lm_head"}
    assert KERNELS["linear"][-1].layout is None
