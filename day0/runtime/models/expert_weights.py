"""The matrices of routed experts: plain, or packed and turned back as they are chosen."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from day0.profile.profile import RoutedExperts
from day0.profile.quantization import WeightFormat
from day0.runtime.models.linear import weight
from day0.runtime.ops.routed_experts import ExpertMatrices, StackedExperts
from day0.runtime.quant.hot_experts import Key, Matrices
from day0.runtime.quant.parts import PackedParts
from day0.runtime.quant.workspace import Workspace


class PlainMatrix(nn.Module):
    """One projection of all experts, [experts, out, in], and a bias of each where there is one."""

    def __init__(self, experts: int, out_features: int, in_features: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = weight(experts, out_features, in_features)
        self.bias = weight(experts, out_features) if bias else None

    @property
    def size(self) -> tuple[int, int]:
        """(out, in) of one expert."""
        return self.weight.shape[1], self.weight.shape[2]

    def convert(self, experts: list[int], out: torch.Tensor) -> None:
        """Copy the chosen experts' matrices to out [chosen, out, in]."""
        for place, expert in enumerate(experts):
            out[place].copy_(self.weight[expert])


class PackedMatrix(PackedParts):
    """One projection of all experts as it is stored: the parts of each along a first axis."""

    def __init__(self, plain: PlainMatrix, packing: WeightFormat, workspace: Workspace) -> None:
        super().__init__(packing, *plain.size, experts=plain.weight.shape[0])
        self.bias = plain.bias
        self._workspace = workspace

    def convert(self, experts: list[int], out: torch.Tensor) -> None:
        """Write the chosen experts' numbers to out [chosen, out, in]."""
        self._workspace.decoder.decode_some(self.packing, self.parts(), experts, out)


class PlainExperts(nn.Module):
    """The weights of `experts` experts, None for all, in the model's dtype."""

    def __init__(self, spec: RoutedExperts, inner: int, experts: int | None = None) -> None:
        super().__init__()
        experts = spec.router.num_experts if experts is None else experts
        self.gate = PlainMatrix(experts, spec.width, inner, spec.bias) if spec.gated else None
        self.up = PlainMatrix(experts, spec.width, inner, spec.bias)
        self.down = PlainMatrix(experts, inner, spec.width, spec.bias)

    def stacked(self) -> StackedExperts:
        """All experts as they lie in memory."""
        parts = (self.gate, self.up, self.down)
        gate = None if self.gate is None else self.gate.weight
        stacked_biases = (None if part is None else part.bias for part in parts)
        return StackedExperts(gate, self.up.weight, self.down.weight, *stacked_biases)

    def matrices(self, experts: list[int]) -> Iterator[ExpertMatrices]:
        gates, ups, downs, *_ = self.stacked()
        for expert in experts:
            gate = None if gates is None else gates[expert]
            yield ExpertMatrices(expert, gate, ups[expert], downs[expert], *biases(self, expert))


class PackedExperts(nn.Module):
    """Expert weights as stored; the chosen ones are turned back in the workspace that all layers share.

    Those used last are kept beside it, where the workspace has a budget for them. `place` is the module's own path.
    """

    def __init__(self, plain: PlainExperts, place: str, workspace: Workspace) -> None:
        super().__init__()
        self.gate: PlainMatrix | PackedMatrix | None = plain.gate
        self.up: PlainMatrix | PackedMatrix = plain.up
        self.down: PlainMatrix | PackedMatrix = plain.down
        self._place = place
        self._workspace = workspace
        self._num_experts = plain.up.weight.shape[0]
        sizes = [matrix.size for matrix in self._projections()]
        each = sum(rows * columns for rows, columns in sizes)
        workspace.reserve(each if workspace.float8 else self._capacity * each)
        workspace.hot.reserve(workspace.reserve_codes(sizes) if workspace.float8 else each, self._num_experts)

    def stacked(self) -> None:
        """Packed experts do not lie plain in memory."""

    def matrices(self, experts: list[int]) -> Iterator[ExpertMatrices]:
        """The chosen experts in turn; what was given before is overwritten when the next is taken."""
        hot, keys = self._workspace.hot, {expert: (self._place, expert) for expert in experts}
        if self._workspace.float8:
            yield from self._through_float8(keys)
            return
        spared, ready = set(keys.values()), dict[int, Matrices]()
        for number, expert in enumerate(experts):
            found = hot.get(keys[expert])
            if found is None:
                if expert not in ready:
                    missing = [other for other in experts[number:] if not hot.holds(keys[other])]
                    ready = self._convert(missing[: self._capacity])
                found = ready[expert]
                hot.put(keys[expert], found, spared)
            yield self._given(expert, found)

    def _through_float8(self, keys: dict[int, Key]) -> Iterator[ExpertMatrices]:
        """The same through FP8 blocks, which are what is kept: one expert at a time, whether it was kept or not."""
        workspace = self._workspace
        for expert, key in keys.items():
            rooms = workspace.room(*(matrix.size for matrix in self._projections()))
            codes = workspace.hot.get(key)
            if codes is None:
                for matrix, room in zip(self._projections(), rooms, strict=True):
                    matrix.convert([expert], room[None])
                codes = workspace.encode(rooms)
                workspace.hot.put(key, codes, keys.values())
            workspace.decode(codes, rooms)
            yield self._given(expert, rooms)

    def _given(self, expert: int, matrices: Matrices) -> ExpertMatrices:
        *gate, up, down = matrices
        return ExpertMatrices(expert, gate[0] if gate else None, up, down, *biases(self, expert))

    @property
    def _capacity(self) -> int:
        """Experts turned back at once."""
        return min(self._workspace.experts, self._num_experts)

    def _projections(self) -> tuple[PlainMatrix | PackedMatrix, ...]:
        return tuple(matrix for matrix in (self.gate, self.up, self.down) if matrix is not None)

    def _convert(self, experts: list[int]) -> dict[int, Matrices]:
        shapes = [(len(experts), *matrix.size) for matrix in self._projections()]
        rooms = self._workspace.room(*shapes)
        for matrix, room in zip(self._projections(), rooms, strict=True):
            matrix.convert(experts, room)
        return {expert: tuple(room[place] for room in rooms) for place, expert in enumerate(experts)}


def biases(experts: PlainExperts | PackedExperts, expert: int) -> Iterator[torch.Tensor | None]:
    """An expert's biases of gate, up and down."""
    for matrix in (experts.gate, experts.up, experts.down):
        yield None if matrix is None or matrix.bias is None else matrix.bias[expert]
