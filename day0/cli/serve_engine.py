"""`day0 serve --engine vllm|sglang|transformers`: its command from a plan or from options, and its life."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from day0.cli.engine_api import EngineApi
from day0.cli.engine_asked import EngineAsked
from day0.cli.output import status_console
from day0.cli.plan_launch import ask_parser, launch_request, launch_text
from day0.cli.serve_plan import checked_plan
from day0.cli.signals import handling
from day0.engines.installed import installed_version
from day0.engines.launch import HEAD, NODE_RANK, Launch, LaunchRequest
from day0.engines.options import (
    API_KEY_VARIABLES,
    drain_words,
    option_words,
    parser_flags,
    unplanned_launch,
    without_flags,
)
from day0.engines.phases import Progress
from day0.engines.process import EngineProcess, command_of, environment_of
from day0.engines.shell import shell_line
from day0.engines.supervise import DRAIN_SECONDS, Supervisor
from day0.engines.support import ask_support, remarks
from day0.engines.table import LAUNCHERS
from day0.errors import CannotSay, EnvironmentFault, ExitCode, InputError
from day0.profile.read import read_profile
from day0.source.model_files import ModelFiles
from day0.source.resolve import resolve

PYTHON_VARIABLE = "DAY0_ENGINE_PYTHON"
KEEPER = "day0.cli.keep"


@dataclass(frozen=True, slots=True)
class EngineLaunch:
    """A launch, the plan's request where there is one, and the files it was made from."""

    launch: Launch
    request: LaunchRequest | None
    files: ModelFiles


def command_text(asked: EngineAsked, form: str) -> str:
    """What `--dry-run` prints: the same as `day0 plan --emit` for a plan, one command line without one."""
    python = asked.python or os.environ.get(PYTHON_VARIABLE) or sys.executable
    made = _launch(asked, installed_version(asked.engine, python))
    key = API_KEY_VARIABLES[asked.engine] if asked.api_key else None
    prefix = f'export {key}="$DAY0_API_KEY"\n' if key and form == "command" else ""
    if made.request is not None:
        return prefix + launch_text(form, made.request, made.launch, str(asked.plan), python)
    if form != "command":
        raise InputError(f"{form} is made from a plan, and none was given", where="--emit", hint="--plan FILE")
    ask_parser(asked.engine, None, made.launch, python)
    return f"{prefix}{shell_line(made.launch.argv[0])}\n"


def serve(asked: EngineAsked) -> ExitCode:
    """Start the engine, follow it, and end all of it on a signal.

    Raises EnvironmentFault where it is not installed, does not know the model, dies, or answers nonsense.
    """
    python, version = _interpreter(asked)
    asked = replace(asked, port=asked.port or _free_port(asked.host))
    made = _launch(asked, version)
    log = partial(status_console().print, soft_wrap=True)
    _check_support(asked, made.files, python, log)
    ask_parser(asked.engine, None, made.launch, python)
    argv, has_api = _this_node(made.launch)
    key = {API_KEY_VARIABLES[asked.engine]: asked.api_key} if asked.api_key else {}
    env = environment_of(python, {**made.launch.env, **key})
    api = EngineApi(asked.host, asked.port, asked.api_key)
    progress = Progress(asked.engine, version, time.monotonic())
    supervisor = Supervisor(progress, log, api.is_healthy if has_api else None, api.first_answer)
    log(f"starting {asked.engine} {version}: {shlex.join(argv)}")
    return _run(asked, supervisor, api, command_of(argv, python), env)


def _run(
    asked: EngineAsked, supervisor: Supervisor, api: EngineApi, argv: tuple[str, ...], env: dict[str, str]
) -> ExitCode:
    from day0.engines.side_port import SidePort, own_metrics  # prometheus_client, which --dry-run does without

    path = Path(tempfile.mkdtemp(prefix="day0-engine-")) / f"{asked.engine}.log"

    def metrics() -> bytes:
        ours = own_metrics(supervisor.progress, supervisor.state, engine.resident_bytes())
        return ours + (api.metrics() if supervisor.state in ("ready", "draining") else b"")

    stop = threading.Event()
    act = partial(_on_signal, stop, supervisor)
    port = asked.status_port if asked.status_port is not None else (asked.port + 1) % 65536
    side = SidePort(asked.host, port, lambda: supervisor.state, metrics)
    with closing(side), handling({signal.SIGTERM: act, signal.SIGINT: act}):
        supervisor.log(f"its log: {path}; /health and /metrics: port {side.port}; the API: port {asked.port}")
        engine = EngineProcess(argv, env, path, supervisor.on_line, KEEPER)
        side.open()
        supervisor.run(engine, stop)
    return ExitCode.INTERRUPTED if supervisor.hurry.is_set() else ExitCode.YES


def _on_signal(stop: threading.Event, supervisor: Supervisor) -> None:
    if stop.is_set():
        supervisor.hurry.set()
    stop.set()


def _interpreter(asked: EngineAsked) -> tuple[str, str]:
    """The interpreter that has the engine, and the engine's version."""
    python = asked.python or os.environ.get(PYTHON_VARIABLE) or sys.executable
    found = shutil.which(python)
    if found is None:
        raise InputError(f"no interpreter: {python}", where=f"--engine-python or {PYTHON_VARIABLE}")
    version = installed_version(asked.engine, found)
    if version is None:
        raise EnvironmentFault(
            f"{asked.engine} is not installed for {found}",
            hint=f"--engine-python (or {PYTHON_VARIABLE}) names the interpreter that has it; --dry-run needs none",
        )
    return found, version


def _launch(asked: EngineAsked, version: str | None) -> EngineLaunch:
    if asked.api_key and asked.engine not in API_KEY_VARIABLES:
        message = f"{asked.engine} takes a key on its command line alone, where every user of the host can read it"
        raise InputError(message, where="--api-key", hint="put it behind a proxy that asks for the key")
    words = (*option_words(asked.engine, asked.given), *asked.engine_args)
    words += drain_words(asked.engine, version, words, int(DRAIN_SECONDS))
    if asked.plan is not None:
        if asked.engine == "transformers":
            message = "transformers takes no plan: it places a model by itself"
            raise InputError(message, where="--plan", hint="leave it out")
        checked = checked_plan(asked.plan, asked.engine, asked.model)
        request = launch_request(
            checked.plan, checked.planner, checked.files, engine_args=words, host=asked.host, port=asked.port
        )
        recipes = request.facts.arguments[: len(request.facts.arguments) - len(words)]
        kept = without_flags(recipes, parser_flags(asked.given))
        request = replace(request, facts=replace(request.facts, arguments=(*kept, *words)))
        launch = LAUNCHERS[asked.engine](request)
        if not launch.argv:
            raise InputError("; ".join(launch.notes), where=str(asked.plan))
        return EngineLaunch(launch, request, checked.files)
    files = resolve(asked.model)
    if files.source in ("recipe", "config"):
        raise InputError(f"{files.id} has no weights to serve", hint="name a folder or hub id that has them")
    model = files.id
    if files.folder is not None and model == str(files.folder):
        model = str(files.folder.resolve())
    made = unplanned_launch(asked.engine, model, files.revision, asked.host, asked.port, words, version)
    return EngineLaunch(made, None, files)


def _check_support(asked: EngineAsked, files: ModelFiles, python: str, log: Callable[[str], None]) -> None:
    try:
        profile = read_profile(files)
    except CannotSay as fault:
        log(f"weaker: whether {asked.engine} knows the model was not asked: {fault}")
        return
    with status_console().status(f"asking {asked.engine} what it knows"):
        support = ask_support(asked.engine, python)
    tools, reasoning = (asked.given.get(name) for name in ("tool_call_parser", "reasoning_parser"))
    chosen = (None if tools is None else str(tools), None if reasoning is None else str(reasoning))
    for remark in remarks(support, asked.engine, profile.architectures, profile.model_type, *chosen):
        log(f"weaker: {remark}")


def _this_node(launch: Launch) -> tuple[tuple[str, ...], bool]:
    """The command line of this node, and whether its API is here: the first of several nodes has it."""
    if launch.nodes == 1:
        return launch.argv[0], True
    number, head = os.environ.get(NODE_RANK, ""), os.environ.get("HEAD_ADDRESS", "")
    if not re.fullmatch(r"\d+", number) or int(number) >= launch.nodes or not head:
        raise InputError(
            f"the plan takes {launch.nodes} nodes, and this one does not know which of them it is",
            where=f"{NODE_RANK} and HEAD_ADDRESS",
            hint="set both in the environment of every node; --dry-run prints the command of each",
        )
    return tuple(word.replace(HEAD, head) for word in launch.argv[int(number)]), int(number) == 0


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as one:
        one.bind((host, 0))
        return int(one.getsockname()[1])
