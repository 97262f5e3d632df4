import numpy as np
import pytest
import torch
from closeness import relative_error

from day0.operators import OPERATORS
from day0.runtime.ops.kda import CHUNK, kda_chunk, kda_gate, kda_recurrent

LENGTHS = [1, 31, 32, 33, 63, 100, 150]
FORMS = {"kda_recurrent": kda_recurrent, "kda_chunk": kda_chunk}


def delta_rule(q, k, v, g, beta, state, scale):
    """One head: q, k, g [length, key], v [length, value], beta [length], state [key, value]; float64."""
    outputs = []
    for t in range(len(q)):
        state = np.diag(np.exp(g[t])) @ state
        state = state + beta[t] * np.outer(k[t], v[t] - state.T @ k[t])
        outputs.append(scale * state.T @ q[t])
    return np.array(outputs), state


def inputs(rng, sequences, length, heads, key, value, decay=None):
    def unit(shape):
        x = rng.standard_normal(shape)
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    at = (sequences, length, heads)
    g = rng.uniform(-5, 0, (*at, key)) if decay is None else np.full((*at, key), decay)
    state = rng.standard_normal((sequences, heads, key, value))
    return unit((*at, key)), unit((*at, key)), rng.standard_normal((*at, value)), g, rng.uniform(0, 1, at), state


def float32(arrays):
    return [torch.tensor(array).float() for array in arrays]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("length", LENGTHS)
def test_against_the_recurrence_in_float64(agrees, rng, name, length):
    arrays = inputs(rng, 2, length, 3, 15, 7)
    y, end = FORMS[name](*float32(arrays), 0.25)
    q, k, v, g, beta, state = arrays
    for n in range(2):
        for h in range(3):
            heads = [t[n, :, h] for t in (q, k, v, g, beta)]
            wanted, last = delta_rule(*heads, state[n, h], 0.25)
            agrees(name, y[n, :, h], wanted)
            agrees(name, end[n, h], last, output=1)


@pytest.mark.parametrize("decay", [-1e-6, -0.1, -5.0, -80.0])
@pytest.mark.parametrize("length", LENGTHS)
def test_chunked_is_the_recurrence_at_any_decay(rng, length, decay):
    arrays = float32(inputs(rng, 1, length, 2, 16, 16, decay))
    tolerance = OPERATORS["kda_chunk"].tolerance["float32"]
    for found, wanted in zip(kda_chunk(*arrays, 0.25), kda_recurrent(*arrays, 0.25), strict=True):
        assert torch.isfinite(found).all()
        assert tolerance.check(found, wanted).equal


def test_long_strong_decay_neither_overflows_nor_vanishes(rng):
    # 150 tokens at the bound: the running sum reaches -750, and e^750 is beyond float32.
    arrays = float32(inputs(rng, 1, 150, 2, 16, 16, -5.0))
    y, state = kda_chunk(*arrays, 0.25)
    assert torch.isfinite(y).all()
    assert torch.isfinite(state).all()
    assert y[:, -1].abs().max() > 1e-3


def test_no_decay_and_full_strength_stores_the_last_value_of_a_key(rng):
    # The delta rule's own promise: after writing v under k, reading with k gives v back.
    _, k, v, g, beta, state = float32(inputs(rng, 1, 33, 1, 16, 16, 0.0))
    for form in FORMS.values():
        y, _ = form(k, k, v, g, torch.ones_like(beta), state, 1.0)
        assert torch.allclose(y, v, atol=2e-4)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("cut", [1, CHUNK - 1, CHUNK, CHUNK + 1, 99])
def test_in_two_parts_as_in_one(rng, name, cut):
    q, k, v, g, beta, state = float32(inputs(rng, 1, 100, 2, 8, 8))
    whole, end = FORMS[name](q, k, v, g, beta, state, 0.5)
    first, between = FORMS[name](*(x[:, :cut] for x in (q, k, v, g, beta)), state, 0.5)
    second, last = FORMS[name](*(x[:, cut:] for x in (q, k, v, g, beta)), between, 0.5)
    assert relative_error(torch.cat((first, second), dim=1), whole) < 1e-5
    assert relative_error(last, end) < 1e-5


@pytest.mark.parametrize("name", FORMS)
def test_the_given_state_is_not_written_to(rng, name):
    arrays = float32(inputs(rng, 1, 5, 1, 4, 4))
    before = arrays[-1].clone()
    FORMS[name](*arrays, 1.0)
    assert torch.equal(arrays[-1], before)


@pytest.mark.parametrize("bound", [None, -5.0])
def test_gate(agrees, rng, bound):
    z, b = 2 * rng.standard_normal((63, 3, 15)), rng.standard_normal((63, 3))
    a_log, dt_bias = rng.standard_normal(3), rng.standard_normal((3, 15))
    rate, shifted = np.exp(a_log)[:, None], z + dt_bias
    wanted = -rate * np.log1p(np.exp(shifted)) if bound is None else bound / (1 + np.exp(-rate * shifted))
    g, beta = kda_gate(*(torch.tensor(t).float() for t in (z, a_log, dt_bias, b)), bound)
    agrees("kda_gate", g, wanted)
    agrees("kda_gate", beta, 1 / (1 + np.exp(-b)), output=1)
    assert (g <= 0).all()


def test_the_bound_is_approached_and_not_clipped():
    z = torch.linspace(-3, 3, 63)[:, None, None]
    g, _ = kda_gate(z, torch.zeros(1), torch.zeros(1, 1), torch.zeros(63, 1), -5.0)
    assert g.unique().numel() == 63
    assert -5.0 < float(g.min()) < float(g.max()) < 0.0


def test_gate_is_float32_for_a_bfloat16_model():
    z, b = torch.randn(2, 3, 4, dtype=torch.bfloat16), torch.randn(2, 3, dtype=torch.bfloat16)
    g, beta = kda_gate(z, torch.zeros(3), torch.zeros(3, 4), b, -5.0)
    assert (g.dtype, beta.dtype) == (torch.float32, torch.float32)
