"""Every road through the runtime gives the same answers: roads are tried in pairs of settings, a failure is shrunk."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import torch

from day0.checklist.boundaries import RESIDUES, boundary_lengths, model_sizes
from day0.checklist.checklist import Measured, Outcome, Where
from day0.checklist.probe_paths import engine_of, node_place, rounding_noise, traced_outputs
from day0.checklist.probe_roads import WHOLE, Prompt, Road, Travelled, traced_rows, travel, two_ranks
from day0.checklist.probe_runtime import RuntimeTarget
from day0.checklist.probe_upstream import runs_upstream
from day0.checklist.probe_yardstick import Deviation, Yardstick
from day0.checklist.prompts import prompt_ids
from day0.checklist.target import CheckContext
from day0.errors import Day0Error, InputError
from day0.numerics.compare import compare_traces
from day0.numerics.covering import Settings, covering, smallest
from day0.plan.settings import EngineSettings
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.lead import check_layout
from day0.runtime.engine.memory import free_bytes
from day0.runtime.parallel.layout import Layout

REFERENCE = Road()


@dataclass(frozen=True, slots=True)
class Scope:
    """How much is tried: values of the axes (the reference's first), the longest prompt, prompts a road.

    With `sweep` every boundary length of the model is on some road; without, those of pages and chunks are chosen
    from. `pages` are page sizes, as multiples of the engine's own.
    """

    axes: Mapping[str, Sequence[object]]
    longest: int
    prompts: int
    pages: tuple[float, ...]
    sweep: bool = True


SCOPES: Mapping[str, Scope] = {
    "quick": Scope({"batch": (1, 3), "chunk": (WHOLE, 7), "prefix": ("cold", "warm")}, 40, 4, (1,), False),
    "short": Scope(
        {
            "batch": (1, 3),
            "order": ("listed", "reversed"),
            "chunk": (WHOLE, 7, 17),
            "prefix": ("cold", "warm", "branch"),
            "room": ("ample", "tight"),
            "memory": ("fresh", "reused"),
            "weights": ("resident", "disk"),
            "ranks": ("alone", "tp", "pp", "ep"),
        },
        130,
        5,
        (1, 0.5),
    ),
    "full": Scope(
        {
            "batch": (1, 2, 5),
            "order": ("listed", "reversed"),
            "chunk": (WHOLE, 7, 15, 16, 17, 64),
            "prefix": ("cold", "warm", "branch"),
            "room": ("ample", "tight"),
            "memory": ("fresh", "reused"),
            "weights": ("resident", "host", "disk"),
            "ranks": ("alone", "tp", "pp", "ep"),
        },
        520,
        12,
        (1, 0.25, 0.5, 2, 4),
    ),
}


@dataclass(slots=True)
class Roads:
    """The engines that roads begin at, by weights and ranks, and which values a model cannot have and why."""

    context: CheckContext
    engines: dict[tuple[str, str], Engine] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def axes(self, scope: Scope) -> dict[str, Sequence[object]]:
        """The scope's axes with the values that this model on this machine can have."""
        engine, axes = engine_of(self.context), dict(scope.axes)
        size = engine.settings.page_size
        axes["page"] = (0, *(max(1, int(size * factor)) for factor in scope.pages if factor != 1))
        if engine.memory.kv_bytes == 0:
            self._leave_out(axes, "room", "tight", "the model keeps no cache that grows")
        for name in ("weights", "ranks"):
            for value in axes.get(name, ())[1:]:
                if reason := self._lacks(name, str(value)):
                    self._leave_out(axes, name, value, reason)
        if runs_upstream(self.context):
            self._leave_out(axes, "prefix", "warm", reason := "transformers keeps its own cache")
            self._leave_out(axes, "prefix", "branch", reason)
        return axes

    def _leave_out(self, axes: dict[str, Sequence[object]], name: str, value: object, reason: str) -> None:
        if value in axes.get(name, ()):
            axes[name] = tuple(other for other in axes[name] if other != value)
            self.left_out[f"{name} {value}"] = reason

    def _lacks(self, name: str, value: str) -> str:
        """Why an engine with other weights or ranks cannot be had here; empty where it can."""
        engine = engine_of(self.context)
        if runs_upstream(self.context):
            return "transformers holds the whole model"
        if Layout.of(engine.settings).ranks > 1 or engine.settings.offload != "none":
            return "the run has ranks or offloaded weights already"
        if name == "weights":
            return "the device is the host already" if value == "host" and engine.device.type == "cpu" else ""
        needed = int(1.5 * engine.memory.weight_bytes)
        if engine.device.type == "cpu" and needed > free_bytes(engine.device):
            return f"a second copy of the weights needs {needed / 2**30:.1f} GiB"
        try:
            check_layout(self.context.profile, two_ranks(engine.settings, value))
        except Day0Error as fault:
            return str(fault)
        return ""

    def allowed(self, settings: Settings) -> bool:
        """Ranks keep their weights; a stage of a model with states finds no prefixes, and has its own bytes a page."""
        tight = settings.get("room", "ample") == "tight"
        if tight and settings.get("chunk", WHOLE) != WHOLE and settings.get("batch", 1) != 1:
            return False  # late comers would wait for pages instead of losing theirs
        if settings.get("ranks", "alone") == "alone":
            return True
        if settings.get("weights", "resident") != "resident":
            return False
        return settings["ranks"] != "pp" or (not tight and settings.get("prefix", "cold") == "cold")

    def base(self, road: Road) -> Engine:
        """The engine whose weights a road uses, loaded when it is first wanted."""
        sound = engine_of(self.context)
        if (road.weights, road.ranks) == (REFERENCE.weights, REFERENCE.ranks):
            return sound
        key = road.weights, road.ranks
        if key not in self.engines:
            assert isinstance(self.context.target, RuntimeTarget)
            settings = self._settings(sound, road)
            self.engines[key] = self.context.target.build(settings)
        return self.engines[key]

    def _settings(self, sound: Engine, road: Road) -> EngineSettings:
        offload = "none" if road.weights == "resident" else road.weights
        return replace(two_ranks(sound.settings, road.ranks), offload=offload, max_model_len=64, kv_cache_bytes=None)

    def close(self) -> None:
        for engine in self.engines.values():
            engine.close()
        assert isinstance(self.context.target, RuntimeTarget)
        if any(ranks != "alone" for _, ranks in self.engines):
            self.context.target.close()


def invariance(
    context: CheckContext,
    *,
    scope: str = "short",
    axes: list[str] | None = None,
    max_tokens: int = 4,
    budget_s: float = 90.0,
) -> Outcome:
    """Prompts of every boundary length along roads of every pair of settings, against each alone, whole and cold.

    Roads that the budget of seconds leaves out are counted in `roads_not_run`. A failure is shrunk to the settings
    and the prompt that it takes, and the first tensor that differs on that road is named.
    """
    wanted = _chosen(scope, axes)
    threads = torch.get_num_threads()
    roads = Roads(context)
    try:
        return _Suite(context, roads, wanted, max_tokens, time.monotonic() + budget_s).run()
    finally:
        roads.close()
        torch.set_num_threads(threads)  # ranks of one host share its threads, and those of this process are theirs


def _chosen(scope: str, axes: list[str] | None) -> Scope:
    """A scope by name, with some of its axes only where `axes` says which."""
    if scope not in SCOPES:
        raise InputError(f"no scope {scope!r}", where="numerics.invariance", hint=f"one of {', '.join(SCOPES)}")
    found = SCOPES[scope]
    if axes is None:
        return found
    known = {*found.axes, *(("page",) if len(found.pages) > 1 else ())}
    if unknown := sorted(set(axes) - known):
        raise InputError(f"no axis {unknown[0]!r}", where="numerics.invariance", hint=f"of {', '.join(sorted(known))}")
    pages = found.pages if "page" in axes else found.pages[:1]
    return replace(found, axes={name: found.axes[name] for name in found.axes if name in axes}, pages=pages)


class _Suite:
    """One run of the suite: references are computed once a length, and roads one after another."""

    def __init__(self, context: CheckContext, roads: Roads, scope: Scope, max_tokens: int, until: float) -> None:
        self.context, self.roads, self.scope, self.until = context, roads, scope, until
        self.max_tokens = max_tokens
        self.engine = engine_of(context)
        self.axes = roads.axes(scope)
        self.yardstick = Yardstick(context, partial(travel, max_tokens=max_tokens), max_tokens)
        sizes = {self.engine.settings.page_size}
        sizes |= {value for name in ("page", "chunk") for value in self.axes.get(name, ()) if isinstance(value, int)}
        sizes |= set(model_sizes(context.profile)) if scope.sweep else set()
        self.longest = min(scope.longest, self.engine.max_model_len - max_tokens)
        self.lengths = boundary_lengths(sizes, self.longest, RESIDUES if scope.sweep else 0)

    def run(self) -> Measured:
        rows = covering(self.axes, self.roads.allowed)
        done, prompts, idle = 0, 0, []
        tried: set[int] = set()
        for number, row in enumerate(rows):
            if time.monotonic() > self.until:
                break
            road, lengths = Road.of(row), self._share(number, len(rows))
            found, travelled = self.deviation(road, lengths)
            done, prompts, tried = done + 1, prompts + len(lengths), tried | set(lengths)
            if found is not None:
                return self._failed(row, found, done, len(rows), prompts)
            if lack := travelled.lacks(road):
                idle.append(f"{spelled(row)}: {lack}")
        return Measured(
            prompts, self._values(done, len(rows), prompts, idle) | {"lengths": sorted(tried), "different": 0}
        )

    def _share(self, number: int, of: int) -> list[int]:
        """The lengths of one road, short and long: they are dealt out, and again where there are roads enough."""
        lots = max(1, min(of, len(self.lengths) // self.scope.prompts))
        return list(self.lengths[number % lots :: lots])

    def _values(self, done: int, planned: int, prompts: int, idle: Sequence[str]) -> dict[str, object]:
        return {
            "roads": done,
            "roads_not_run": planned - done,
            "prompts": prompts,
            "not_exercised": len(idle),
            "idle": list(idle),
            "error_over_tolerance": self.yardstick.over,
            "left_out": self.roads.left_out,
            "near_the_limit": self.context.profile.max_position is None
            or self.longest + self.max_tokens >= self.context.profile.max_position,
        }

    def prompt(self, length: int) -> Prompt:
        return prompt_ids(self.context, length, length)

    def deviation(self, road: Road, lengths: Sequence[int]) -> tuple[Deviation | None, Travelled]:
        """The first prompt whose answer on this road is not the reference's."""
        prompts = [self.prompt(length) for length in lengths]
        travelled = travel(self.roads.base(road), road, prompts, self.max_tokens)
        for prompt, answer in zip(prompts, travelled.answers, strict=True):
            if (found := self.yardstick.judge(prompt, answer)) is not None:
                return found, travelled
        return None, travelled

    def _failed(self, row: Settings, found: Deviation, done: int, planned: int, prompts: int) -> Measured:
        row, lengths, found = self.shrink(row, found)
        where, first = self.first_tensor(Road.of(row), lengths, found)
        message = f"{spelled(row)}: {found.message}{first}"
        values = self._values(done, planned, prompts, ())
        return Measured(
            prompts,
            values | {"different": 1, "settings": {k: v for k, v in row.items() if v != getattr(REFERENCE, k)}},
            where=where,
            message=message,
            hint="these settings together are the smallest that fail; each alone gives the reference's answer",
        )

    def shrink(self, row: Settings, found: Deviation) -> tuple[Settings, list[int], Deviation]:
        """The fewest settings, then the fewest and shortest prompts, that still deviate."""
        lengths = [found.length]
        companions = [length for length in self.lengths if length != found.length][-2:]
        # What needs company has it while settings are tried; it goes where one prompt alone fails too.
        everybody = [*companions, found.length]
        reference = {name: getattr(REFERENCE, name) for name in row}
        known: dict[tuple[Road, tuple[int, ...]], Deviation | None] = {}

        def tried(settings: Settings, wanted: Sequence[int]) -> Deviation | None:
            key = Road.of(settings), tuple(wanted)
            if key not in known:
                known[key] = self.deviation(key[0], wanted)[0]
            return known[key]

        if tried(row, everybody) is None and tried(row, lengths) is None:
            return row, lengths, found  # it takes the neighbours it had; the settings are told as they were
        group = lengths if tried(row, lengths) is not None else everybody
        small = smallest(row, reference, lambda settings: tried(settings, group) is not None, self.roads.allowed)
        for length in (one for one in self.lengths if one < found.length):
            if tried(small, [*group[:-1], length]) is not None:
                group = [*group[:-1], length]
                break
        while group[-1] > 1 and tried(small, [*group[:-1], group[-1] - 1]) is not None:
            group = [*group[:-1], group[-1] - 1]
        return small, group, tried(small, group) or found

    def first_tensor(self, road: Road, lengths: Sequence[int], found: Deviation) -> tuple[Where, str]:
        """Trace the deviating prompt on its road and hold each point against a whole forward, in execution order."""
        prompts = [self.prompt(length) for length in lengths]
        index = lengths.index(found.length) if found.length in lengths else 0
        answer = travel(self.roads.base(road), road, prompts, self.max_tokens, traced=index).answers[index]
        ids = (*prompts[index], *self.yardstick.reference(prompts[index]).token_ids[: found.token])
        with suppress(InputError):
            mine, theirs = traced_rows(answer, traced_outputs(self.engine, ids))
            noise = rounding_noise(self.engine, ids, traced_outputs)
            nodes = {node.tensor: node for node in compare_traces(mine, theirs, noise.allowance).nodes}
            node = next((nodes[name] for name in theirs if nodes[name].verdict == "deviates"), None)
            if node is not None:
                what = node.message or f"relative error {node.error:.1e}, tolerance {node.tolerance:.1e}"
                return replace(
                    node_place(node, self.context.profile), length=found.length
                ), f"; {node.tensor} is the first to deviate ({what})"
        return Where(length=found.length), ""


def spelled(settings: Settings) -> str:
    """Settings other than the reference's, in words."""
    reference = asdict(REFERENCE)
    return ", ".join(f"{name} {value}" for name, value in settings.items() if value != reference[name]) or "as it is"
