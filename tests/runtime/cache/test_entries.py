"""Entries that several tokens share, held to what their tokens make, whatever pages and chunks they came in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.runtime.cache.entries import Entries
from day0.runtime.cache.pages import token_slots

CPU = torch.device("cpu")


class Pooled:
    """Sequences whose entries are weighted sums of the last `made_of` tokens, on pages in any order."""

    def __init__(self, page_size: int, stride: int, made_of: int, sequences: int, order: list[int]) -> None:
        self.stride, self.made_of = stride, made_of
        self.weights = torch.arange(1.0, made_of + 1)[:, None]
        self.page_size, self.next_page = page_size, 0
        self.held: list[list[int]] = [[] for _ in range(sequences)]
        self.order = order
        self.tokens = [torch.empty(0, 1) for _ in range(sequences)]
        self.plane = torch.full((len(order) * page_size // stride, 1), float("nan"))
        self.tails = torch.zeros(sequences, made_of - 1, 1)

    def step(self, which: list[int], new: torch.Tensor) -> Entries:
        """`new` [sequences, length, 1] tokens of the sequences named."""
        context = np.array([len(self.tokens[place]) for place in which])
        length = new.shape[1]
        longest = int(context.max()) + length
        slots = np.empty((len(which), longest), dtype=np.int64)
        for row, place in enumerate(which):
            self.tokens[place] = torch.cat((self.tokens[place], new[row]))
            total = len(self.tokens[place])
            while len(self.held[place]) * self.page_size < total:
                self.held[place].append(self.order[self.next_page])
                self.next_page += 1
            own = token_slots(self.held[place], self.page_size)[:total]
            slots[row, :total], slots[row, total:] = own, own[0]
        entries = Entries.of(slots, context, length, self.stride, CPU)
        inputs, self.tails[which] = entries.inputs(self.tails[which], new)
        entries.write(self.plane, (inputs * self.weights).sum(dim=1))
        return entries

    def wanted(self, place: int) -> torch.Tensor:
        """The complete entries of a sequence, from its tokens alone."""
        padded = torch.cat((torch.zeros(self.made_of, 1), self.tokens[place]))
        ends = range(self.stride, len(self.tokens[place]) + 1, self.stride)
        made = [(padded[end : end + self.made_of] * self.weights).sum(dim=0) for end in ends]
        return torch.stack(made) if made else torch.empty(0, 1)


@settings(max_examples=120, deadline=None)
@given(data=st.data(), stride=st.integers(2, 5), overlap=st.integers(1, 2), per_page=st.integers(1, 3))
def test_entries_are_what_their_tokens_make(data: st.DataObject, stride: int, overlap: int, per_page: int) -> None:
    order = data.draw(st.permutations(range(40)))
    model = Pooled(stride * per_page, stride, stride * overlap, 3, order)
    count = 0.0
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()):  # decoding: any of them, one token each
            which, length = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True)), 1
        else:
            which, length = [data.draw(st.integers(0, 2))], data.draw(st.integers(1, 2 * stride + 1))
        new = count + torch.arange(1.0, len(which) * length + 1).view(len(which), length, 1)
        count += new.numel()
        entries = model.step(which, new)
        found, visible = entries.gather(model.plane), entries.visible()
        for row, place in enumerate(which):
            wanted = model.wanted(place)
            assert torch.equal(found[row, : len(wanted)], wanted)
            assert not found[row, len(wanted) :].any()
            total = len(model.tokens[place])
            for at in range(length):
                position = total - length + at
                assert visible[row, at].tolist() == [
                    (number + 1) * stride - 1 <= position for number in range(found.shape[1])
                ]


def test_entries_are_picked_by_number() -> None:
    model = Pooled(4, 2, 2, 2, [1, 0, 3, 2])
    model.step([0], torch.arange(1.0, 8.0).view(1, 7, 1))  # entries 1+2*2, 3+2*4, 5+2*6
    entries = model.step([0, 1], torch.tensor([[[8.0]], [[9.0]]]))
    numbers = torch.tensor([[[3, 0, -1]], [[0, 7, -1]]])
    assert entries.pick(model.plane, numbers)[..., 0].tolist() == [[[23.0, 5.0, 0.0]], [[0.0, 0.0, 0.0]]]
    assert (entries.done_sequence.tolist(), entries.done_row.tolist(), entries.done_number.tolist()) == ([0], [0], [3])


def test_before_the_first_entry_there_is_nothing_to_read() -> None:
    model = Pooled(4, 4, 4, 1, [0])
    entries = model.step([0], torch.ones(1, 3, 1))
    assert entries.gather(model.plane).shape == (1, 0, 1)
    assert entries.visible().shape == (1, 3, 0)
    assert entries.pick(model.plane, torch.full((1, 3, 2), -1)).tolist() == [[[[0.0], [0.0]]] * 3]


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_lengths_about_the_stride_and_the_page(shift: int) -> None:
    for tokens in (4 + shift, 8 + shift, 16 + shift):
        model = Pooled(8, 4, 8, 1, [2, 0, 1])
        entries = model.step([0], torch.arange(1.0, tokens + 1).view(1, -1, 1))
        assert torch.equal(entries.gather(model.plane)[0], model.wanted(0))
        assert len(model.wanted(0)) == tokens // 4
