"""`day0 compare REFERENCE CANDIDATE`: where two traces part first, and what kind of mistake it looks like."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from day0.cli.output import emit, write_file
from day0.errors import EnvironmentFault, ExitCode, InputError

if TYPE_CHECKING:
    from day0.numerics.floor import Floor
    from day0.numerics.reading import Recording
    from day0.numerics.walk import Report
    from day0.runtime.tokenizer import Tokenizer

EXIT_CODES = {"equal": ExitCode.YES, "deviates": ExitCode.NO, "incomplete": ExitCode.CANNOT_SAY}


def command(
    reference: Annotated[Path, typer.Argument(metavar="REFERENCE", help="A trace, or a folder of dumped tensors.")],
    candidate: Annotated[
        str, typer.Argument(metavar="CANDIDATE|URL", help="Likewise, of the same token ids; or a server to be asked.")
    ],
    floor: Annotated[
        Path | None, typer.Option(metavar="TRACE", help="The reference once more in a coarser type: the noise floor.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Measure the floor with this model, in bfloat16.")
    ] = None,
    fed: Annotated[
        Path | None, typer.Option(metavar="TRACE", help="The candidate traced with --feed REFERENCE: its own errors.")
    ] = None,
    replayed: Annotated[
        Path | None, typer.Option(metavar="TRACE", help="The candidate traced with --replay REFERENCE.")
    ] = None,
    names: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML name map for dumps: names, axes, step.")
    ] = None,
    common: Annotated[
        bool, typer.Option("--common", help="Tensors that one side lacks are no reason to be undecided.")
    ] = False,
    endpoint_dtype: Annotated[
        str, typer.Option(metavar="TYPE", help="With a URL: what the server computes in.")
    ] = "bfloat16",
    api_key: Annotated[str | None, typer.Option(help="With a URL: sent as a bearer token.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one page that opens offline.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON document here as well.")] = None,
) -> ExitCode:
    """Compare tensor by tensor in the reference's execution order and name the first that deviates."""
    from day0.numerics.baseline import baseline_remarks, is_baseline
    from day0.numerics.walk import Sides, compare_recordings, errors_at_the_end
    from day0.report.compare_html import comparison_page
    from day0.report.compare_text import render_comparison

    if floor is not None and model is not None:
        raise InputError("--floor and --model both give the noise floor", where="--model", hint="leave one out")
    one = _read(reference, names)
    if candidate.startswith(("http://", "https://")):
        if fed or replayed or common or html:
            raise InputError(
                "an endpoint tells only logits", where=candidate, hint="--fed, --replayed, --common: leave"
            )
        return _with_endpoint(
            one, candidate, _floor(one, floor, model), model, endpoint_dtype, api_key, as_json, output
        )
    two = _read(Path(candidate), names)
    remarks = baseline_remarks(one, two) if is_baseline(one) else ()
    sides = Sides(
        one,
        two,
        _floor(one, floor, model),
        fed=None if fed is None else _read(fed, names),
        replayed=None if replayed is None else _read(replayed, names),
        common_only=common,
    )
    report = compare_recordings(sides)
    report = replace(report, remarks=(*remarks, *report.remarks))
    if html is not None:
        write_file(html, comparison_page(report, one.where, two.where).encode())
    document = _document(report, one, two) | {"logit_errors": dict(errors_at_the_end(report))}
    emit(document, as_json=as_json, output=output, render=lambda console: render_comparison(report, console))
    return EXIT_CODES[report.verdict]


def _with_endpoint(
    reference: Recording,
    url: str,
    floor: Floor,
    model: str | None,
    dtype: str,
    api_key: str | None,
    as_json: bool,
    output: Path | None,
) -> ExitCode:
    from day0.checklist.client import EndpointTarget
    from day0.cli.compare_endpoint import compare_endpoint, render_told
    from day0.numerics.floor import eps_of

    eps = eps_of(dtype)
    target = EndpointTarget(url, _tokenizer(model or reference.facts.get("model")), api_key=api_key)
    report, told, document = compare_endpoint(reference, floor, target, eps)
    emit(
        document,
        as_json=as_json,
        output=output,
        render=lambda console: render_told(report, told, floor.source, console),
    )
    return EXIT_CODES[report.verdict]


def _tokenizer(model: str | None) -> Tokenizer | None:
    """That of a local model; only a server that names tokens by text makes it needed."""
    from day0.runtime.tokenizer import Tokenizer
    from day0.source.resolve import resolve

    try:
        folder = None if model is None else resolve(model).folder
        return None if folder is None else Tokenizer.from_folder(folder)
    except (InputError, EnvironmentFault):
        return None


def _read(path: Path, names: Path | None) -> Recording:
    from day0.numerics.dumps import NameMap, read_dump
    from day0.numerics.reading import read_recording
    from day0.source.data_files import load_yaml

    if path.is_dir():
        return read_dump(path, None if names is None else NameMap.of(load_yaml(names), str(names)))
    return read_recording(path)


def _floor(reference: Recording, trace: Path | None, model: str | None) -> Floor:
    from day0.numerics.floor import assumed_floor, measured_floor
    from day0.numerics.reading import read_recording

    if trace is not None:
        return measured_floor(reference, read_recording(trace))
    if model is None:
        return assumed_floor()
    with tempfile.TemporaryDirectory() as folder:
        return measured_floor(reference, _coarse_trace(model, reference, Path(folder) / "floor"))


def _coarse_trace(model: str, reference: Recording, out: Path) -> Recording:
    """The reference's prompt through the model in bfloat16, with the reference's choices: rounding and nothing else."""
    from day0.cli.trace import model_files
    from day0.cli.trace_run import OtherRun, TracedPrompt, record
    from day0.numerics.decisions import CHOICE_POINTS
    from day0.numerics.reading import read_recording
    from day0.numerics.recording import Keep, Recorder
    from day0.plan.settings import EngineSettings

    if reference.prompt_ids is None:
        raise InputError("does not say which tokens it is of", where=reference.where, hint="give --floor instead")
    if reference.facts.get("images"):
        hint = "trace it once more with --dtype bfloat16 --replay REFERENCE, and give that as --floor"
        raise InputError("is of a prompt with images", where=reference.where, hint=hint)
    recorder = Recorder(Keep())
    chooses = any(entry.operator in CHOICE_POINTS and entry.step == 0 for entry in reference.entries)
    other = OtherRun(reference, choices_only=True) if chooses else None
    settings = EngineSettings(dtype="bfloat16", max_num_seqs=1, prefix_caching=False)
    record(model_files(model), TracedPrompt(reference.prompt_ids), settings, recorder, other)
    recorder.write(out, reference.prompt_ids, (), {})
    return read_recording(out)


def _document(report: Report, reference: Recording, candidate: Recording) -> dict[str, Any]:
    return {
        "schema": "day0.compare/1",
        "verdict": report.verdict,
        "reference": reference.where,
        "candidate": candidate.where,
        "first": None if report.first is None else asdict(report.first),
        "nodes": [asdict(node) for node in report.nodes],
        "decisions": [asdict(decision) for decision in report.decisions],
        "logits": None if report.logits is None else asdict(report.logits),
        "replayed_logits": None if report.replayed_logits is None else asdict(report.replayed_logits),
        "missing": {"a": list(report.missing_reference), "b": list(report.missing_candidate)},
        "floor": report.floor,
        "remarks": list(report.remarks),
    }
