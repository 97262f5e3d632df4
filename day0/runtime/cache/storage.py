"""The tensors behind pages and state slots, allocated from what each layer says it keeps (`docs/cache.md`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from day0.profile.profile import CachePlane, LayerSpec


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """All states of one sequence as they were at one moment, in host memory."""

    tensors: tuple[torch.Tensor, ...]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)


class CacheStorage:
    """All cache planes [pages * page_size / stride, ...] and states [slots, ...], by layer and name.

    The page size is a multiple of every plane's stride (`cache_sizes.page_tokens`), so that no entry lies on two
    pages. Tails of unfinished entries are states like others. `kv_dtype` is what planes are kept in, `model_dtype`
    what non-float32 states are kept in.
    """

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        num_pages: int,
        page_size: int,
        num_slots: int,
        kv_dtype: torch.dtype,
        model_dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.page_size = page_size
        # Uninitialised on purpose: a slot is written before it is read, and pages nobody uses cost no memory.
        self._planes = {
            (layer.index, plane.name): torch.empty(
                num_pages * entries_per_page(plane, page_size), *plane.shape, dtype=kv_dtype, device=device
            )
            for layer in layers
            for plane in layer.cache_planes()
        }
        self._num_pages, self._num_slots = num_pages, num_slots
        self.strides = strides(layers)
        self._states = {
            (layer.index, state.name): torch.empty(
                num_slots,
                *state.shape,
                dtype=torch.float32 if state.dtype == "float32" else model_dtype,
                device=device,
            )
            for layer in layers
            for state in (*layer.state_shapes(), *layer.tail_shapes())
        }

    def plane(self, layer: int, name: str) -> torch.Tensor:
        """The plane of a layer, [slots, ...]: indexed by slots of tokens, or of entries where tokens share them."""
        return self._planes[layer, name]

    def state(self, layer: int, name: str) -> torch.Tensor:
        """The states of a layer, [state slots, ...]."""
        return self._states[layer, name]

    @property
    def kv_bytes(self) -> int:
        return sum(plane.nbytes for plane in self._planes.values())

    @property
    def state_bytes(self) -> int:
        return sum(state.nbytes for state in self._states.values())

    @property
    def slot_bytes(self) -> int:
        """Bytes of the states of one sequence, so of a snapshot."""
        return self.state_bytes // self._num_slots if self._num_slots else 0

    def snapshot_state(self, slot: int) -> StateSnapshot:
        """A copy of all states of a sequence."""
        return StateSnapshot(tuple(state[slot].to("cpu", copy=True) for state in self._states.values()))

    def restore_state(self, slot: int, snapshot: StateSnapshot) -> None:
        """Set a sequence's states to what they were, bit for bit."""
        for state, kept in zip(self._states.values(), snapshot.tensors, strict=True):
            state[slot].copy_(kept)

    def copy_state(self, source: int, target: int) -> None:
        for state in self._states.values():
            state[target] = state[source]

    def copy_page(self, source: int, target: int) -> None:
        """All entries of a page, in every plane."""
        for plane in self._planes.values():
            pages = plane.view(self._num_pages, -1, *plane.shape[1:])
            pages[target] = pages[source]

    def reset_state(self, slot: int) -> None:
        """Every state starts a sequence as zeros."""
        for state in self._states.values():
            state[slot] = 0

    def poison_state(self, slot: int) -> None:
        """Make any later read of a freed slot show."""
        for state in self._states.values():
            state[slot] = float("nan")

    def poison_pages(self, pages: Sequence[int]) -> None:
        """Make any later read of freed pages show."""
        if not pages or not self._planes:
            return
        device = next(iter(self._planes.values())).device
        index = torch.tensor(pages, device=device)
        for plane in self._planes.values():
            plane.view(self._num_pages, -1, *plane.shape[1:])[index] = float("nan")


def entries_per_page(plane: CachePlane, page_size: int) -> int:
    """Entries of one page; an entry never lies on two."""
    assert page_size % plane.stride == 0, f"pages of {page_size} tokens cut entries of {plane.stride}"
    return page_size // plane.stride


def strides(layers: Sequence[LayerSpec]) -> tuple[int, ...]:
    """The numbers of tokens above 1 that share an entry somewhere in the model."""
    return tuple(sorted({plane.stride for layer in layers for plane in layer.cache_planes()} - {1}))


def page_bytes(layers: Sequence[LayerSpec], page_size: int, kv_dtype: torch.dtype) -> int:
    """Bytes of one page over all layers."""
    elements = sum(
        plane.elements * entries_per_page(plane, page_size) for layer in layers for plane in layer.cache_planes()
    )
    return elements * kv_dtype.itemsize


def slot_bytes(layers: Sequence[LayerSpec], model_dtype: torch.dtype) -> int:
    """Bytes of one sequence's states and tails over all layers."""
    return sum(
        state.elements * (4 if state.dtype == "float32" else model_dtype.itemsize)
        for layer in layers
        for state in (*layer.state_shapes(), *layer.tail_shapes())
    )
