"""The tensors behind pages and state slots, allocated from what each layer says it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

from day0.profile.profile import LayerSpec


class CacheStorage:
    """All cache planes [pages * page_size, ...] and states [slots, ...], by layer and name.

    `kv_dtype` is what planes are kept in, `model_dtype` what non-float32 states are kept in.
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
            (layer.index, plane.name): torch.empty(num_pages * page_size, *plane.shape, dtype=kv_dtype, device=device)
            for layer in layers
            for plane in layer.cache_planes()
        }
        self._states = {
            (layer.index, state.name): torch.empty(
                num_slots,
                *state.shape,
                dtype=torch.float32 if state.dtype == "float32" else model_dtype,
                device=device,
            )
            for layer in layers
            for state in layer.state_shapes()
        }

    def plane(self, layer: int, name: str) -> torch.Tensor:
        """The plane of a layer, [slots, ...]; writers index it with `ForwardBatch.write_slots`."""
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
            plane.view(-1, self.page_size, *plane.shape[1:])[index] = float("nan")


def page_bytes(layers: Sequence[LayerSpec], page_size: int, kv_dtype: torch.dtype) -> int:
    """Bytes of one page over all layers."""
    elements = sum(prod(plane.shape) for layer in layers for plane in layer.cache_planes())
    return elements * page_size * kv_dtype.itemsize


def slot_bytes(layers: Sequence[LayerSpec], model_dtype: torch.dtype) -> int:
    """Bytes of one sequence's states over all layers."""
    return sum(
        prod(state.shape) * (4 if state.dtype == "float32" else model_dtype.itemsize)
        for layer in layers
        for state in layer.state_shapes()
    )
