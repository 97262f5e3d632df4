import torch

from day0.runtime.models import recurrence
from day0.runtime.ops.kda import kda_chunk, kda_recurrent

SLOTS, HEADS, DIM = 6, 2, 8


class Context:
    """A step of two decoding sequences and a chunk of three tokens, over states that are NaN where nobody is."""

    index = 0

    def __init__(self):
        make = torch.Generator().manual_seed(1)
        self.states = torch.full((SLOTS, HEADS, DIM, DIM), float("nan"))
        self.states[[4, 1, 2]] = torch.randn(3, HEADS, DIM, DIM, generator=make)
        self.cache = self.batch = self
        self.groups = [Group(0, 2, 1, [4, 1]), Group(2, 1, 3, [2])]
        shape = (5, HEADS, DIM)
        g = -torch.rand(shape, generator=make)
        self.inputs = [*torch.randn(3, *shape, generator=make), g, torch.rand(shape[:2], generator=make)]

    def state(self, index, name):
        return self.states

    def save(self, name, tensor):
        pass


class Group:
    def __init__(self, start, sequences, length, slots):
        self.start, self.sequences, self.length = start, sequences, length
        self.end, self.state_slots = start + sequences * length, torch.tensor(slots)


def _step(*arguments):
    return kda_recurrent(*arguments, 0.3)


def _chunk(*arguments):
    return kda_chunk(*arguments, 0.3)


def test_a_step_in_place_is_given_the_pool_and_the_slots():
    copied, moved = Context(), Context()
    called = []

    def in_place(*arguments):
        *inputs, states, slots = arguments
        assert states is moved.states
        called.append(slots.tolist())
        output, states[slots] = _step(*inputs, states[slots])
        return output

    wanted = recurrence.recur(copied.inputs, _step, _chunk, copied)
    found = recurrence.recur(moved.inputs, _step, _chunk, moved, in_place)
    assert called == [[4, 1]], "decoding sequences alone; a chunk goes its own way"
    assert torch.equal(found, wanted)
    assert torch.equal(moved.states.nan_to_num(7.0), copied.states.nan_to_num(7.0))
    assert moved.states[[0, 3, 5]].isnan().all()
