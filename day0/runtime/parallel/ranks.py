"""Ranks that work on one model: how they add up, gather, exchange and hand on tensors. One rank alone does nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from day0.runtime.parallel.layout import Layout, Place, even_share
from day0.runtime.parallel.meeting import Explain, Meeting, unexplained


@dataclass(frozen=True, slots=True)
class Group:
    """Some ranks in order, of which this one is number `index`. All must call the same methods in the same order.

    Every method raises EnvironmentFault where a rank has gone.
    """

    size: int = 1
    index: int = 0
    members: dist.ProcessGroup | None = None
    explain: Explain = unexplained

    @property
    def alone(self) -> bool:
        return self.size == 1

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' x, the same bits on each; x itself may be overwritten."""
        if self.alone:
            return x
        x = x.contiguous()
        with self._told():
            dist.all_reduce(x, group=self.members)
        return x

    def mean(self, x: torch.Tensor) -> torch.Tensor:
        """The mean of all ranks' x."""
        return x if self.alone else self.sum(x) / self.size

    def once(self, x: torch.Tensor) -> torch.Tensor:
        """What each adds to a sum to which all have computed the same x: the first all of it, the others nothing."""
        return x if self.index == 0 else torch.zeros_like(x)

    def own(self, count: int) -> range:
        """This rank's share of `count` things."""
        return even_share(count, self.size, self.index)

    def gather_columns(self, x: torch.Tensor, columns: int) -> torch.Tensor:
        """[rows, columns] from even shares of its columns, x [rows, own], in the order of the ranks."""
        if self.alone:
            return x
        shares = [len(even_share(columns, self.size, rank)) for rank in range(self.size)]
        padded = torch.zeros(x.shape[0], max(shares), dtype=x.dtype, device=x.device)
        padded[:, : x.shape[1]] = x
        found = [torch.empty_like(padded) for _ in shares]
        with self._told():
            dist.all_gather(found, padded, group=self.members)
        return torch.cat([part[:, :share] for part, share in zip(found, shares, strict=True)], dim=1)

    def exchange(self, rows: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:
        """Rows for each rank, one rank's after another's, `sent` of them to each; gives those from each, likewise."""
        found = torch.empty(sum(received), *rows.shape[1:], dtype=rows.dtype, device=rows.device)
        with self._told():
            dist.all_to_all_single(found, rows.contiguous(), list(received), list(sent), group=self.members)
        return found

    def exchange_counts(self, sent: Sequence[int], device: torch.device) -> list[int]:
        """How many rows each rank is about to send here."""
        return self.exchange(torch.tensor(sent, device=device), [1] * self.size, [1] * self.size).tolist()

    def hand_on(self, x: torch.Tensor, to: int) -> None:
        """Send a tensor to another rank of the group, which takes it with `take_over`."""
        assert self.members is not None
        with self._told():
            dist.send(x.contiguous(), group=self.members, group_dst=to)

    def take_over(self, into: torch.Tensor, source: int) -> torch.Tensor:
        assert self.members is not None
        with self._told():
            dist.recv(into, group=self.members, group_src=source)
        return into

    def share_out(self, x: torch.Tensor, source: int) -> torch.Tensor:
        """The tensor of rank `source`; on the others x gives shape and dtype and is overwritten."""
        if self.alone:
            return x
        x = x.contiguous()
        with self._told():
            dist.broadcast(x, group=self.members, group_src=source)
        return x

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # all that a backend raises where a peer is gone
            raise self.explain(error) from error


@dataclass(frozen=True, slots=True)
class Ranks:
    """A rank's place in a layout, and the groups it is in.

    Those of `tp` cut layers with it, those of `pp` come before and after it in the pipeline, all of a `stage` share the
    experts out, and all ranks are in `meeting`.
    """

    layout: Layout = field(default_factory=Layout)
    place: Place = field(default_factory=Place)
    tp: Group = field(default_factory=Group)
    pp: Group = field(default_factory=Group)
    stage: Group = field(default_factory=Group)
    meeting: Meeting = field(default_factory=Meeting)

    @property
    def first_stage(self) -> bool:
        return self.place.stage == 0

    @property
    def last_stage(self) -> bool:
        return self.place.stage == self.layout.pp - 1

    def experts(self, count: int) -> range:
        """Which of a layer's experts this rank has, whole or in slices."""
        return even_share(count, self.layout.ep, self.place.lot)


ALONE = Ranks()
"""One rank that has all of a model."""


def form_groups(layout: Layout, device: torch.device, meeting: Meeting) -> Ranks:
    """The groups of a rank among all that `torch.distributed` was started with; every rank calls this at once."""
    grid = torch.arange(layout.ranks).reshape(layout.pp, layout.dp, layout.tp)
    names = ("pp", "dp", "tp")
    mesh = DeviceMesh(device.type, grid, mesh_dim_names=names)
    stage = mesh["dp", "tp"]._flatten("stage")
    place, explain = layout.place(meeting.rank), meeting.explain

    def group(members: dist.ProcessGroup, size: int, index: int) -> Group:
        return Group(size, index, members, explain)

    return Ranks(
        layout,
        place,
        group(mesh.get_group("tp"), layout.tp, place.slice),
        group(mesh.get_group("pp"), layout.pp, place.stage),
        group(stage.get_group(), layout.stage_ranks, meeting.rank % layout.stage_ranks),
        meeting,
    )
