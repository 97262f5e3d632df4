"""The command line: a table of commands, loaded when asked for, inside the one error handler."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

import day0
from day0.cli.output import printable
from day0.cli.signals import terminable
from day0.errors import FAILING_DISK, Day0Error, ExitCode, InputError


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: the module of this package whose function `command` is its body, and its line in the help."""

    module: str
    help: str


COMMANDS = {
    "inspect": Entry("inspect", "What a model is, which operators it takes, and which of them we lack."),
    "plan": Entry("plan", "Which layout fits a cluster, bytes per rank, and how to launch it."),
    "run-checklist": Entry("run_checklist", "Load, start, ask, compare, strain: is the model ready here?"),
    "report": Entry("report", "Verify a checklist run's evidence: every verdict, from what was measured."),
    "serve": Entry("serve", "The model behind an OpenAI-compatible HTTP API."),
    "trace": Entry("trace", "Named tensors of one prompt, in execution order, to files."),
    "compare": Entry("compare", "Two traces: the first tensor that deviates, and what it looks like."),
    "ops": Entry("ops", "The operator table: list it, or verify kernels on this machine and write the evidence."),
    "pull": Entry("pull", "A model of a hub into the local cache: config and headers, or the weights too."),
    "skeleton": Entry("skeleton", "A checkpoint of an architecture: tiny with random weights, or full-size without."),
}


class CommandTable(TyperGroup):
    """The commands of `COMMANDS`. A body is imported when its command is looked up, so that help stays quick."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"day0.cli.{COMMANDS[cmd_name].module}")
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(cmd_name)(module.command)
        return get_command(single)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


app = typer.Typer(cls=CommandTable, add_completion=False, rich_markup_mode=None)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"day0 {day0.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Bring up a newly released open-weight model on the day of its release.

    Exit status: 0 yes, 1 no, 2 wrong input, 3 environment at fault, 4 cannot say, 70 defect of day0, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. No traceback leaves this function."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    _prepare_streams()
    try:
        _refuse_half_text(arguments)
        with terminable():
            return run(arguments)
    except Day0Error as error:
        _complain(str(error), error.hint)
        return error.exit_code
    except typer.TyperException as error:
        _complain(error.format_message(), _usage_hint(error))
        return ExitCode.BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        _complain("interrupted")
        return ExitCode.INTERRUPTED
    except OSError as error:
        if error.errno not in FAILING_DISK:
            return _report_defect(error, arguments)
        _complain(f"{error.filename or 'a file'}: {error.strerror}")
        return ExitCode.ENVIRONMENT
    except Exception as error:
        return _report_defect(error, arguments)


def _prepare_streams() -> None:
    """Both streams are there, and take any name: a process may be started without them, or on a narrow terminal."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (open to the end)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _refuse_half_text(arguments: Sequence[str]) -> None:
    """Names go into JSON, HTML and YAML, which are UTF-8; Python carries other bytes as halves of characters."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise InputError("is not UTF-8 text", where=repr(argument), hint="rename the file or folder") from None


def run(arguments: Sequence[str]) -> int:
    """Parse the arguments, run the command, return its status; errors are raised."""
    group = get_command(app)
    try:
        with group.make_context("day0", list(arguments), obj=tuple(arguments)) as context:
            if not arguments:
                print(context.get_help(), file=sys.stderr)
                return ExitCode.BAD_INPUT
            status = group.invoke(context)
    except typer.Exit as finished:  # --help, --version
        return finished.exit_code
    assert isinstance(status, int), "a command returns its exit status"
    return status


def _usage_hint(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "day0"
    commands = f" (commands: {', '.join(COMMANDS)})" if path == "day0" else ""
    return f"{path} --help{commands}"


def _report_defect(error: Exception, arguments: Sequence[str]) -> int:
    from day0.cli.crash import redact, write_crash_report

    path = write_crash_report(error, arguments)
    said = redact(f"{type(error).__name__}: {error}", arguments, os.environ)
    where = f"please report it with {path}" if path else "no crash report could be written to the temporary folder"
    _complain(f"a defect of day0 itself: {said}", where)
    return ExitCode.DEFECT


def _complain(message: str, hint: str = "") -> None:
    try:
        print(f"error: {printable(message)}", file=sys.stderr)
        if hint:
            print(f"hint: {printable(hint)}", file=sys.stderr)
    except OSError:  # nobody reads stderr; the status says it
        pass


if __name__ == "__main__":
    sys.exit(main())
