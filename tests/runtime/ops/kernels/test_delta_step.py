import pytest
import torch

pytest.importorskip("triton")

from day0.runtime.ops.gated_deltanet import gated_delta_recurrent
from day0.runtime.ops.kda import kda_recurrent
from day0.runtime.ops.kernels.delta_step import delta_steps, delta_steps_in_place

REFERENCES = {"kda": kda_recurrent, "gated_delta": gated_delta_recurrent}


def draw(form, sequences, length, key_heads, heads, keys, values, *, decay=1.0, seed=0):
    """Inputs of a step; keys of unit length, as the blocks bring them to, and decays as strong as asked."""
    make = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=make)

    if form == "kda":
        key_heads = heads
    q, k = (torch.nn.functional.normalize(normal(sequences, length, key_heads, keys), dim=-1) for _ in "qk")
    g = -decay * normal(sequences, length, heads, *((keys,) if form == "kda" else ())).abs()
    beta = torch.sigmoid(normal(sequences, length, heads))
    return [q, k, normal(sequences, length, heads, values), g, beta, normal(sequences, heads, keys, values)]


def agree(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-5 * float(wanted.abs().max()))


@pytest.mark.parametrize("form", REFERENCES)
@pytest.mark.parametrize(
    ("sequences", "length", "key_heads", "heads", "keys", "values"),
    [(3, 1, 2, 4, 32, 40), (2, 3, 1, 3, 20, 7), (1, 1, 1, 1, 128, 128)],
)
@pytest.mark.parametrize("decay", [0.0, 1.0, 5000.0])
def test_steps(form, sequences, length, key_heads, heads, keys, values, decay):
    inputs = draw(form, sequences, length, key_heads, heads, keys, values, decay=decay)
    before = inputs[-1].clone()
    found, state = delta_steps(*inputs, 0.3)
    wanted, wanted_state = REFERENCES[form](*inputs, 0.3)
    agree(found, wanted)
    agree(state, wanted_state)
    assert torch.equal(inputs[-1], before), "the old states are kept"


@pytest.mark.parametrize("form", REFERENCES)
def test_in_place_moves_the_named_rows_only(form):
    *inputs, states = draw(form, 3, 2, 2, 4, 16, 32)
    pool = torch.full((7, 2, *states.shape[1:]), float("nan"))[:, 1]  # rows of a larger allocation, poisoned
    slots = torch.tensor([5, 0, 3])
    pool[slots] = states
    found = delta_steps_in_place(*inputs, pool, slots, 0.3)
    wanted, moved = REFERENCES[form](*inputs, states, 0.3)
    agree(found, wanted)
    agree(pool[slots], moved)
    others = [row for row in range(7) if row not in slots.tolist()]
    assert pool[others].isnan().all()


def test_strides_and_dtypes():
    """Queries, keys and values may be parts of one projection; bfloat16 values give bfloat16 outputs."""
    q, k, v, g, beta, states = draw("gated_delta", 2, 3, 2, 2, 16, 16)
    joined = torch.cat((q, k, v), dim=-1)
    q, k, v = joined.split(16, dim=-1)
    found, _ = delta_steps(q, k, v.bfloat16(), g.mT.contiguous().mT, beta, states, 0.3)
    wanted, _ = gated_delta_recurrent(q, k, v.bfloat16(), g, beta, states, 0.3)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, wanted)


def test_steps_one_by_one_are_the_steps_at_once():
    *inputs, states = draw("kda", 2, 5, 3, 3, 16, 16)
    together, last = delta_steps(*inputs, states, 0.3)
    for t in range(5):
        one, states = delta_steps(*(x[:, t : t + 1] for x in inputs), states, 0.3)
        assert torch.equal(one[:, 0], together[:, t])
    assert torch.equal(states, last)
