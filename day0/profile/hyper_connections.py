"""Hyper-connections: several residual streams, mixed by weights that each layer computes from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class HyperConnections:
    """`streams` residual streams (Hyper-Connections, arXiv 2409.19606; manifold-constrained: DeepSeek-V4).

    Before each branch all streams, flattened and normalised, give one weight per stream to read by and one to write
    by; the branch's output is added to every stream by its writing weight, `write_scale` x sigmoid. Where
    `sinkhorn_iterations` is a number the streams are also mixed with each other, by a matrix made doubly stochastic
    in as many steps; None leaves them as they are (Hunyuan 4). At the end the streams are joined by weights computed
    alike (`learned_head`), or by their mean.
    """

    kind: ClassVar[str] = "hyper_connection"
    streams: int
    eps: float
    sinkhorn_iterations: int | None
    write_scale: float = 2.0
    learned_head: bool = True

    @property
    def num_weights(self) -> int:
        """Weights of one site: reading and writing per stream, and the mixing matrix."""
        return self.streams * (2 if self.sinkhorn_iterations is None else 2 + self.streams)

    @property
    def num_scales(self) -> int:
        """Each kind of weight has one learnt scale."""
        return 2 if self.sinkhorn_iterations is None else 3
