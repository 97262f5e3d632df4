import numpy as np
import pytest
import torch

from day0.runtime.ops.router import moe_router_topk_sigmoid_bias, moe_router_topk_softmax


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def route(scores, biased, top_k, renormalize, factor, eligible=None):
    """Row by row: sort (-biased, number), weigh by the score."""
    weights, ids = [], []
    for row, choice in zip(scores, biased, strict=True):
        allowed = range(len(row)) if eligible is None else eligible(choice)
        chosen = sorted(allowed, key=lambda e: (-choice[e], e))[:top_k]
        share = row[chosen]
        ids.append(chosen)
        weights.append(factor * (share / share.sum() if renormalize else share))
    return np.array(weights), np.array(ids)


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize(("tokens", "experts", "top_k"), [(1, 1, 1), (7, 5, 1), (63, 15, 4), (100, 16, 16)])
def test_softmax(agrees, rng, tokens, experts, top_k, renormalize):
    logits = 2 * rng.standard_normal((tokens, experts))
    weights, ids = moe_router_topk_softmax(torch.tensor(logits).float(), top_k, renormalize, 2.5)
    wanted = route(softmax(logits), softmax(logits), top_k, renormalize, 2.5)
    agrees("moe_router_topk_softmax", weights, wanted[0])
    agrees("moe_router_topk_softmax", ids, wanted[1], output=1)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize(("tokens", "experts", "top_k"), [(1, 1, 1), (7, 5, 1), (63, 15, 4), (100, 16, 16)])
def test_sigmoid_with_bias(agrees, rng, tokens, experts, top_k, renormalize, biased):
    logits, bias = 2 * rng.standard_normal((tokens, experts)), rng.standard_normal(experts)
    weights, ids = moe_router_topk_sigmoid_bias(
        torch.tensor(logits).float(), top_k, renormalize, 1.5, torch.tensor(bias).float() if biased else None
    )
    scores = sigmoid(logits)
    wanted = route(scores, scores + bias * biased, top_k, renormalize, 1.5)
    agrees("moe_router_topk_sigmoid_bias", weights, wanted[0])
    agrees("moe_router_topk_sigmoid_bias", ids, wanted[1], output=1)


def test_bias_changes_the_choice_and_not_the_weights():
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    bias = torch.tensor([0.0, -1.0, 0.0, 1.0])
    weights, ids = moe_router_topk_sigmoid_bias(logits, 2, False, 1.0, bias)
    assert ids.tolist() == [[3, 0]]
    assert torch.allclose(weights, torch.sigmoid(torch.tensor([[-1.0, 2.0]])))


def test_a_large_bias_in_a_narrow_range_keeps_its_differences():
    # 7 + 0.001 e needs float32: rounded to bfloat16 all would be 7 and expert 0 would win.
    bias = 7 + 0.001 * torch.arange(16)
    _, ids = moe_router_topk_sigmoid_bias(torch.zeros(1, 16), 3, True, 1.0, bias)
    assert ids.tolist() == [[15, 14, 13]]


@pytest.mark.parametrize("choose", [moe_router_topk_softmax, moe_router_topk_sigmoid_bias])
@pytest.mark.parametrize("experts", [2, 63, 896])
def test_ties_go_to_the_lowest_number(choose, experts):
    _, ids = choose(torch.zeros(5, experts), 2, True, 1.0)
    assert ids.tolist() == [[0, 1]] * 5
    level = torch.zeros(1, experts)
    level[0, -1] = 1.0
    assert choose(level, 2, True, 1.0)[1].tolist() == [[experts - 1, 0]]


@pytest.mark.parametrize("factor", [1.0, 2.5])
def test_a_single_expert_has_all_the_weight_when_renormalised(factor):
    weights, _ = moe_router_topk_softmax(torch.tensor([[0.3, 0.1]]), 1, True, factor)
    assert weights.item() == pytest.approx(factor)


def test_extreme_logits_stay_finite():
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]])
    for choose in (moe_router_topk_softmax, moe_router_topk_sigmoid_bias):
        assert torch.isfinite(choose(logits, 2, True, 1.0)[0]).all()


@pytest.mark.parametrize(("groups", "kept", "top_k"), [(4, 2, 3), (4, 1, 2), (8, 3, 3), (5, 5, 4)])
def test_groups(agrees, rng, groups, kept, top_k):
    size = 16 // groups if groups != 5 else 3
    logits, bias = rng.standard_normal((20, groups * size)), 0.5 * rng.standard_normal(groups * size)

    def eligible(choice):
        worth = [sum(sorted(choice[g * size : (g + 1) * size])[-2:]) for g in range(groups)]
        best = sorted(range(groups), key=lambda g: (-worth[g], g))[:kept]
        return [e for g in best for e in range(g * size, (g + 1) * size)]

    found = moe_router_topk_sigmoid_bias(
        torch.tensor(logits).float(), top_k, True, 1.0, torch.tensor(bias).float(), groups, kept
    )
    wanted = route(sigmoid(logits), sigmoid(logits) + bias, top_k, True, 1.0, eligible)
    agrees("moe_router_topk_sigmoid_bias", found[0], wanted[0])
    agrees("moe_router_topk_sigmoid_bias", found[1], wanted[1], output=1)
