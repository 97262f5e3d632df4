"""One reusable buffer that packed experts are converted into, shared by all layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from day0.runtime.quant.mxfp4 import MXFP4Decoder


class ExpertWorkspace:
    """Room for `capacity` converted experts of one size: gate and up [width, in], down [in, width]."""

    def __init__(self, capacity: int, width: int, inner: int, dtype: torch.dtype, device: torch.device) -> None:
        self.gate = torch.empty(capacity, width, inner, dtype=dtype, device=device)
        self.up = torch.empty_like(self.gate)
        self.down = torch.empty(capacity, inner, width, dtype=dtype, device=device)
        self.decoder = MXFP4Decoder(device)

    @property
    def nbytes(self) -> int:
        return self.gate.nbytes + self.up.nbytes + self.down.nbytes

    def convert(
        self, experts: list[int], packed: Mapping[str, torch.Tensor], scales: Mapping[str, torch.Tensor]
    ) -> Iterator[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Yield the experts in order with their matrices, converting as many at once as there is room for.

        packed and scales hold "gate", "up" and "down" of all experts, [experts, rows, ...] uint8. What was yielded
        before is overwritten by the next conversion.
        """
        buffers = {"gate": self.gate, "up": self.up, "down": self.down}
        for start in range(0, len(experts), self.gate.shape[0]):
            batch = experts[start : start + self.gate.shape[0]]
            index = torch.tensor(batch, device=self.gate.device)
            for name, buffer in buffers.items():
                self.decoder.decode(packed[name][index], scales[name][index], buffer[: len(batch)])
            for place, expert in enumerate(batch):
                yield expert, self.gate[place], self.up[place], self.down[place]
