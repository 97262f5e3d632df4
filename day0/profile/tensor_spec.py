"""One expected tensor: checkpoint name, stored shape and dtype, our path, and how ranks share it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from day0.source.model_files import DTYPE_BITS


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One stored tensor, or one per expert where `experts` > 0 (then `name` holds "{expert}").

    `path` is the parameter in our modules; per-expert tensors are stacked there along a new first axis.
    `shape` and `dtype` are as stored. `parameters` counts model parameters (a packed tensor holds more of them than
    elements, a scale holds none), for one expert. `shard_axis` is what tensor parallelism may cut, None where every
    rank holds all of it; it is cut between `shard_units` equal pieces (heads, channels, quantisation groups) and not
    inside one. `layer` is None outside the decoder layers. `keep_float32` marks tensors that stay float32 whatever
    the model's dtype. `stacked` says that the first axis of the one stored tensor is that many experts (its parameters
    are those of all); with `input_first` it is [experts, in, out]. `format` names the packing that the tensor is part
    of, "" for plain numbers. `zero_tail` allows a stored first axis longer than `shape[0]` when the rest is zero.
    `parts` are the modules whose parameters the tensor holds one after another along its output axis, each with its
    rows, where it is more than the one of `path`; they come in `by_turns` turns, an equal share of each in every one,
    0: one after another. In a packed tensor "rows" are entries along `output_axis` (experts aside): 0 where all of it
    serves every part, -1 where an entry serves rows of several.
    """

    name: str
    path: str
    shape: tuple[int, ...]
    dtype: str
    group: str
    parameters: int
    layer: int | None = None
    experts: int = 0
    shard_axis: int | None = None
    shard_units: int = 1
    keep_float32: bool = False
    zero_tail: bool = False
    stacked: int = 0
    input_first: bool = False
    format: str = ""
    parts: tuple[tuple[str, int], ...] = ()
    by_turns: int = 0
    output_axis: int = 0

    @property
    def num_experts(self) -> int:
        """How many experts share this parameter out among them, 0 where it belongs to none."""
        return self.experts or self.stacked

    @property
    def count(self) -> int:
        """How many stored tensors this is."""
        return max(1, self.experts)

    @property
    def nbytes(self) -> int:
        """Bytes of all of them as stored."""
        return self.count * prod(self.shape) * DTYPE_BITS[self.dtype] // 8

    @property
    def total_parameters(self) -> int:
        return self.count * self.parameters

    def names(self) -> list[str]:
        """The checkpoint names, one per expert where there are experts."""
        if not self.experts:
            return [self.name]
        head, tail = self.name.split("{expert}")
        return [f"{head}{expert}{tail}" for expert in range(self.experts)]
