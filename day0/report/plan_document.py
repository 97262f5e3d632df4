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

    Each entry of `plans` is a `Plan` with `launch` and `headroom` beside it: what it holds beyond the demand, in
    `tokens` of all requests, in `requests` of the asked context, and in tokens of `context` of each asked request;
    below 0 what it lacks, null where that has no bound. `changes` says where a plan file was checked again, and what
    it says otherwise.
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
    changes: tuple[str, ...]
    seconds: float

    @property
    def demand(self) -> dict[str, int]:
        """What was asked: requests at once, and tokens of each."""
        return {"concurrency": self.workload.concurrency, "context": self.workload.context}


def plan_document(
    files: ModelFiles,
    planner: Planner,
    answer: Answer,
    launches: tuple[Launch, ...],
    seconds: float,
    changes: tuple[str, ...] = (),
) -> PlanDocument:
    """`launches` are those of `answer.plans`, in order; `changes` what a plan file says otherwise."""
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
        plans=tuple(
            _entry(plan, launch, planner.workload) for plan, launch in zip(answer.plans, launches, strict=True)
        ),
        changes=changes,
        seconds=round(seconds, 3),
    )


def _entry(plan: Plan, launch: Launch, workload: Workload) -> dict[str, Any]:
    return {
        **asdict(plan),
        "label": plan.layout.label,
        "headroom": _headroom(plan, workload),
        "launch": asdict(launch),
    }


def _headroom(plan: Plan, workload: Workload) -> dict[str, float | None]:
    asked = workload.concurrency * workload.context
    return {
        "tokens": None if plan.kv_tokens is None else plan.kv_tokens - asked,
        "requests": None if plan.max_concurrency is None else round(plan.max_concurrency - workload.concurrency, 2),
        "context": None if plan.max_context is None else plan.max_context - workload.context,
    }
