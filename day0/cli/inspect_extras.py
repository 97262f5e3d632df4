"""What `day0 inspect` does beyond its document: stubs for operators, the upstream trace, the HTML page."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from day0.cli.output import write_file
from day0.coverage import Coverage, Verdict, Whitelist
from day0.errors import CannotSay, InputError
from day0.profile.profile import ArchitectureProfile
from day0.source.model_files import ModelFiles

if TYPE_CHECKING:
    from day0.report.inspect_document import InspectDocument


def write_scaffold(
    model: str, coverage: Coverage, whitelist: Whitelist, folder: Path, operators: Sequence[str], *, force: bool
) -> dict[str, Any]:
    """A package for each of the named operators, or for each that lacks, in a folder of its own below `folder`.

    Nothing is written where a file of that name says something else, unless `force` is given.
    """
    from day0.scaffold.package import packages  # jinja2, which an inspection does without

    chosen = _chosen(coverage, operators)
    marker = whitelist.devices[coverage.device].marker
    made = packages(model, chosen, coverage.device, marker)
    files = {folder / package.operator / name: text for package in made for name, text in package.files.items()}
    if not force:
        _refuse_edited(files)
    for path, text in files.items():
        write_file(path, text.encode())
    return {
        "folder": str(folder),
        "operators": [package.operator for package in made],
        "without_reference": [package.operator for package in made if not package.has_reference],
        "files": [str(path.relative_to(folder)) for path in files],
    }


def _chosen(coverage: Coverage, operators: Sequence[str]) -> tuple[Verdict, ...]:
    if not operators:
        return coverage.lacking
    needed = list(dict.fromkeys(verdict.need.name for verdict in coverage.verdicts))
    for name in operators:
        if name not in needed:
            close = difflib.get_close_matches(name, needed, n=3, cutoff=0.4)
            raise InputError(
                f"the model does not need an operator {name!r}",
                where="--operator",
                hint=f"it needs {', '.join(close or needed)}",
            )
    return tuple(verdict for verdict in coverage.verdicts if verdict.need.name in operators)


def _refuse_edited(files: dict[Path, str]) -> None:
    for path, text in files.items():
        try:
            same = not path.exists() or path.read_text("utf-8") == text
        except (OSError, UnicodeDecodeError):
            same = False
        if not same:
            raise InputError(
                "is there already and says something else; nothing was written",
                where=str(path),
                hint="choose another folder, or overwrite with --force",
            )


def trace_definition(files: ModelFiles, profile: ArchitectureProfile) -> dict[str, Any]:
    """Primitive operators of the definition in transformers, by kind of layer."""
    from day0.runtime.upstream_trace import trace_upstream  # torch and transformers

    if not files.config:
        raise CannotSay("there is no configuration to build a definition from", where=files.id)
    kinds = [f"{layer.mixer.kind} + {layer.feed_forward.kind}" for layer in profile.layers]
    return asdict(trace_upstream(files.config, kinds, where=files.id))


def write_page(report: InspectDocument, path: Path) -> None:
    """The whole document as one HTML file."""
    from day0.report.inspect_html import html_document

    write_file(path, html_document(report).encode())
