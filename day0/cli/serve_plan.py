"""What `serve` and `run-checklist` take from a plan file: the plan made again, and settings for our engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from day0.cli.output import status_console
from day0.cli.plan_launch import launch_request
from day0.engines.day0 import DTYPES, obstacle
from day0.engines.servers import separate_servers
from day0.errors import InputError
from day0.plan.accounting import accounting_for
from day0.plan.plan import Plan, Planner
from day0.plan.plan_changes import changes
from day0.plan.plan_file import PlanFile, read_plan
from day0.profile.read import read_profile
from day0.source.model_files import ModelFiles
from day0.source.resolve import resolve


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A plan file made again for the model at hand; `plan` holds today's figures, not those of the file."""

    path: Path
    files: ModelFiles
    planner: Planner
    plan: Plan

    def settings(self) -> dict[str, Any]:
        """A plan for our own runtime as fields of EngineSettings: the cache is the plan's, whatever memory is free.

        Raises InputError for a plan whose ranks our runtime does not start.
        """
        layout = self.plan.layout
        if reason := obstacle(layout, self.planner.cluster):
            raise InputError(
                f"the reference runtime does not start this plan: {reason}",
                where=str(self.path),
                hint="; ".join(self.plan.notes),
            )
        servers = separate_servers(layout, self.planner.cluster) or 1  # this host is one of them
        workload, chosen = self.planner.workload, self.plan.settings
        fields: dict[str, Any] = {"kv_dtype": workload.kv_dtype, "max_model_len": workload.context}
        fields |= {"tp": layout.attention_tp, "ep": layout.ep, "pp": layout.pp, "dp": layout.dp // servers}
        fields["dtype"] = DTYPES.get(self.planner.profile.dtype, "auto")
        fields |= {"offload": workload.offload, "weight_budget": workload.weight_budget}
        fields |= {"expert_cache_bytes": workload.expert_cache_bytes, "relaid_bytes": 0}  # no line has room for copies
        fields["expert_dtype"] = workload.expert_dtype
        if chosen is not None:
            fields |= {
                "max_num_seqs": chosen.max_num_seqs,
                "max_num_batched_tokens": chosen.max_batched_tokens,
                "mem_fraction": chosen.mem_fraction,
                "kv_cache_bytes": min(rank.kv_pool for rank in self.plan.ranks),
            }
        return fields


def read_plan_for(path: Path, engine: str) -> PlanFile:
    """The plan in a file, which must be one for this engine."""
    saved = read_plan(path)
    if saved.engine != engine:
        raise InputError(f"the plan is for {saved.engine}", where=str(path), hint=f"--engine {saved.engine}")
    return saved


def checked_plan(path: Path, engine: str, model: str, *, offload: str | None = None) -> CheckedPlan:
    """Make the plan of a file again for `model`, with another `offload` if given; what the file says otherwise is told
    on stderr.

    Raises InputError where the layout breaks a rule or does not fit by today's figures.
    """
    saved = read_plan_for(path, engine)
    files = resolve(model)
    accounting = accounting_for(engine, saved.engine_version)
    workload = replace(saved.workload, offload=offload or saved.workload.offload)
    planner = Planner(read_profile(files), saved.cluster, accounting, workload, files.weight_bytes)
    plan = planner.plan(saved.layout)
    target = launch_request(plan, planner, files).model
    for change in changes(saved, planner, plan, target, files.revision):
        status_console().print(f"{path}: {change}", soft_wrap=True)
    if plan.fits is False:
        reasons = "; ".join(violation.message for violation in plan.violations)
        raise InputError(f"the plan does not fit this model: {reasons}", where=str(path), hint="make a new plan")
    return CheckedPlan(path, files, planner, plan)
