"""What it takes to start a plan on somebody's engine: a command line per node and an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from day0.errors import InputError
from day0.plan.cluster import Cluster
from day0.plan.engine_version import Release, is_since, version_numbers
from day0.plan.plan import Plan
from day0.plan.recipe import LaunchFacts
from day0.plan.workload import Workload
from day0.profile.profile import ArchitectureProfile

HEAD = "${HEAD_ADDRESS}"
"""Stands in every command line for the first node's address; each form of emission says where it comes from."""
NODE_RANK = "NODE_RANK"
"""The shell variable that holds a node's number where one command line serves several nodes."""

FlagValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Launch:
    """`argv` has one command line per node, the first for the head; `env` holds for all of them.

    `worker` is one line for all nodes but the head, with the shell variable NODE_RANK in it. Empty `argv` means that
    the engine cannot start the plan; `notes` say why. `checked` says what the flags were held against. Where `servers`
    is more than one, `argv` is one of so many alike, each on nodes of its own.
    """

    argv: tuple[tuple[str, ...], ...]
    env: dict[str, str] = field(default_factory=dict)
    worker: tuple[str, ...] | None = None
    image: str | None = None
    port: int = 8000
    notes: tuple[str, ...] = ()
    checked: str = ""
    servers: int = 1

    @property
    def nodes(self) -> int:
        """Nodes of one server."""
        return len(self.argv)


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A plan, what it is a plan of, and where the server listens. `model` is what the engine is to load; `folder` is
    set where that is a folder of this machine, which a container has to be given."""

    plan: Plan
    model: str
    revision: str | None
    cluster: Cluster
    workload: Workload
    engine_version: str | None = None
    facts: LaunchFacts = field(default_factory=LaunchFacts)
    host: str = "0.0.0.0"
    port: int = 8000
    folder: Path | None = None
    profile: ArchitectureProfile | None = None

    @property
    def nodes(self) -> int:
        """Nodes that the layout really uses."""
        return max(1, -(-self.plan.layout.ranks // self.cluster.gpus_per_node))


@dataclass(frozen=True, slots=True)
class Node:
    """A node by number, or any node but the head where the number is left to the shell."""

    number: int | None

    @property
    def is_head(self) -> bool:
        return self.number == 0

    def times(self, count: int) -> str:
        """The node's number, `count` times: a figure, or an expression for the shell."""
        if self.number is not None:
            return str(self.number * count)
        return f"${{{NODE_RANK}}}" if count == 1 else f"$(({NODE_RANK} * {count}))"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of an engine and the value it takes for a node: None or False leaves it out, True gives it bare."""

    name: str
    value: Callable[[LaunchRequest, Node], FlagValue]


def command_lines(
    table: Sequence[Flag], request: LaunchRequest, command: tuple[str, ...]
) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...] | None]:
    """`Launch.argv` and `Launch.worker`: the command, its flags for each node, and the recipe's arguments."""

    def line(number: int | None) -> tuple[str, ...]:
        words = (*command, *flags_of(table, request, Node(number)))
        return merge_arguments(words, request.facts.arguments)

    return tuple(line(number) for number in range(request.nodes)), line(None) if request.nodes > 1 else None


def flags_of(table: Sequence[Flag], request: LaunchRequest, node: Node) -> tuple[str, ...]:
    """The argv part that a table of flags makes for one node."""
    words: list[str] = []
    for flag in table:
        value = flag.value(request, node)
        if value is None or value is False:
            continue
        words.append(flag.name)
        if value is not True:
            words.append(str(value))
    return tuple(words)


def merge_arguments(words: tuple[str, ...], extra: tuple[str, ...]) -> tuple[str, ...]:
    """Append a recipe's arguments; one that the plan already decides is an error of the recipe."""
    taken = {word.split("=")[0] for word in words if word.startswith("--")}
    clashing = [word for word in extra if word.split("=")[0] in taken]
    if clashing:
        raise InputError(
            f"{', '.join(clashing)} is set beside the plan, which decides it",
            where="launch.arguments of a recipe, or --engine-arg",
            hint="leave it out, or plan with the option of `day0 plan` that sets it",
        )
    return words + extra


def stage_partition(plan: Plan) -> str | None:
    """Layers of each stage, as both engines take them; None for one stage."""
    return ",".join(str(count) for count in plan.stage_layers) if plan.layout.pp > 1 else None


def too_old(request: LaunchRequest) -> tuple[str, ...]:
    """What is to be said where the asked version came before the first that knows the model."""
    since = request.facts.since
    if since is None or is_since(request.engine_version, Release(version_numbers(since), "")):
        return ()
    engine = request.plan.engine
    return (f"{engine} {request.engine_version} does not know this model: {engine} {since} is the first that does",)


def default_image(images: Mapping[str, str], vendor: str, version: str | None, newest: str) -> str | None:
    """The publisher's image of a release for a maker's GPUs; a GPU without a maker is taken for NVIDIA's.

    `newest` stands in for a version that is not given or is no release.
    """
    pattern = images.get(vendor or "nvidia")
    is_release = version is not None and version_numbers(version) and version.replace(".", "").isalnum()
    return pattern.format(version if is_release else newest) if pattern else None
