import numpy as np
import pytest
import torch

from day0.runtime.ops.causal_conv1d import causal_conv1d, causal_conv1d_bias


def convolve(x, weight, past):
    """Token by token and tap by tap: x [length, width], weight [width, taps], past [width, taps - 1]."""
    taps = weight.shape[1]
    padded = np.concatenate((past.T, x))
    y = np.zeros_like(x)
    for t in range(len(x)):
        for tap in range(taps):
            y[t] += padded[t + tap] * weight[:, tap]
    return y / (1 + np.exp(-y)), padded[len(padded) - (taps - 1) :].T


@pytest.mark.parametrize("taps", [2, 4, 5])
@pytest.mark.parametrize(("sequences", "length", "width"), [(1, 1, 1), (3, 1, 7), (1, 63, 15), (2, 100, 3), (1, 2, 5)])
def test_convolution_and_state(agrees, rng, sequences, length, width, taps):
    x, weight = rng.standard_normal((sequences, length, width)), rng.standard_normal((width, taps))
    past = rng.standard_normal((sequences, width, taps - 1))
    wanted = [convolve(x[n], weight, past[n]) for n in range(sequences)]
    y, state = causal_conv1d(*(torch.tensor(t).float() for t in (x, weight, past)))
    agrees("causal_conv1d", y, np.stack([w[0] for w in wanted]))
    agrees("causal_conv1d", state, np.stack([w[1] for w in wanted]), output=1)


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 62])
def test_in_two_parts_as_in_one(cut):
    x, weight = torch.randn(1, 63, 5), torch.randn(5, 4)
    whole, end = causal_conv1d(x, weight, torch.zeros(1, 5, 3))
    first, between = causal_conv1d(x[:, :cut], weight, torch.zeros(1, 5, 3))
    second, last = causal_conv1d(x[:, cut:], weight, between)
    assert torch.allclose(torch.cat((first, second), dim=1), whole, rtol=1e-6, atol=1e-7)
    assert torch.equal(last, end)


def test_the_last_tap_sees_the_current_token_and_none_sees_the_next():
    x = torch.zeros(1, 5, 1)
    x[0, 2] = 1.0
    y, _ = causal_conv1d(x, torch.tensor([[3.0, 5.0, 7.0, 11.0]]), torch.zeros(1, 1, 3))
    assert (y[0, :, 0] != 0).tolist() == [False, False, True, True, True]
    assert y[0, 2, 0] == pytest.approx(11.0, rel=1e-3)  # silu of a large number is nearly itself


def test_state_keeps_its_dtype():
    y, state = causal_conv1d(torch.randn(1, 3, 2), torch.randn(2, 4), torch.zeros(1, 2, 3, dtype=torch.bfloat16))
    assert (y.dtype, state.dtype) == (torch.float32, torch.bfloat16)


def test_a_bias_comes_before_the_activation_and_either_may_be_left_out():
    x, weight, bias, past = (
        torch.randn(2, 5, 3),
        torch.randn(3, 4),
        torch.tensor([1.0, -2.0, 0.5]),
        torch.randn(2, 3, 3),
    )
    plain, state = causal_conv1d(x, weight, past, None)
    biased, same = causal_conv1d_bias(x, weight, bias, past)
    assert torch.allclose(biased, torch.nn.functional.silu(plain + bias), atol=1e-6)
    assert torch.equal(causal_conv1d_bias(x, weight, bias, past, None)[0], plain + bias)
    assert torch.equal(same, state)
