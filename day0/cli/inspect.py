"""`day0 inspect`: what a model is, which operators it takes, whether we have them; from headers and config alone."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from day0.cli import inspect_extras as extras
from day0.cli.output import emit
from day0.coverage import Coverage, judge, load_whitelist
from day0.errors import ExitCode, InputError
from day0.inventory import Inventory, take_inventory
from day0.profile.audit import audit
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.profile.sketch import Sketch, sketch
from day0.profile.tensor_patterns import told_briefly
from day0.profile.tensors import TensorComparison, compare_tensors
from day0.report import inspect_document as document
from day0.report.inspect_diff import ProfileDiff, diff_profiles
from day0.report.inspect_next import next_steps
from day0.source.model_files import ModelFiles
from day0.source.resolve import resolve
from day0.source.tokenizer_file import tokenizer_facts

if TYPE_CHECKING:
    from rich.console import Console

NOT_UNDERSTOOD = ("quantization-not-read", "operators-incomplete")
"""Findings after which the answer may be wrong in a way that nobody can name."""


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Hub id, folder, config.json or recipe:NAME.")],
    device: Annotated[
        str, typer.Option(metavar="NAME", help="Column of the whitelist that counts. Default: what is found here.")
    ] = "",
    whitelist: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your whitelist, laid over the one that comes with day0.")
    ] = None,
    diff: Annotated[
        str | None, typer.Option(metavar="OTHER", help="Compare with another model: fields, operators, sizes.")
    ] = None,
    scaffold: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a package for each operator that is lacking.")
    ] = None,
    operator: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="With --scaffold: this operator, lacking or not.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --scaffold: overwrite files that were edited.")] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="Count the primitive operators of the definition in transformers.")
    ] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all of it as one HTML page.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings and unverified operators count as no.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the JSON document to this file as well.")
    ] = None,
) -> ExitCode:
    """Say what a model is, which operators it needs, and which of them we lack."""
    started = time.perf_counter()
    if scaffold is None and (operator or force):
        raise InputError("means something only with --scaffold", where="--operator" if operator else "--force")
    columns = load_whitelist(whitelist)
    with no_search_for_cycles():
        files = resolve(model)
        profile = read_profile(files)
        comparison = compare_tensors(profile, files) if profile.family and files.tensors is not None else None
    inventory = take_inventory(profile)
    coverage = judge(inventory.needs, columns, device or columns.present_device())
    report = inspect_document(files, profile, comparison, inventory, coverage, _diff(profile, diff), started)
    if trace:
        report = replace(report, trace=extras.trace_definition(files, profile))
    if scaffold is not None:
        made = extras.write_scaffold(files.id, coverage, columns, scaffold, operator or (), force=force)
        steps = tuple(step for step in report.next if "--scaffold" not in step)
        report = replace(report, scaffold=made, next=steps)
    if html is not None:
        extras.write_page(report, html)
    emit(report, as_json=json, output=output, render=lambda console: _render(report, console))
    return exit_code(report, strict=strict)


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """Half a million records may be made here and none is part of a cycle: looking for some costs time for nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _render(report: document.InspectDocument, console: Console) -> None:
    from day0.report.inspect_text import render  # rich's tables, which JSON does without

    render(report, console)


def inspect_document(
    files: ModelFiles,
    profile: ArchitectureProfile,
    comparison: TensorComparison | None,
    inventory: Inventory,
    coverage: Coverage,
    diff: ProfileDiff | None,
    started: float,
) -> document.InspectDocument:
    """Everything found, as the record that is printed; `started` is a `time.perf_counter` reading."""
    sketched = sketch(files) if profile.family is None else None
    unexplained = document.unexplained_tensors(files, comparison, sketched)
    audited = audit(files, profile, comparison, tokenizer_facts(files.folder) if files.source == "folder" else None)
    findings = document.all_findings(files, profile, comparison, inventory, unexplained, audited)
    params = document.parameter_facts(profile, sketched, unexplained)
    layers = document.layer_facts(profile, inventory, sketched)
    nearest = profile.likeness.family if profile.likeness is not None else None
    return document.InspectDocument(
        schema=document.SCHEMA,
        model=document.model_facts(files, profile),
        params=params,
        weights=document.weight_facts(files, profile, comparison),
        layers=layers,
        layer_counts=document.layer_counts(layers),
        experts=document.expert_facts(profile),
        cache=document.cache_facts(profile),
        context=document.context_facts(profile),
        vision=document.vision_facts(profile),
        audio=document.audio_facts(profile),
        mtp=document.mtp_facts(profile, params),
        quantization=document.quantization_facts(profile),
        device=coverage.device,
        operators=document.operator_facts(coverage),
        coverage=coverage.counts,
        findings=findings,
        unused_config_keys=profile.unused_config_keys,
        defaulted_config_keys=profile.defaulted_config_keys,
        unexpected_tensors=_unexpected(comparison, sketched),
        missing_tensors=told_briefly(comparison.missing) if comparison else (),
        unexplained=unexplained,
        diff=diff,
        scaffold=None,
        trace=None,
        next=next_steps(files.id, nearest, coverage, findings, has_weights=files.tensors is not None),
        seconds=time.perf_counter() - started,
    )


def exit_code(report: document.InspectDocument, *, strict: bool) -> ExitCode:
    """No for what is lacking or broken, cannot say for what was not understood, else yes.

    A lack is a lack whatever else the model holds, so it comes first, and so is what is new and can be named; an
    empty inspection says nothing.
    """
    if report.coverage["gap"] or report.coverage["constraint"]:
        return ExitCode.NO
    said_nothing = not report.layers and not report.unexplained
    if said_nothing:
        return ExitCode.CANNOT_SAY
    if any(finding.severity == "error" and finding.code not in NOT_UNDERSTOOD for finding in report.findings):
        return ExitCode.NO
    if not report.layers or any(finding.code in NOT_UNDERSTOOD for finding in report.findings):
        return ExitCode.CANNOT_SAY
    if strict and (report.coverage["unverified"] or any(f.severity == "warning" for f in report.findings)):
        return ExitCode.NO
    return ExitCode.YES


def _unexpected(comparison: TensorComparison | None, sketched: Sketch | None) -> tuple[str, ...]:
    if sketched is not None:
        return tuple(f"{pattern.pattern} ({pattern.tensors:,} tensors)" for pattern in sketched.patterns)
    return told_briefly(comparison.unexpected) if comparison else ()


def _diff(profile: ArchitectureProfile, other: str | None) -> ProfileDiff | None:
    if other is None:
        return None
    files = resolve(other)
    return diff_profiles(profile, read_profile(files), files.id)
