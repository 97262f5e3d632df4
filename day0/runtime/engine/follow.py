"""A rank other than 0: it does what rank 0 says, on its own share of the model, until it is told to stop."""

from __future__ import annotations

from day0.errors import Day0Error
from day0.runtime.batch import Request
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.lead import (
    Again,
    Command,
    Drop,
    Forward,
    Load,
    Step,
    Stop,
    Traced,
    again_on_rank,
    load_on_rank,
    rank_device,
)
from day0.runtime.engine.tracing_ranks import take_part
from day0.runtime.parallel.joining import Joined, join
from day0.runtime.parallel.launch import Job
from day0.runtime.parallel.layout import Layout, Place
from day0.runtime.parallel.watch import Watch


def run(job: Job) -> None:
    """Join the ranks and follow rank 0 until it says stop; raises EnvironmentFault where a rank dies meanwhile."""
    joined = _joined(job)
    follow(joined)
    joined.leave()


def _joined(job: Job) -> Joined:
    device = rank_device(job.device, job.rank, job.size)
    watch = Watch(job.rank, job.size, job.address, job.logs)
    watch.start()
    return join(job.rank, job.size, job.address, device, watch)


def follow(joined: Joined) -> None:
    """Take commands until `Stop`; raises what a rank's death or a fault of this one's own work raises."""
    engines: dict[int, Engine] = {}
    while True:
        command: Command = joined.meeting.tell(None)
        match command:
            case Stop():
                return
            case Load():
                try:
                    with joined.watch.working():
                        engines[command.number] = load_on_rank(joined, command)
                except Day0Error:
                    joined.watch.check()  # a model that cannot be loaded is rank 0's to report; this rank lives on
            case Again(number, of, settings):
                with joined.watch.working():
                    engines[number] = again_on_rank(engines[of], settings)
            case Drop(number):
                del engines[number]
            case Traced():
                try:
                    with joined.watch.working():
                        take_part(engines[command.number], command, joined)
                except Day0Error:
                    joined.watch.check()  # what this prompt is refused for, rank 0 says
            case Step() | Forward():
                with joined.watch.working():
                    _work(engines[command.number], command, joined)


def _work(engine: Engine, command: Step | Forward, joined: Joined) -> None:
    layout = Layout.of(engine.settings)
    place = layout.place(joined.rank)
    if isinstance(command, Forward):
        _forward(engine, command, place)
        return
    for replica, change in command.changes:
        if replica == place.replica and isinstance(change, Request):
            engine.add(change)
        elif replica == place.replica and isinstance(change, str):
            engine.abort(change)
    outputs = engine.step()
    if layout.dp > 1:
        leads = place.stage == 0 and place.slice == 0
        joined.meeting.hear((outputs, engine.stats()) if leads else None)


def _forward(engine: Engine, command: Forward, place: Place) -> None:
    """The first replica runs it; the others serve it with their experts, forward by forward."""
    if place.replica == 0:
        engine.forward(command.token_ids, chunk=command.chunk, images=command.images)
        return
    for _ in range(0, len(command.token_ids), command.chunk or len(command.token_ids)):
        engine.serve_others()
