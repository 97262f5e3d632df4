import math

import numpy as np
import pytest
import torch

from day0.runtime.ops import activation

erf = np.vectorize(math.erf)
SHAPES = [(1, 1), (7, 63), (3, 100)]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture(params=SHAPES)
def pair(request, rng):
    return 4 * rng.standard_normal(request.param), 30 * rng.standard_normal(request.param)


def tensors(*arrays):
    return tuple(torch.tensor(array).float() for array in arrays)


def test_silu_and_mul(agrees, pair):
    gate, up = pair
    agrees("silu_and_mul", activation.silu_and_mul(*tensors(*pair)), gate * sigmoid(gate) * up)


@pytest.mark.parametrize("form", ["erf", "tanh"])
def test_gelu_and_gelu_and_mul(agrees, pair, form):
    gate, up = pair
    if form == "erf":
        wanted = gate * (1 + erf(gate / np.sqrt(2))) / 2
    else:
        wanted = gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) / 2
    agrees("gelu", activation.gelu(tensors(gate)[0], form), wanted)
    agrees("gelu_and_mul", activation.gelu_and_mul(*tensors(*pair), form), wanted * up)


def test_the_two_forms_of_gelu_differ():
    x = torch.linspace(-3, 3, 63)
    assert (activation.gelu(x, "erf") - activation.gelu(x, "tanh")).abs().max() > 1e-4


@pytest.mark.parametrize(("beta", "linear_beta"), [(4.0, 25.0), (1.0, None), (0.5, 2.0)])
def test_situ_and_mul(agrees, pair, beta, linear_beta):
    gate, up = pair
    bounded_up = up if linear_beta is None else linear_beta * np.tanh(up / linear_beta)
    wanted = beta * np.tanh(gate / beta) * sigmoid(gate) * bounded_up
    agrees("situ_and_mul", activation.situ_and_mul(*tensors(*pair), beta, linear_beta), wanted)


def test_situ_is_bounded_by_both_betas():
    huge = torch.full((3,), 1e30)
    assert torch.equal(activation.situ_and_mul(huge, huge, 4.0, 25.0), torch.full((3,), 100.0))
    assert not activation.situ_and_mul(-huge, huge, 4.0, 25.0).any()


def test_sigmoid_gate(agrees, pair):
    gate, x = pair
    agrees("sigmoid_gate", activation.sigmoid_gate(*tensors(x, gate)), x * sigmoid(gate))
