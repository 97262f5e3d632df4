"""The one buffer that packed matrices of all layers are turned back into, and the experts kept beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from day0.profile.quantization import WeightFormat
from day0.runtime.quant.decoder import Decoder, Parts
from day0.runtime.quant.hot_experts import HotExperts, Matrices
from day0.runtime.quant.reencode import FORMAT, encode_into, scale_grid


class Workspace:
    """Room for the largest thing turned back at a time, in the model's dtype; what comes next takes it over.

    Modules `reserve` what they need while the model is built; `allocate` then takes the memory, once. With `float8`,
    experts, all of them MXFP4, pass through FP8 on their way to numbers, and are kept so: `rounded_blocks` of the
    `encoded_blocks` made so far did not hold the same numbers.
    """

    def __init__(
        self, dtype: torch.dtype, device: torch.device, experts: int = 16, hot_bytes: int = 0, *, float8: bool = False
    ) -> None:
        self.dtype = dtype
        self.device = device
        self.experts = experts
        self.decoder = Decoder(device)
        self.float8 = float8
        self.hot = HotExperts(hot_bytes, torch.uint8 if float8 else dtype, device)
        self.encoded_blocks = self.rounded_blocks = 0
        self._size = 0
        self._buffer = torch.empty(0, dtype=dtype, device=device)
        self._num_codes = 0
        self._codes = torch.empty(0, dtype=torch.uint8, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer; those of `hot` are its own."""
        return self._buffer.nbytes + self._codes.nbytes

    def reserve(self, numbers: int) -> None:
        self._size = max(self._size, numbers)

    def reserve_codes(self, sizes: Sequence[tuple[int, int]]) -> int:
        """Room for one expert of matrices of these sizes as FP8; gives its bytes."""
        count = sum(rows * columns + math.prod(scale_grid(rows, columns)) for rows, columns in sizes)
        self._num_codes = max(self._num_codes, count)
        return count

    def allocate(self) -> None:
        self._buffer = torch.empty(self._size, dtype=self.dtype, device=self.device)
        self._codes = torch.empty(self._num_codes, dtype=torch.uint8, device=self.device)
        self.hot.allocate()

    def room(self, *shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
        """The buffer as tensors of these shapes, one after another; whatever lay there is given up."""
        return _parted(self._buffer, shapes)

    def matrix(self, packing: WeightFormat, parts: Parts, rows: int, columns: int) -> torch.Tensor:
        """One matrix as numbers, [rows, columns], in the room that the next call takes over."""
        (room,) = self.room((rows, columns))
        return self.decoder.decode(packing, parts, room)

    def encode(self, matrices: Matrices) -> Matrices:
        """An expert's matrices as FP8: bytes and scales of each in turn, in the room that the next call takes over."""
        shapes = [shape for matrix in matrices for shape in (matrix.shape, scale_grid(*matrix.shape))]
        codes = _parted(self._codes, shapes)
        for matrix, weight, scale in zip(matrices, codes[::2], codes[1::2], strict=True):
            self.rounded_blocks += encode_into(matrix, weight, scale)
            self.encoded_blocks += scale.numel()
        return codes

    def decode(self, codes: Matrices, matrices: Matrices) -> None:
        """Fill an expert's `matrices` with the numbers of what `encode` gave."""
        for matrix, weight, scale in zip(matrices, codes[::2], codes[1::2], strict=True):
            self.decoder.decode(FORMAT, {"weight": weight, "scale": scale}, matrix)


def _parted(buffer: torch.Tensor, shapes: Sequence[tuple[int, ...]]) -> tuple[torch.Tensor, ...]:
    rooms, start = [], 0
    for shape in shapes:
        size = math.prod(shape)
        rooms.append(buffer[start : start + size].view(shape))
        start += size
    return tuple(rooms)
