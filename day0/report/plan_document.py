"""What `day0 plan` says, as one record: the JSON of the contract, which the text and HTML reports read as well."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from day0.engines.launch import Launch
from day0.plan.cluster import describe
from day0.plan.plan import Plan, Planner
from day0.plan.search import Answer
from day0.plan.workload import Workload
from day0.report.inspect_document import ModelFacts, model_facts
from day0.source.model_files import ModelFiles

SCHEMA = "day0.plan/1"


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """Field by field the document of the contract; `refused` layouts broke a rule before their memory was looked at.

    Each entry of `plans` is a `Plan` with `launch` beside it.
    """

    schema: str
    model: ModelFacts
    cluster: dict[str, Any]
    workload: Workload
    engine: str
    engine_version: str | None
    searched: int
    refused: int
    plans: tuple[dict[str, Any], ...]
    seconds: float


def plan_document(
    files: ModelFiles, planner: Planner, answer: Answer, launches: tuple[Launch, ...], seconds: float
) -> PlanDocument:
    """`launches` are those of `answer.plans`, in order."""
    cluster = planner.cluster
    return PlanDocument(
        schema=SCHEMA,
        model=model_facts(files, planner.profile),
        cluster={**describe(cluster), "gpus": cluster.gpus, "sources": cluster.gpu.sources},
        workload=planner.workload,
        engine=planner.accounting.name,
        engine_version=planner.accounting.version,
        searched=answer.searched,
        refused=answer.refused,
        plans=tuple(_entry(plan, launch) for plan, launch in zip(answer.plans, launches, strict=True)),
        seconds=round(seconds, 3),
    )


def _entry(plan: Plan, launch: Launch) -> dict[str, Any]:
    return {**asdict(plan), "label": plan.layout.label, "launch": asdict(launch)}
