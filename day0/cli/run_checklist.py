"""`day0 run-checklist`: load, start, ask, compare, strain; one verdict with the evidence beside it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from day0.checklist.checklist import PHASES, Checklist, ChecklistResult, ChecklistRun, plain, verdict
from day0.checklist.environment import input_hashes, machine_facts
from day0.checklist.figures import MemoryCurve
from day0.cli.crash import redact
from day0.cli.output import check_writable, emit, encode, status_console, write_file
from day0.errors import ExitCode, InputError
from day0.plan.settings import RUNTIMES, EngineSettings

if TYPE_CHECKING:
    from day0.checklist.client import EndpointTarget
    from day0.checklist.probe_runtime import RuntimeTarget
    from day0.checklist.target import CheckContext
    from day0.cli.serve_plan import CheckedPlan
    from day0.plan.plan import Plan

EXIT_CODES = {"ready": ExitCode.YES, "not-ready": ExitCode.NO, "incomplete": ExitCode.CANNOT_SAY}
REFERENCE_CHECKS = ("numerics.reference", "numerics.endpoint")
"""Probes that compare with a reference: required where the user names one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for, checked as far as that goes without the model."""

    model: str
    checklist: str
    phases: tuple[str, ...]
    target: str
    reference: str | None
    settings: EngineSettings
    plan: Plan | None
    seed: int
    api_key: str | None
    command: tuple[str, ...] = ()


def command(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Hub id or folder; with --target also a config.json.")],
    checklist: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="quick, default, full, endpoint, or your own YAML.", show_default=False),
    ] = None,
    phase: Annotated[list[str] | None, typer.Option(metavar="NAME", help=f"Only these: {', '.join(PHASES)}.")] = None,
    target: Annotated[str, typer.Option(metavar="runtime|URL", help="What is checked.")] = "runtime",
    against: Annotated[
        str | None,
        typer.Option(metavar="runtime|URL", help="Ask this one the same, and say whether --target may take its place."),
    ] = None,
    prompts: Annotated[int, typer.Option(min=1, max=2000, help="With --against: questions to ask.")] = 120,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="runtime|transformers|FILE",
            help="What numbers are compared with. Default: transformers, where it knows the model.",
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Start the runtime as this plan file says, and hold its memory against it."),
    ] = None,
    device: Annotated[str, typer.Option(help="Device of the runtime.")] = "auto",
    dtype: Annotated[str | None, typer.Option(help="Type of weights and activations.")] = None,
    nproc: Annotated[int, typer.Option(min=1, help="Ranks of the runtime, which cut each layer between them.")] = 1,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read weights layer by layer: for models larger than memory.")
    ] = False,
    report_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where reports go. Default: day0-report/MODEL-TIME.", show_default=False),
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="JUnit XML to this file as well.")] = None,
    baseline: Annotated[Path | None, typer.Option(metavar="FILE", help="Earlier measurements to hold against.")] = None,
    save_baseline: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep this run's measurements.")] = None,
    runtime: Annotated[
        str,
        typer.Option(
            metavar="|".join(RUNTIMES),
            help="Our own blocks (native), transformers' definition (upstream), or that where a block is missing.",
        ),
    ] = "auto",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let code from the model's own repository run here.")
    ] = False,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Put a fault in for every check and see that the check finds it.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of prompts and sampling.")] = 0,
    api_key: Annotated[
        str | None, typer.Option(envvar="DAY0_API_KEY", help="Key for a --target that asks one.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON document here as well.")] = None,
) -> ExitCode:
    """Run a checklist on a model and say whether it is ready here."""
    if stream and target != "runtime":
        raise InputError("the server behind a URL holds its weights as it likes", where="--stream")
    if stream and nproc > 1:
        raise InputError("ranks hold their shares of the weights", where="--stream", hint="leave out --nproc")
    checked = _checked_plan(plan, model, target, stream=stream)
    settings = (checked.settings() if checked is not None else {}) | {
        "device": device,
        "seed": seed,
        "runtime": runtime,
        "trust_remote_code": trust_remote_code,
        **({"dtype": dtype} if dtype is not None else {}),
        **({"offload": "disk"} if stream else {}),
        **({"tp": nproc} if nproc > 1 else {}),
    }
    asked = Asked(
        model=model,
        checklist=checklist or ("default" if target == "runtime" else "endpoint"),
        phases=_phases(phase),
        target=_checked_target(target),
        reference=reference,
        settings=EngineSettings(**settings),
        plan=checked.plan if checked is not None else None,
        seed=seed,
        api_key=api_key,
        command=_command_line(context.obj),
    )
    if against is not None:
        return _against(asked, _checked_target(against, "--against"), prompts, as_json=json, output=output)
    if self_test:
        return _self_test(asked, as_json=json, output=output)
    folder = report_dir or _report_folder(model)
    written = [folder / "checklist.json", *(path for path in (junit, output, save_baseline) if path is not None)]
    ran = run(asked, baseline, written)
    result = ran.result

    from day0.report.checklist_text import render_checklist

    # The verdict comes first: a disk that is full by now must not cost it.
    emit(result, as_json=json, output=None, render=lambda console: render_checklist(result, console))
    digest = write_reports(ran, folder, junit)
    if output is not None:
        write_file(output, encode(result))
    if save_baseline is not None:
        _save_baseline(result, ran.key, save_baseline)
    status_console().print(f"report: {folder / 'report.html'}", soft_wrap=True)
    status_console().print(f"bundle: sha256:{digest} (day0 report verify {folder})", soft_wrap=True)
    unchecked = [check.id for check in result.checks() if check.required and check.status in ("skip", "error")]
    if result.verdict == "incomplete" and unchecked:
        status_console().print(f"not checked: {', '.join(unchecked)}", soft_wrap=True)
    return ExitCode.INTERRUPTED if result.interrupted else EXIT_CODES[result.verdict]


def _against(asked: Asked, base: str, prompts: int, *, as_json: bool, output: Path | None) -> ExitCode:
    from day0.cli.against import EXIT_CODES as RULINGS
    from day0.cli.against import hold_against
    from day0.report.against_text import render_against

    result = hold_against(
        asked.model, asked.target, base, asked.settings, prompts=prompts, seed=asked.seed, api_key=asked.api_key
    )
    emit(result, as_json=as_json, output=output, render=lambda console: render_against(result, console))
    return RULINGS[result.verdict]


def _self_test(asked: Asked, *, as_json: bool, output: Path | None) -> ExitCode:
    from day0.cli.self_test import exit_of, run_self_test
    from day0.report.self_test_text import render_self_test

    context, target = _context(asked)
    result = run_self_test(asked.checklist, asked.phases, context, target)
    emit(result, as_json=as_json, output=output, render=lambda console: render_self_test(result, console))
    return exit_of(result)


def _checked_plan(path: Path | None, model: str, target: str, *, stream: bool) -> CheckedPlan | None:
    """The plan to start by, made again for this model; a server behind a URL has started by its own."""
    if path is None:
        return None
    if target != "runtime":
        raise InputError("a plan is for the runtime in this process", where="--plan", hint="leave out --target")
    from day0.cli.serve_plan import checked_plan

    return checked_plan(path, "day0", model, offload="disk" if stream else None)


def _phases(names: list[str] | None) -> tuple[str, ...]:
    for name in names or ():
        if name not in PHASES:
            raise InputError(f"no phase {name!r}", where="--phase", hint=f"one of {', '.join(PHASES)}")
    return tuple(names) if names else PHASES


def _checked_target(target: str, where: str = "--target") -> str:
    if target != "runtime" and not re.match(r"https?://[^/\s]+", target):
        raise InputError(f"neither `runtime` nor a URL: {target!r}", where=where, hint="http://127.0.0.1:8000")
    return target


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that has ended: the result, what it follows from, and what a baseline of it would be keyed by.

    `sources` are the list and, with `--baseline`, the baseline, as they were read: the evidence takes them along.
    """

    result: ChecklistResult
    run: ChecklistRun
    key: dict[str, str]
    sources: tuple[bytes, bytes | None]


def run(asked: Asked, baseline: Path | None, written: Sequence[Path] = ()) -> Ran:
    """Run the checklist. `written` are files that the result will go to, tried before the first check runs."""
    # Here and not at the top: the probes import torch, which takes seconds, and wrong options are said before that.
    from day0.bench import read_baseline
    from day0.checklist.probe_table import PROBES
    from day0.checklist.read import find_checklist, read_checklist

    started = time.perf_counter()
    list_file = find_checklist(asked.checklist)
    checklist = read_checklist(list_file, PROBES)
    context, target = _context(asked)
    if asked.reference not in (None, "runtime"):  # "runtime" asks to go without
        checklist = _requiring_reference(checklist)
    environment = machine_facts() | target.facts()
    key = baseline_key(context, checklist, environment)
    earlier = read_baseline(baseline, key) if baseline is not None else None
    sources = (list_file.read_bytes(), baseline.read_bytes() if baseline is not None else None)
    for path in written:
        check_writable(path)
    with status_console().status("starting") as status, closing(target), MemoryCurve() as memory:
        running = ChecklistRun(
            checklist,
            PROBES,
            context,
            lacks=target.lacks,
            phases=asked.phases,
            before=earlier.measured if earlier is not None else None,
            on_start=lambda spec: status.update(f"{spec.phase}: {spec.title}"),
        )
        phases = running.run()
    result = ChecklistResult(
        verdict=verdict(phases),
        model=plain(_model_facts(context)),
        target=target.name,
        reference=context.reference,
        checklist=checklist.name,
        environment=environment,
        seed=asked.seed,
        phases=phases,
        baseline={"file": str(baseline), "key": key} if baseline is not None else None,
        interrupted=running.interrupted,
        limits=target.limits(),
        command=asked.command,
        inputs=input_hashes(context.files),
        coverage=_coverage(context),
        memory=memory.points(),
        seconds=time.perf_counter() - started,
    )
    return Ran(result, running, key, sources)


def _command_line(arguments: Sequence[str]) -> tuple[str, ...]:
    """The command as it was given, without keys and passwords."""
    return ("day0", *(redact(argument, arguments, os.environ) for argument in arguments))


def _coverage(context: CheckContext) -> dict[str, Any]:
    """Operators that the model takes by what the whitelist says of them on the device of this machine."""
    from day0.coverage.verdict import judge
    from day0.coverage.whitelist import load_whitelist
    from day0.inventory.needs import take_inventory

    whitelist = load_whitelist(None)
    device = whitelist.present_device()
    coverage = judge(take_inventory(context.profile).needs, whitelist, device)
    operators = [{"name": one.need.name, "status": one.status, "provider": one.provider} for one in coverage.verdicts]
    return {"device": device, "operators": operators}


def _context(asked: Asked) -> tuple[CheckContext, RuntimeTarget | EndpointTarget]:
    from day0.checklist.client import EndpointTarget
    from day0.checklist.probe_runtime import RuntimeTarget, tokenizer_of
    from day0.checklist.target import CheckContext
    from day0.profile.read import read_profile
    from day0.source.resolve import resolve, with_weights

    files = resolve(asked.model)
    if asked.target == "runtime":
        files = with_weights(files, code=asked.settings.trust_remote_code)
    profile = read_profile(files)
    tokenizer, fault = tokenizer_of(files)
    target: RuntimeTarget | EndpointTarget
    if asked.target == "runtime":
        target = RuntimeTarget(files, profile, asked.settings, tokenizer)
        profile = target.profile
    else:
        target = EndpointTarget(asked.target, tokenizer, api_key=asked.api_key)
    reference = asked.reference or "transformers"
    if reference not in ("runtime", "transformers") and not Path(reference).is_file():
        raise InputError(f"no such file: {reference}", where="--reference", hint="runtime, transformers, or a trace")
    return CheckContext(files, profile, target, reference, asked.seed, fault, asked.plan), target


def _requiring_reference(checklist: Checklist) -> Checklist:
    checks = tuple(
        replace(check, required=True) if check.probe in REFERENCE_CHECKS else check for check in checklist.checks
    )
    return replace(checklist, checks=checks)


def _model_facts(context: CheckContext) -> dict[str, Any]:
    files, profile = context.files, context.profile
    return {
        "id": files.id,
        "revision": files.revision,
        "source": files.source,
        "architectures": list(profile.architectures),
        "model_type": profile.model_type,
        "family": profile.family,
        "native": profile.native,
    }


def baseline_key(context: CheckContext, checklist: Checklist, environment: dict[str, Any]) -> dict[str, str]:
    """What must be the same for two runs to be compared. Hosts are told apart by processor and number of CPUs."""
    versions = environment["versions"]
    return {
        "model": Path(context.files.id).name,
        "revision": str(context.files.revision),
        "weights": str(context.files.weight_bytes),
        "target": context.target.kind,
        "checklist": checklist.name,
        **{name: str(environment.get(name)) for name in ("device", "dtype", "processor", "cpus", "runtime")},
        **{name: versions.get(name, "") for name in ("day0", "torch", "python")},
    }


def _save_baseline(result: ChecklistResult, key: dict[str, str], path: Path) -> None:
    """Keep what was measured; a run that is not ready is no measure for others."""
    from day0.bench import Baseline

    if result.verdict != "ready":
        status_console().print(f"no baseline written: the verdict is {result.verdict}")
        return
    measured = {check.id: dict(check.measured) for check in result.checks() if check.status in ("pass", "warn")}
    write_file(path, encode(Baseline(key=key, measured=measured)))


def _report_folder(model: str) -> Path:
    """A folder of this run's own, also where another began in the same second."""
    name = re.sub(r"[^\w.-]+", "-", Path(model).name).strip("-.") or "model"
    folder = Path("day0-report") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    return folder if not folder.exists() else folder.with_name(f"{folder.name}-{os.getpid()}")


def write_reports(ran: Ran, folder: Path, junit: Path | None) -> str:
    """The evidence bundle into `folder`, and JUnit to a place of its own if asked; the bundle's digest."""
    from day0.checklist.evidence import evidence_of
    from day0.report.bundle import JUNIT, MANIFEST, bundle_files, hash_of

    document, evidence = encode(ran.result), evidence_of(ran.run, ran.result)
    files = bundle_files(document, ran.result, evidence, *ran.sources)
    for name, data in files.items():
        write_file(folder / name, data)
    if junit is not None:
        write_file(junit, files[JUNIT])
    return hash_of(files[MANIFEST])
