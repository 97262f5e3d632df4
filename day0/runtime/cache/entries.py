"""Entries that several tokens share (compressed attention, pooled keys): where they lie, when they are complete."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of one group of sequences in planes where `stride` tokens share one; `Entries.of` fills it.

    Entry e of a sequence is of its tokens e * stride .. e * stride + stride - 1 and complete with the last of them.
    An entry that is not complete has no number here: its inputs wait in the plane's tail. The sequences have as many
    new tokens each, `length`; `done_*` are the entries that this step completes, by sequence and then by number.
    """

    stride: int
    slots: torch.Tensor  # [sequences, most] int64: rows of the plane, entry by entry, old and new
    complete: torch.Tensor  # [sequences, most] bool: whether a sequence has the entry; a shorter one has fewer
    numbers: torch.Tensor  # [most] int64: 0, 1, ...
    ready: torch.Tensor  # [sequences, length] int64: entries that are complete with each new token, itself included
    done_sequence: torch.Tensor  # [done] int64: place of the sequence in the group
    done_row: torch.Tensor  # [done] int64: place of its last token among the sequence's new ones
    done_number: torch.Tensor  # [done] int64
    done_slots: torch.Tensor  # [done] int64: rows of the plane to write

    @classmethod
    def of(cls, kv_slots: np.ndarray, context: np.ndarray, length: int, stride: int, device: torch.device) -> Entries:
        """From the flat slots of all tokens [sequences, longest] and how many of them came before the step."""
        ready = (context[:, None] + np.arange(1, length + 1)) // stride  # [sequences, length]
        total = ready[:, -1]
        numbers = np.arange(total.max())
        # A page holds whole entries, so the slot of an entry's first token, shared out, is the slot of the entry.
        slots = kv_slots[:, ::stride][:, : len(numbers)] // stride
        done_sequence, done_row = np.nonzero(np.diff(ready, axis=1, prepend=context[:, None] // stride))
        done_number = ready[done_sequence, done_row] - 1
        arrays = (
            slots,
            numbers < total[:, None],
            numbers,
            ready,
            done_sequence,
            done_row,
            done_number,
            slots[done_sequence, done_number],
        )
        return cls(stride, *(torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays))

    def gather(self, plane: torch.Tensor) -> torch.Tensor:
        """All entries of each sequence, [sequences, most, ...]; zeros where a shorter one has none."""
        return _zeroed(plane[self.slots], self.complete)

    def pick(self, plane: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """The entries of the given numbers [sequences, ...], in the same places; zeros for -1 and what is not there."""
        most = self.slots.shape[1]
        if most == 0:
            return plane.new_zeros(*numbers.shape, *plane.shape[1:])
        inside = numbers.clamp(0, most - 1).flatten(1)
        there = self.complete.gather(1, inside).view(numbers.shape) & (numbers >= 0) & (numbers < most)
        rows = plane[self.slots.gather(1, inside)].view(*numbers.shape, *plane.shape[1:])
        return _zeroed(rows, there)

    def write(self, plane: torch.Tensor, rows: torch.Tensor) -> None:
        """Put the entries that this step completes, [done, ...], into their places."""
        plane.index_copy_(0, self.done_slots, rows.to(plane.dtype))

    def visible(self) -> torch.Tensor:
        """The entries each new token may read, [sequences, length, most] bool: those complete by then."""
        return self.numbers < self.ready[..., None]

    def inputs(self, tail: torch.Tensor, new: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the entries that this step completes are made of, and the tail for the next step.

        `tail` [sequences, kept, channels] are the inputs of the last tokens (zeros before the first), `new`
        [sequences, length, channels] those of this step. Gives [done, kept + 1, channels], oldest first and the
        completing token last, and the new tail.
        """
        kept = tail.shape[1]
        joined = torch.cat((tail, new.to(tail.dtype)), dim=1)
        places = self.done_row[:, None] + torch.arange(kept + 1, device=tail.device)
        return joined[self.done_sequence[:, None], places], joined[:, new.shape[1] :]


def _zeroed(rows: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
    """Rows with those that are not there as zeros: a weight of zero would not hide what nobody wrote, if it is NaN."""
    return torch.where(there.view(*there.shape, *(1,) * (rows.dim() - there.dim())), rows, 0)
