import numpy as np
import pytest
import torch

from day0.runtime.ops.routed_experts import (
    ExpertMatrices,
    StackedExperts,
    input_weighted_experts,
    input_weighted_experts_grouped,
    routed_experts,
    routed_experts_grouped,
)


def act(gate, up):
    return torch.tanh(gate) * up


class Experts:
    """Matrices of all experts; remembers who was asked for, and reuses one buffer as the workspace does."""

    def __init__(self, rng, experts, width, inner):
        self.arrays = [
            tuple(rng.standard_normal(shape) for shape in ((width, inner), (width, inner), (inner, width)))
            for _ in range(experts)
        ]
        self.buffer = [torch.zeros(shape) for shape in ((width, inner), (width, inner), (inner, width))]
        self.asked = []

    def matrices(self, chosen):
        self.asked.append(chosen)
        for expert in chosen:
            for buffer, array in zip(self.buffer, self.arrays[expert], strict=True):
                buffer.copy_(torch.tensor(array))
            yield ExpertMatrices(expert, *self.buffer)


@pytest.mark.parametrize(("tokens", "num_experts", "top_k"), [(1, 1, 1), (1, 16, 4), (63, 7, 3), (100, 16, 16)])
def test_weighted_sum_token_by_token(agrees, rng, tokens, num_experts, top_k):
    experts = Experts(rng, num_experts, 5, 9)
    x, weights = rng.standard_normal((tokens, 9)), rng.uniform(0, 1, (tokens, top_k))
    ids = np.stack([rng.permutation(num_experts)[:top_k] for _ in range(tokens)])
    wanted = np.zeros_like(x)
    for t in range(tokens):
        for weight, expert in zip(weights[t], ids[t], strict=True):
            gate, up, down = experts.arrays[expert]
            wanted[t] += weight * (down @ (np.tanh(gate @ x[t]) * (up @ x[t])))
    tensors = (torch.tensor(x).float(), torch.tensor(weights).float(), torch.tensor(ids))
    found = routed_experts(*tensors, num_experts, experts.matrices, act)
    agrees("routed_experts", found, wanted)
    assert experts.asked == [sorted(set(ids.flatten().tolist()))]


def test_only_the_chosen_experts_are_asked_for(rng):
    experts = Experts(rng, 896, 2, 3)
    routed_experts(torch.randn(2, 3), torch.ones(2, 2), torch.tensor([[895, 3], [3, 7]]), 896, experts.matrices, act)
    assert experts.asked == [[3, 7, 895]]


def test_a_token_may_choose_an_expert_twice(rng):
    experts = Experts(rng, 4, 5, 9)
    x = torch.randn(1, 9)
    twice = routed_experts(x, torch.tensor([[0.25, 0.5]]), torch.tensor([[2, 2]]), 4, experts.matrices, act)
    once = routed_experts(x, torch.tensor([[0.75]]), torch.tensor([[2]]), 4, experts.matrices, act)
    assert torch.allclose(twice, once, atol=1e-5)


def test_the_sum_is_float32_in_a_bfloat16_model():
    # 256 + 64 * 0.5 is lost in a bfloat16 running sum, whose step at 256 is 2.
    one = torch.ones(1, 1, dtype=torch.bfloat16)
    weights = torch.tensor([[256.0, *[0.5] * 64]])

    def matrices(chosen):
        return (ExpertMatrices(expert, one, one, one) for expert in chosen)

    found = routed_experts(one, weights, torch.arange(65)[None], 65, matrices, lambda gate, up: gate)
    assert found.dtype == torch.bfloat16
    assert found.item() == 288.0


def test_biases_are_the_experts_own(agrees, rng):
    experts = Experts(rng, 3, 5, 9)
    biases = [[torch.tensor(rng.standard_normal(size)).float() for size in (5, 5, 9)] for _ in range(3)]

    def matrices(chosen):
        return (ExpertMatrices(*each[:4], *biases[each.expert]) for each in experts.matrices(chosen))

    x = rng.standard_normal(9)
    wanted = np.zeros(9)
    for weight, expert in ((0.25, 2), (0.5, 0)):
        gate, up, down = experts.arrays[expert]
        gate_bias, up_bias, down_bias = (bias.double().numpy() for bias in biases[expert])
        wanted += weight * (down @ (np.tanh(gate @ x + gate_bias) * (up @ x + up_bias)) + down_bias)
    tensors = torch.tensor(x)[None].float(), torch.tensor([[0.25, 0.5]]), torch.tensor([[2, 0]])
    agrees("routed_experts", routed_experts(*tensors, 3, matrices, act), wanted[None])


@pytest.mark.parametrize(
    ("definition", "grouped"),
    [(routed_experts, routed_experts_grouped), (input_weighted_experts, input_weighted_experts_grouped)],
)
@pytest.mark.parametrize("width", [12, 13])  # 13 floats are no multiple of 16 bytes
@pytest.mark.parametrize("gated", [True, False])
def test_grouped_is_one_by_one(definition, grouped, width, gated):
    """Experts that nobody chose between those that some did, one that all chose, and biases."""
    parts = [torch.randn(6, width, 8), torch.randn(6, width, 8), torch.randn(6, 8, width)]
    biases = [torch.randn(6, part.shape[1]) for part in parts]
    if not gated:
        parts[0] = biases[0] = None
    stacked = StackedExperts(*parts, *biases)
    asked = []

    def matrices(chosen):
        asked.append(chosen)
        return (ExpertMatrices(e, *(None if part is None else part[e] for part in stacked)) for e in chosen)

    def activation(*read):
        return torch.tanh(read[0]) * read[-1]

    x, ids = torch.randn(5, 8), torch.tensor([[4, 1], [4, 0], [1, 4], [4, 3], [0, 4]])
    arguments = (x, torch.rand(5, 2), ids, 6, matrices, activation, stacked)
    wanted = definition(*arguments)
    assert asked == [[0, 1, 3, 4]]
    assert torch.allclose(grouped(*arguments), wanted, atol=1e-5)
    assert len(asked) == (1 if width == 12 else 2)
    assert torch.equal(grouped(*arguments[:-1], None), wanted)
