"""Rank 0 of several: it starts the others, takes the requests, and tells the others what to do in each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from day0.errors import EnvironmentFault, InputError
from day0.plan.settings import EngineSettings
from day0.profile.profile import ArchitectureProfile
from day0.runtime.batch import ImageSpan, Request, TokenOutput
from day0.runtime.engine.engine import Engine, EngineStats
from day0.runtime.engine.load import OnPhase, VerifiedOn, assemble, load_engine
from day0.runtime.engine.load_share import rank_settings
from day0.runtime.engine.memory import choose_device
from day0.runtime.models.decoder import Decoder
from day0.runtime.ops.registry import accelerator_name
from day0.runtime.parallel.joining import Joined, join, open_store
from day0.runtime.parallel.launch import Children
from day0.runtime.parallel.layout import Layout
from day0.runtime.parallel.local_specs import local_layers, stage_layers
from day0.runtime.parallel.ranks import form_groups
from day0.runtime.parallel.shares import local_tensors
from day0.runtime.parallel.watch import Watch
from day0.runtime.trace import Trace
from day0.source.model_files import ModelFiles

FOLLOWER = "day0.cli.rank"
"""The command that the other ranks run."""


@dataclass(frozen=True, slots=True)
class Load:
    """Every rank loads its share of a model, as engine `number`."""

    number: int
    files: ModelFiles
    profile: ArchitectureProfile
    settings: EngineSettings
    verified: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Step:
    """What came in since the last step, by replica, in order; then a step of all."""

    number: int
    changes: tuple[tuple[int, Request | str], ...]  # a request to add, or the id of one to abort


@dataclass(frozen=True, slots=True)
class Forward:
    """A plain forward of the first replica."""

    number: int
    token_ids: tuple[int, ...]
    chunk: int | None
    images: tuple[ImageSpan, ...]


@dataclass(frozen=True, slots=True)
class Traced:
    """A prompt and greedy tokens after it, traced by the first replica; what each step is given comes before it."""

    number: int
    token_ids: tuple[int, ...]
    new_tokens: int
    chunk: int | None
    images: tuple[ImageSpan, ...]


@dataclass(frozen=True, slots=True)
class Again:
    """Engine `number` around the weights of engine `of`, with other settings and a cache of its own."""

    number: int
    of: int
    settings: EngineSettings


@dataclass(frozen=True, slots=True)
class Drop:
    number: int


@dataclass(frozen=True, slots=True)
class Stop:
    pass


Command = Load | Again | Step | Forward | Traced | Drop | Stop


class World:
    """The ranks of this host, this process among them as rank 0. Engines are loaded over all of them, one or more."""

    def __init__(self, joined: Joined, children: Children) -> None:
        self.joined, self.children = joined, children
        self._number = 0
        self._groups: list[dist.ProcessGroup] = []
        joined.watch.on_stuck = self._break

    def _break(self) -> None:
        """Wake this process out of a collective that waits for a rank that is gone, or alive and silent."""
        self.children.kill()
        for group in self._groups:
            with suppress(RuntimeError, NotImplementedError):  # a backend whose broken connections tell by themselves
                group.abort()

    @classmethod
    def start(cls, size: int, device_name: str = "auto") -> World:
        """Start and join `size` ranks; raises EnvironmentFault where they do not come together."""
        device = rank_device(device_name, 0, size)
        store, address = open_store()
        children = Children(FOLLOWER, size)
        watch = Watch(0, size, address, children.logs)
        children.start(address, device_name, watch)
        watch.start()
        try:
            return cls(join(0, size, address, device, watch, store), children)
        except BaseException:
            watch.stop()
            children.end()
            raise

    def load(
        self,
        files: ModelFiles,
        profile: ArchitectureProfile,
        settings: EngineSettings,
        on_phase: OnPhase | None = None,
        verified_on: VerifiedOn | None = None,
    ) -> LeadingEngine:
        """A model over all ranks, as `settings` lay it out; raises what `load_engine` raises, on whichever rank."""
        layout = check_layout(profile, settings)
        assert layout.ranks == self.joined.size, "a layout takes all ranks of a world"
        verified = frozenset(verified_on(accelerator_name(self.joined.device))) if verified_on else frozenset()
        self._number += 1
        command = Load(self._number, files, profile, settings, verified)
        with self.joined.watch.working():
            self.tell(command)
            engine = load_on_rank(self.joined, command, on_phase)
        assert isinstance(engine.model, Decoder)
        ranks = engine.model.ranks
        self._groups += [group.members for group in (ranks.tp, ranks.pp, ranks.stage) if group.members is not None]
        return LeadingEngine(engine, self, command.number)

    def again(self, engine: LeadingEngine, settings: EngineSettings) -> LeadingEngine:
        """Another engine around the same weights, on every rank."""
        self._number += 1
        with self.joined.watch.working():
            self.tell(Again(self._number, engine.number, settings))
            return LeadingEngine(again_on_rank(engine, settings), self, self._number)

    def tell(self, command: Command) -> None:
        self.joined.meeting.tell(command)

    def stop(self) -> None:
        """End the other ranks and leave their groups; safe to call after one has died."""
        if self.joined.watch.death is None:
            with suppress(EnvironmentFault):  # one that dies only now is ended below like the others
                self.tell(Stop())
                self.joined.leave()
        self.joined.watch.stop()
        self.children.end()


class LeadingEngine(Engine):
    """An engine of which every rank has a share; what is asked of it here is done on all of them at once.

    Requests go to the replica that has fewest. Every method may raise EnvironmentFault for a rank that died.
    """

    def __init__(self, own: Engine, world: World, number: int) -> None:
        super().__init__(
            *(own.model, own.vision, own.settings, own.cache, own.max_model_len, own.load_report, own.memory),
            own.device,
        )
        self.world, self.number = world, number
        self.layout = Layout.of(own.settings)
        self.own_world = False
        self._changes: list[tuple[int, Request | str]] = []
        self._replica_of: dict[str, int] = {}
        self._others: list[EngineStats] = []

    def add(self, request: Request) -> None:
        loads = list(self._replica_of.values())
        replica = min(range(self.layout.dp), key=lambda number: (loads.count(number), number))
        if request.id in self._replica_of or replica == 0:
            super().add(request)
        else:
            self._check(request)
            self.scheduler.check_queue(len(loads))
        self._replica_of[request.id] = replica
        self._changes.append((replica, request))

    def abort(self, request_id: str) -> bool:
        replica = self._replica_of.pop(request_id, None)
        if replica is None:
            return False
        if replica == 0:
            super().abort(request_id)
        self._changes.append((replica, request_id))
        return True

    def has_work(self) -> bool:
        return bool(self._replica_of)

    def step(self) -> list[TokenOutput]:
        changes, self._changes = tuple(self._changes), []
        with self.world.joined.watch.working():
            self.world.tell(Step(self.number, changes))
            outputs = super().step()
            if self.layout.dp > 1:
                said = self.world.joined.meeting.hear(None)
                leaders = [said[replica * self.layout.tp] for replica in range(1, self.layout.dp)]
                self._others = [stats for _, stats in leaders]
                outputs = outputs + [output for found, _ in leaders for output in found]
        outputs = [output for output in outputs if output.request_id in self._replica_of]
        for output in outputs:
            if output.finish_reason is not None:
                del self._replica_of[output.request_id]
        return outputs

    def forward(
        self,
        token_ids: Sequence[int],
        *,
        trace: Trace | None = None,
        chunk: int | None = None,
        images: tuple[ImageSpan, ...] = (),
    ) -> torch.Tensor:
        with self.world.joined.watch.working():
            self._check_ids(token_ids)
            self.world.tell(Forward(self.number, tuple(token_ids), chunk, images))
            return super().forward(token_ids, trace=trace, chunk=chunk, images=images)

    def stats(self) -> EngineStats:
        """The sums over replicas; steps are those of the first."""
        own = super().stats()
        if not self._others:
            return own
        everybody = [own, *self._others]
        sums = {name: sum(getattr(stats, name) for stats in everybody) for name in own.__slots__ if name != "steps"}
        return replace(own, **sums)

    def check(self) -> None:
        self.world.joined.watch.check()

    def notify(self, wake: Callable[[], None]) -> None:
        self.world.joined.watch.on_death = wake

    def close(self) -> None:
        if self.own_world:
            self.world.stop()
        elif self.world.joined.watch.death is None:
            self.world.tell(Drop(self.number))


def start_engine(
    files: ModelFiles,
    profile: ArchitectureProfile,
    settings: EngineSettings,
    on_phase: OnPhase | None = None,
    *,
    verified_on: VerifiedOn | None = None,
) -> Engine:
    """`load_engine` for one rank or several: the others are started as processes of this host, and end with this one.

    `Engine.close` ends them. Raises what `load_engine` raises, InputError for a layout that the model cannot be cut
    by, and EnvironmentFault where ranks do not come together.
    """
    if Layout.of(settings).ranks == 1:
        return load_engine(files, profile, settings, on_phase, verified_on=verified_on)
    layout = check_layout(profile, settings)
    world = World.start(layout.ranks, settings.device)
    try:
        engine = world.load(files, profile, settings, on_phase, verified_on)
    except BaseException:
        world.stop()
        raise
    engine.own_world = True
    return engine


def check_layout(profile: ArchitectureProfile, settings: EngineSettings) -> Layout:
    """The layout of several ranks, once it is sure that every rank's share of the model can be cut."""
    layout = Layout.of(settings)
    if settings.runtime == "upstream" or not profile.native:
        raise InputError(
            f"{layout.ranks} ranks asked for, and what transformers runs is not cut between ranks",
            where="--runtime",
            hint="models of our own blocks only",
        )
    if settings.offload != "none":
        raise InputError(
            f"{layout.ranks} ranks keep their weights: they do not come and go",
            where="--offload",
            hint="--offload none, or one rank",
        )
    local_layers(profile, layout)
    stage_layers(profile, layout)
    for rank in range(layout.ranks):
        local_tensors(profile, layout, layout.place(rank))
    return layout


def rank_device(name: str, rank: int, size: int) -> torch.device:
    """The device of a rank: one accelerator each, in order, or the host for all."""
    device = choose_device(name)
    if device.type == "cpu":
        return device
    count = torch.accelerator.device_count()
    if count < size:
        raise EnvironmentFault(
            f"{size} ranks want a device each, and this host has {count}", hint="fewer ranks, or --device cpu"
        )
    torch.accelerator.set_device_index(rank)
    return torch.device(device.type, rank)


def load_on_rank(joined: Joined, command: Load, on_phase: OnPhase | None = None) -> Engine:
    """What every rank does to have its share of a model."""
    layout = Layout.of(command.settings)
    ranks = form_groups(layout, joined.device, joined.meeting)
    settings = rank_settings(command.settings, command.profile, joined.device)
    verified = command.verified

    def verified_on(device: str) -> frozenset[tuple[str, str]]:
        del device
        return verified

    return load_engine(command.files, command.profile, settings, on_phase, verified_on=verified_on, ranks=ranks)


def again_on_rank(engine: Engine, settings: EngineSettings) -> Engine:
    """What every rank does to have another engine around its share of the weights."""
    settings = replace(settings, device=engine.settings.device)
    return assemble(engine.model, engine.vision, settings, engine.load_report, engine.device)
