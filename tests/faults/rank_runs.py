"""Two ranks of one model in two threads of this process: each traces its share, as an engine's dumper would."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from hunting import IDS, Edit, load, without_check
from torch import Tensor

from day0.numerics.dumps import NameMap, read_dump
from day0.numerics.reading import Recording
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.tracing import traced_steps
from day0.runtime.parallel.layout import Layout
from day0.runtime.parallel.ranks import Group, Ranks
from day0.runtime.trace import Trace

RANKS = 2
JOINED = NameMap(
    axes={
        r"layers\.\d+\.mixer\.(q|k|v|attention|gate)": 1,
        r"layers\.\d+\.ffn\.(routed_sum|routed_out|shared_out)": "sum",
        r".*": "same",
    }
)
"""How the ranks' tensors of grouped-query attention and of experts belong together."""


class Table:
    """Where the ranks of one run lay their tensors down for each other."""

    def __init__(self) -> None:
        self._places: list[Any] = [None] * RANKS
        self._barrier = threading.Barrier(RANKS, timeout=60)

    def all(self, rank: int, x: Tensor) -> list[Tensor]:
        """The tensors of all ranks, in order."""
        self._places[rank] = x
        self._barrier.wait()
        found = list(self._places)
        self._barrier.wait()
        return found


class Threads(Group):
    """A group whose members are threads; what faulty ones do otherwise is in the subclasses of those who need it."""

    def __init__(self, index: int, table: Table) -> None:
        super().__init__(RANKS, index)
        object.__setattr__(self, "table", table)

    def sum(self, x: Tensor) -> Tensor:
        return torch.stack(self._all(x)).sum(0)

    def gather_columns(self, x: Tensor, columns: int) -> Tensor:
        return torch.cat(self._all(x), dim=1)

    def _all(self, x: Tensor) -> list[Tensor]:
        found: list[Tensor] = self.table.all(self.index, x)  # type: ignore[attr-defined]
        return found


def recorded_by_ranks(folder: Path, out: Path, group: type[Threads] = Threads, edit: Edit | None = None) -> Recording:
    """Trace the prompt on two ranks into a folder of dumps below `out`, and read that back joined."""
    layout, table = Layout(tp=RANKS), Table()

    def run(rank: int) -> dict[str, Tensor]:
        members = group(rank, table)
        engine = load(folder, ranks=Ranks(layout, layout.place(rank), tp=members, stage=members), tp=RANKS)
        if edit is not None:
            edit(engine)
        return _traced(engine)

    with without_check(), ThreadPoolExecutor(RANKS) as pool:
        traces: Sequence[dict[str, Tensor]] = list(pool.map(run, range(RANKS)))
    for rank, tensors in enumerate(traces):
        (out / f"rank{rank}").mkdir(parents=True)
        for name, tensor in tensors.items():
            torch.save(tensor, out / f"rank{rank}" / f"{name}.pt")
        torch.save(torch.tensor(IDS), out / f"rank{rank}" / "input_ids.pt")
    return read_dump(out, JOINED)


def _traced(engine: Engine) -> dict[str, Tensor]:
    kept: dict[str, Tensor] = {}

    def keep(name: str, tensor: Tensor) -> None:
        kept[name] = tensor.detach().clone()

    list(traced_steps(engine, IDS, lambda *place: Trace(observe=keep), new_tokens=1))
    return kept
