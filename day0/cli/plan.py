"""`day0 plan`: which layouts of a model fit a cluster, with every byte of each rank, and how to launch one."""

from __future__ import annotations

import time

from day0.cli import plan_options as options
from day0.cli.output import emit as emit_document
from day0.cli.output import status_console, write_file, write_stdout
from day0.cli.plan_launch import launch_request, launch_text
from day0.engines.launch import Launch, LaunchRequest
from day0.engines.table import LAUNCHERS, OBSTACLES
from day0.errors import ExitCode, InputError
from day0.plan import questions
from day0.plan.accounting import ACCOUNTINGS, Accounting, accounting_for
from day0.plan.cluster import Cluster, parse_cluster
from day0.plan.engine_version import checked_version
from day0.plan.layout import LayoutRequest
from day0.plan.packing_unsaid import unsaid_packing
from day0.plan.plan import Plan, Planner
from day0.plan.plan_changes import changes
from day0.plan.plan_file import PlanFile, read_plan, write_plan
from day0.plan.search import Answer, Obstacle, search, validate
from day0.plan.workload import Workload, make_workload
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.report.plan_document import plan_document
from day0.report.plan_html import html_document
from day0.report.plan_text import render
from day0.source.resolve import resolve


def command(
    model: options.Model,
    cluster: options.ClusterSpec = None,
    tp: options.TensorParallel = None,
    pp: options.PipelineStages = None,
    ep: options.ExpertLots = None,
    dp: options.Replicas = None,
    cp: options.ContextParallel = None,
    attention_tp: options.AttentionCut = None,
    engine: options.EngineName = None,
    engine_version: options.EngineVersion = None,
    context: options.Context = None,
    concurrency: options.Concurrency = None,
    prompt: options.Prompt = None,
    decode: options.Decode = None,
    kv_dtype: options.KvDtype = None,
    mem_fraction: options.MemFraction = None,
    max_num_seqs: options.MaxNumSeqs = None,
    max_num_batched_tokens: options.MaxBatchedTokens = None,
    load: options.Load = None,
    speculate: options.Speculate = None,
    drafted_tokens: options.DraftedTokens = None,
    engine_arg: options.EngineArg = None,
    redundant_experts: options.RedundantExperts = None,
    offload: options.Offload = None,
    weight_budget: options.WeightBudget = None,
    expert_cache_bytes: options.ExpertCacheBytes = None,
    expert_dtype: options.ExpertDtype = None,
    rank_by: options.RankBy = options.Goal.THROUGHPUT,
    most_context: options.MostContext = False,
    fewest_gpus: options.FewestGpus = False,
    top: options.Top = 5,
    emit: options.Emit = None,
    html: options.Html = None,
    json: options.Json = False,
    output: options.Output = None,
) -> ExitCode:
    """Find the layouts of MODEL that fit a cluster, or check one."""
    started = time.perf_counter()
    if engine is options.Engine.TRANSFORMERS:
        raise _no_plan_for_transformers()
    if emit is not None and json:
        raise InputError("--emit and --json both print on stdout", hint="--emit with --output FILE gives both")
    saved = read_plan(load) if load is not None else None
    files = resolve(model)
    profile = read_profile(files)
    accounting = _accounting(saved, engine, engine_version)
    machines = _cluster(saved, cluster)
    asked = {
        "context": context,
        "concurrency": concurrency,
        "prompt": prompt,
        "decode": decode,
        "kv_dtype": kv_dtype,
        "mem_fraction": mem_fraction,
        "max_num_seqs": max_num_seqs,
        "max_batched_tokens": max_num_batched_tokens,
        "speculate": speculate,
        "drafted_tokens": drafted_tokens,
        "redundant_experts": redundant_experts,
        "offload": offload,
        "weight_budget": weight_budget,
        "expert_cache_bytes": expert_cache_bytes,
        "expert_dtype": expert_dtype,
    }
    workload = _workload(saved, profile, asked)
    planner = Planner(profile, machines, accounting, workload, files.weight_bytes, unsaid_packing(files, profile))
    if most_context and fewest_gpus:
        raise InputError("--most-context and --fewest-gpus are two questions", hint="ask one at a time")
    layout = LayoutRequest(tp, pp, ep, dp, cp, attention_tp)
    obstacle = OBSTACLES[accounting.name]
    if most_context:
        planner, answer = questions.most_context(planner, layout, top, rank_by.value, obstacle)
    elif fewest_gpus:
        planner, answer = questions.fewest_gpus(planner, layout, top, rank_by.value, obstacle)
    else:
        answer = _answer(planner, layout, saved, top, rank_by.value, obstacle)
    requests = tuple(launch_request(plan, planner, files, engine_args=engine_arg or ()) for plan in answer.plans)
    launches = tuple(LAUNCHERS[accounting.name](each) for each in requests)
    differing = _differing(saved, planner, answer, requests)
    document = plan_document(files, planner, answer, launches, time.perf_counter() - started, differing)
    if html is not None:
        write_file(html, html_document(document).encode())
    if emit is None:
        emit_document(document, as_json=json, output=output, render=lambda console: render(document, console))
        return _exit_code(answer)
    emit_document(document, as_json=False, output=output, render=lambda console: None)
    return _emit(emit, answer.plans[0], requests[0], launches[0])


def _no_plan_for_transformers() -> InputError:
    """transformers keeps the cache of each request apart and grows it as it goes: no pool is there to be divided."""
    return InputError(
        "transformers has no memory plan: it takes memory as requests come, without a pool of fixed size",
        where="--engine",
        hint="--engine day0 for a plan of the same model; `day0 serve MODEL --engine transformers` needs none",
    )


def _accounting(saved: PlanFile | None, engine: options.Engine | None, version: str | None) -> Accounting:
    if engine is None and saved is not None:
        if saved.engine not in ACCOUNTINGS:
            known = ", ".join(ACCOUNTINGS)
            raise InputError(f"engine.name {saved.engine!r} is not known", where="--load", hint=f"known: {known}")
        return accounting_for(saved.engine, checked_version(version or saved.engine_version))
    return accounting_for((engine or options.Engine.DAY0).value, checked_version(version))


def _cluster(saved: PlanFile | None, spec: str | None) -> Cluster:
    if spec is not None:
        return parse_cluster(spec)
    if saved is None:
        raise InputError("no cluster to plan for", where="--cluster", hint="for example --cluster h200:8")
    return saved.cluster


def _workload(
    saved: PlanFile | None, profile: ArchitectureProfile, asked: dict[str, int | float | str | None]
) -> Workload:
    """What was asked for, over what a plan file says, over the defaults."""
    given = {name: value for name, value in asked.items() if value is not None}
    if saved is not None:
        kept = {name: getattr(saved.workload, name) for name in asked}
        if "context" in given:  # the old request may not fit into the new context
            kept["prompt"] = kept["decode"] = None
        given = {name: value for name, value in {**kept, **given}.items() if value is not None}
    if asked["drafted_tokens"] is not None and not given.get("speculate"):
        raise InputError("--drafted-tokens, but nothing drafts them", hint="add --speculate")
    return make_workload(profile, **given)  # type: ignore[arg-type]


def _answer(
    planner: Planner, request: LayoutRequest, saved: PlanFile | None, top: int, goal: str, obstacle: Obstacle
) -> Answer:
    if not request.is_empty:
        return validate(planner, request)
    if saved is not None:
        plan = planner.plan(saved.layout)
        return Answer(1, int(bool(planner.check(saved.layout))), (plan,))
    return search(planner, top, goal, obstacle)


def _differing(
    saved: PlanFile | None, planner: Planner, answer: Answer, requests: tuple[LaunchRequest, ...]
) -> tuple[str, ...]:
    """What the plan file says otherwise than the plan made again."""
    if saved is None or not answer.plans:
        return ()
    return changes(saved, planner, answer.plans[0], requests[0].model, requests[0].revision)


def _exit_code(answer: Answer) -> ExitCode:
    return {True: ExitCode.YES, False: ExitCode.NO, None: ExitCode.CANNOT_SAY}[answer.fits]


def _emit(form: options.Form, plan: Plan, request: LaunchRequest, launch: Launch) -> ExitCode:
    """Print the plan in another form; one that does not fit is printed as a plan file only."""
    status = status_console()
    verdict = {True: ExitCode.YES, False: ExitCode.NO, None: ExitCode.CANNOT_SAY}[plan.fits]
    for violation in plan.violations:
        status.print(f"{violation.rule}: {violation.message}\n  -> {violation.fix}")
    if form is options.Form.YAML:
        text = write_plan(
            plan,
            model=request.model,
            revision=request.revision,
            version=request.engine_version,
            cluster=request.cluster,
            workload=request.workload,
        )
        write_stdout(text.encode())
        return verdict
    if plan.fits is False:
        status.print("the plan does not fit: there is nothing to launch")
        return verdict
    write_stdout(launch_text(form.value, request, launch, f"--engine {plan.engine}").encode())
    return verdict
