"""What `day0 serve` takes from a plan file: settings for our own engine, or the command line of another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from day0.cli.plan_launch import launch_request, launch_text
from day0.engines.table import LAUNCHERS
from day0.errors import EnvironmentFault, InputError
from day0.plan.accounting import accounting_for
from day0.plan.plan import Planner
from day0.plan.plan_file import PlanFile, read_plan
from day0.profile.read import read_profile
from day0.source.resolve import resolve


def read_plan_for(path: Path, engine: str) -> PlanFile:
    """The plan in a file, which must be one for this engine."""
    saved = read_plan(path)
    if saved.engine != engine:
        raise InputError(f"the plan is for {saved.engine}", where=str(path), hint=f"--engine {saved.engine}")
    return saved


def settings_of(saved: PlanFile, where: Path) -> dict[str, Any]:
    """A plan for our own runtime as fields of EngineSettings."""
    if saved.layout.ranks > 1:
        raise InputError(
            f"the plan has {saved.layout.ranks} ranks, and the reference runtime runs one for now", where=str(where)
        )
    fields: dict[str, Any] = {"kv_dtype": saved.workload.kv_dtype, "max_model_len": saved.workload.context}
    if saved.settings is not None:
        fields |= {
            "max_num_seqs": saved.settings.max_num_seqs,
            "max_num_batched_tokens": saved.settings.max_batched_tokens,
            "mem_fraction": saved.settings.mem_fraction,
        }
    return fields


def command_of_other_engine(model: str, engine: str, path: Path | None, host: str, port: int) -> str:
    """Environment and command line, for a shell, that start the plan's layout of `model` on another engine."""
    if engine not in LAUNCHERS:
        raise EnvironmentFault(f"{engine} is not supported yet", hint=f"engines: {', '.join(LAUNCHERS)}")
    if path is None:
        hint = f"`day0 plan {model} --cluster h200:8 --engine {engine} --emit yaml > plan.yaml` makes one"
        raise InputError(f"{engine} is started from a plan, and none was given", where="--plan", hint=hint)
    saved = read_plan_for(path, engine)
    files = resolve(model)
    profile = read_profile(files)
    planner = Planner(profile, saved.cluster, accounting_for(engine, saved.engine_version), saved.workload)
    plan = planner.plan(saved.layout)
    if plan.fits is False:
        reasons = "; ".join(violation.message for violation in plan.violations)
        raise InputError(f"the plan does not fit this model: {reasons}", where=str(path), hint="make a new plan")
    request = launch_request(plan, planner, files, host=host, port=port)
    return launch_text("command", request, LAUNCHERS[engine](request), str(path))
