import numpy as np
import pytest
import torch

from day0.runtime.ops import norm

SHAPES = [(1, 1), (3, 7), (17, 63), (2, 5, 100)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_rms_norm(agrees, rng, shape, scale):
    x, weight = (scale * rng.standard_normal(shape)).astype(np.float32), rng.standard_normal(shape[-1])
    wide = x.astype(np.float64)
    wanted = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * weight
    agrees("rms_norm", norm.rms_norm(torch.tensor(x), torch.tensor(weight).float(), 1e-5), wanted)


def test_rms_norm_rounds_before_the_weight_as_the_models_do():
    x = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.bfloat16)
    weight = torch.tensor([1.01, 0.99, 1.5], dtype=torch.bfloat16)
    normed = (x.float() / (14 / 3 + 1e-6) ** 0.5).bfloat16()
    assert torch.equal(norm.rms_norm(x, weight, 1e-6), weight * normed)


def test_rms_norm_of_large_bfloat16_does_not_overflow():
    x = torch.full((2, 8), 3e18, dtype=torch.bfloat16)
    assert torch.allclose(norm.rms_norm(x, torch.ones(8, dtype=torch.bfloat16), 1e-6).float(), torch.ones(2, 8))


def test_qk_norm_is_per_head(agrees, rng):
    q, k = rng.standard_normal((5, 4, 15)), rng.standard_normal((5, 2, 15))
    wq, wk = rng.standard_normal(15), rng.standard_normal(15)
    found = norm.qk_norm(*(torch.tensor(x).float() for x in (q, k, wq, wk)), 1e-6)
    for place, (x, weight) in enumerate(((q, wq), (k, wk))):
        wanted = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight
        agrees("qk_norm", found[place], wanted, output=place)


@pytest.mark.parametrize("shape", SHAPES)
def test_l2_norm_adds_epsilon_to_the_sum(agrees, rng, shape):
    x = 1e-3 * rng.standard_normal(shape)  # small, so that the epsilon counts
    wanted = x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6)
    agrees("l2_norm", norm.l2_norm(torch.tensor(x).float(), 1e-6), wanted)
    if shape[-1] > 1:
        in_the_mean = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        assert not np.allclose(wanted, in_the_mean, rtol=0.1)


def test_l2_norm_of_zeros_is_zero():
    assert not norm.l2_norm(torch.zeros(2, 3), 1e-6).any()


@pytest.mark.parametrize("shape", [(1, 1, 3), (7, 3, 15), (2, 5, 16)])
def test_gated_rms_norm(agrees, rng, shape):
    x, gate, weight = rng.standard_normal(shape), 3 * rng.standard_normal(shape), rng.standard_normal(shape[-1])
    wanted = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight / (1 + np.exp(-gate))
    found = norm.gated_rms_norm(*(torch.tensor(t).float() for t in (x, weight, gate)), 1e-5)
    agrees("gated_rms_norm", found, wanted)


def test_gated_rms_norm_is_float32_whatever_the_gate():
    gate = torch.zeros(2, 3, 4, dtype=torch.bfloat16)
    assert norm.gated_rms_norm(torch.ones(2, 3, 4), torch.ones(4), gate, 1e-5).dtype == torch.float32
