"""How many ranks share a model, in which grid they stand, and which lot of experts each has."""

from __future__ import annotations

from dataclasses import dataclass

from day0.errors import InputError
from day0.plan.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks stand in a grid of `pp` stages by `dp` replicas by `tp` slices, rank by rank in that order.

    A replica's `tp` ranks cut each layer between them. Where `ep` is above 1 the routed experts of a stage are dealt
    whole into `ep` lots over all of its replicas, and each lot is cut into `expert_tp` slices; else every replica has
    all experts, cut as its other matrices are.
    """

    tp: int = 1
    ep: int = 1
    pp: int = 1
    dp: int = 1

    @classmethod
    def of(cls, settings: EngineSettings) -> Layout:
        """The layout that settings ask for; raises InputError for lots that a stage's ranks cannot be dealt into."""
        layout = cls(settings.tp, settings.ep, settings.pp, settings.dp)
        if layout.stage_ranks % layout.ep:
            fitting = [str(n) for n in range(1, layout.stage_ranks + 1) if layout.stage_ranks % n == 0]
            raise InputError(
                f"expert-ranks: the {layout.stage_ranks} ranks of a stage (tp {layout.tp} x dp {layout.dp}) cannot be "
                f"dealt into {layout.ep} lots of experts",
                where="--ep",
                hint=f"ep of {', '.join(fitting)}, or more ranks: --tp {layout.ep}",
            )
        return layout

    @property
    def stage_ranks(self) -> int:
        return self.dp * self.tp

    @property
    def ranks(self) -> int:
        return self.pp * self.stage_ranks

    @property
    def expert_tp(self) -> int:
        """Slices that one expert's matrices are cut into."""
        return self.tp if self.ep == 1 else self.stage_ranks // self.ep

    def place(self, rank: int) -> Place:
        stage, within = divmod(rank, self.stage_ranks)
        replica, slice_ = divmod(within, self.tp)
        lot, expert_slice = (0, slice_) if self.ep == 1 else divmod(within, self.expert_tp)
        return Place(rank, stage, replica, slice_, lot, expert_slice)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank stands: its stage, replica and slice, and of the experts its lot and its slice of them."""

    rank: int = 0
    stage: int = 0
    replica: int = 0
    slice: int = 0
    lot: int = 0
    expert_slice: int = 0


def even_share(count: int, ranks: int, rank: int) -> range:
    """Which of `count` things are a rank's, in order; the shares differ by one at most, and may be empty."""
    return range(count * rank // ranks, count * (rank + 1) // ranks)
