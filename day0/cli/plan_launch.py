"""From a plan to what starts it: the launch request, and its text once everybody who can has looked at the flags."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from day0.cli.output import status_console
from day0.engines.emit import CONTAINERS, EMIT_FORMS
from day0.engines.installed import installed_version, parser_verdict
from day0.engines.launch import Launch, LaunchRequest
from day0.errors import InputError
from day0.plan.plan import Plan, Planner
from day0.plan.recipe import launch_facts
from day0.source.model_files import ModelFiles


def launch_request(
    plan: Plan,
    planner: Planner,
    files: ModelFiles,
    *,
    engine_args: Sequence[str] = (),
    host: str = "0.0.0.0",
    port: int = 8000,
) -> LaunchRequest:
    """What the engine is to be told for a plan; without weights at hand, the model is left open.

    `engine_args` are the user's own words for the engine, held against the same record as those of recipes.
    """
    short = [word for word in engine_args if word.startswith("-") and word[1:2].isalpha()]
    if short:  # it might stand for a flag that the plan decides
        raise InputError(f"spell {', '.join(short)} out", where="--engine-arg", hint="only --long-names are checked")
    recipe = files.id.removeprefix("recipe:") if files.source == "recipe" else None
    name = "" if recipe is not None else files.id
    facts = launch_facts(planner.profile, planner.accounting.name, recipe, name=name, gpu=planner.cluster.gpu)
    target = files.id
    if files.folder is not None and target == str(files.folder):
        target = str(files.folder.resolve())  # the engine may run in another folder, or see it mounted
    if files.source in ("recipe", "config"):  # neither has weights; a recipe may name the model they belong to
        target = facts.model or "MODEL"
        if facts.model is None:
            remark = "put the weights' folder or hub id in place of MODEL: there were none to plan from"
            facts = replace(facts, notes=(*facts.notes, remark))
    facts = replace(facts, arguments=(*facts.arguments, *engine_args))
    version = planner.accounting.version
    return LaunchRequest(
        plan,
        target,
        files.revision,
        planner.cluster,
        planner.workload,
        version,
        facts,
        host,
        port,
        files.folder,
        planner.profile,
    )


def launch_text(form: str, request: LaunchRequest, launch: Launch, where: str, python: str = sys.executable) -> str:
    """The launch in a form of `--emit`, once the engine's own parser has seen it where that is installed.

    Raises InputError for a plan that the engine cannot start, a flag that is refused, and a form that the machine or
    the engine lacks.
    """
    engine = request.plan.engine
    if not launch.argv:
        reason = "; ".join(launch.notes) or f"cannot start {request.plan.layout.ranks} ranks"
        raise InputError(reason, where=where, hint="`--emit yaml` keeps the plan")
    if form in CONTAINERS and launch.image is None:
        raise InputError(
            f"no container image of {engine} is known",
            where=f"--emit {form}",
            hint="--emit command, or an `image` in a recipe",
        )
    ask_parser(engine, request.engine_version, launch, python)
    return EMIT_FORMS[form](request, launch)


def ask_parser(engine: str, version: str | None, launch: Launch, python: str = sys.executable) -> None:
    """Let the installed engine judge the flags, and say on stderr who judged them; InputError where it refuses."""
    installed = installed_version(engine, python)
    if installed is None:
        if launch.checked:
            status_console().print(f"{engine} is not installed here: checked against {launch.checked}")
        return
    console = status_console()
    with console.status(f"asking the parser of {engine} {installed}"):
        taken, reason = parser_verdict(engine, launch.argv, python)
    if taken is False and version in (None, installed):
        raise InputError(
            f"the parser of {engine} {installed}, installed here, refuses: {reason}",
            where=f"--engine {engine}",
            hint=f"--engine-version {installed} plans for what is installed",
        )
    if taken:
        console.print(f"checked by the parser of {engine} {installed}, installed here")
    else:
        said = "refuses" if taken is False else "could not be asked"
        console.print(f"the parser of {engine} {installed}, installed here, {said}: {reason}")
        console.print(f"checked against {launch.checked} instead")
