"""The one buffer that packed matrices of all layers are turned back into, and the experts kept beside it."""

from __future__ import annotations

import torch

from day0.profile.quantization import WeightFormat
from day0.runtime.quant.decoder import Decoder, Parts
from day0.runtime.quant.hot_experts import HotExperts


class Workspace:
    """Room for the largest thing turned back at a time, in the model's dtype; what comes next takes it over.

    Modules `reserve` what they need while the model is built; `allocate` then takes the memory, once.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device, experts: int = 16, hot_bytes: int = 0) -> None:
        self.dtype = dtype
        self.device = device
        self.experts = experts
        self.decoder = Decoder(device)
        self.hot = HotExperts(hot_bytes, dtype, device)
        self._size = 0
        self._buffer = torch.empty(0, dtype=dtype, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer; those of `hot` are its own."""
        return self._buffer.nbytes

    def reserve(self, numbers: int) -> None:
        self._size = max(self._size, numbers)

    def allocate(self) -> None:
        self._buffer = torch.empty(self._size, dtype=self.dtype, device=self.device)
        self.hot.allocate()

    def room(self, *shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
        """The buffer as tensors of these shapes, one after another; whatever lay there is given up."""
        rooms, start = [], 0
        for shape in shapes:
            size = torch.Size(shape).numel()
            rooms.append(self._buffer[start : start + size].view(shape))
            start += size
        return tuple(rooms)

    def matrix(self, packing: WeightFormat, parts: Parts, rows: int, columns: int) -> torch.Tensor:
        """One matrix as numbers, [rows, columns], in the room that the next call takes over."""
        (room,) = self.room((rows, columns))
        return self.decoder.decode(packing, parts, room)
