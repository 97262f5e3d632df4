"""The command line as a process sees it: statuses, streams, help, and what a defect leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest
import typer

import day0
from day0.cli.main import COMMANDS, main
from day0.errors import CannotSay, Day0Error, EnvironmentFault, ExitCode, InputError


def day0_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "day0.cli.main", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.fixture
def body(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A stand-in module for the command `inspect`; a test gives it the body to run."""
    module = ModuleType("day0.cli.inspect")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def run_body(module: ModuleType, outcome: object, *arguments: str) -> int:
    """Run `day0 inspect` with a body that returns `outcome`, or raises it."""

    def command(
        model: str, api_key: Annotated[str, typer.Option("--api-key")] = "", count: Annotated[int, typer.Option()] = 1
    ) -> object:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    module.command = command  # type: ignore[attr-defined]
    return main(["inspect", *(arguments or ("some/model",))])


@pytest.mark.parametrize("status", [ExitCode.YES, ExitCode.NO, ExitCode.CANNOT_SAY, 0, 1])
def test_the_status_is_what_the_command_returns(
    body: ModuleType, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_body(body, status) == status
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError("is broken", where="config.json:3:1", hint="mend it"), 2),
        (EnvironmentFault("is broken", where="config.json:3:1", hint="mend it"), 3),
        (CannotSay("is broken", where="config.json:3:1", hint="mend it"), 4),
    ],
)
def test_our_errors_are_two_lines_on_stderr(
    body: ModuleType, error: Day0Error, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_body(body, error) == status
    assert capsys.readouterr() == ("", "error: config.json:3:1: is broken\nhint: mend it\n")


def test_text_of_an_error_cannot_drive_the_terminal(body: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    run_body(body, InputError("tensor \x1b[2Jx\n\nerror: forged"))
    assert capsys.readouterr().err == "error: tensor \\x1b[2Jx error: forged\n"


def test_interruption(body: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_body(body, KeyboardInterrupt()) == 130
    assert capsys.readouterr() == ("", "error: interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "words", "hint"),
    [
        (["inspct"], "No such command 'inspct'", "commands: inspect, plan, run-checklist, report, serve, "),
        (["--nonsense"], "No such option: --nonsense", "day0 --help"),
        (["inspect"], "Missing argument 'model'", "day0 inspect --help"),
        (["inspect", "x", "--nonsense"], "No such option: --nonsense", "day0 inspect --help"),
        (["inspect", "x", "y"], "unexpected extra argument", "day0 inspect --help"),
        (["inspect", "x", "--count", "many"], "Invalid value for '--count'", "day0 inspect --help"),
    ],
)
def test_wrong_usage_is_status_2(
    body: ModuleType, arguments: list[str], words: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_body(body, 0)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err and hint in printed.err


def test_a_defect_leaves_a_report_without_secrets(
    body: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    error = ZeroDivisionError("while using sesame-key-1")
    assert run_body(body, error, "some/model", "--api-key", "sesame-key-1") == 70
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    assert "error: a defect of day0 itself: ZeroDivisionError: while using [redacted]" in printed.err
    (report,) = tmp_path.glob("day0-crash-*.txt")
    assert str(report) in printed.err
    text = report.read_text()
    assert "Traceback" in text and "raise outcome" in text
    assert f"day0 {day0.__version__}" in text and "some/model" in text
    assert "sesame-key-1" not in text


@pytest.mark.parametrize("outcome", [None, "0"])
def test_a_command_that_returns_no_status_is_a_defect(
    body: ModuleType, outcome: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run_body(body, outcome) == 70


def test_help_and_version_go_to_stdout() -> None:
    shown = day0_process("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert all(name in shown.stdout for name in COMMANDS)
    assert day0_process("--version").stdout == f"day0 {day0.__version__}\n"


def test_no_arguments_is_help_and_a_mistake() -> None:
    shown = day0_process()
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "Commands:" in shown.stderr


def test_help_loads_little() -> None:
    """What makes help slow is what it imports; speed itself is for benchmarks."""
    command = [sys.executable, "-X", "importtime", "-m", "day0.cli.main", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in shown.stderr.splitlines() if line.startswith("import time:")}
    heavy = {"torch", "transformers", "fastapi", "huggingface_hub", "numpy", "yaml", "httpx", "safetensors", "jinja2"}
    assert loaded
    assert not loaded & heavy


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_module_and_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"Usage: day0 {name}" in capsys.readouterr().out


def test_a_narrow_terminal_is_no_defect() -> None:
    done = day0_process("inspect", "café/☃", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == 2
    assert "error:" in done.stderr and "caf" in done.stderr


def test_a_reader_that_leaves_is_no_defect() -> None:
    """`day0 --help | true`: whatever the status, no traceback and no complaint."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import time, sys; time.sleep(0.2); from day0.cli.main import main; sys.exit(main())"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.wait()
    process.stderr.close()


@pytest.mark.parametrize("command", ["skeleton recipe:qwen3-0.6b out", "run-checklist model"])
@pytest.mark.parametrize("seed", ["-1", "18446744073709551616", "9" * 40])
def test_seeds_that_no_generator_takes_are_refused(command: str, seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--seed", seed]) == ExitCode.BAD_INPUT
    assert "--seed" in capsys.readouterr().err


def test_arguments_that_are_no_text_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", os.fsdecode(b"/tmp/\xff")]) == ExitCode.BAD_INPUT
    assert "not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["plan", "--help"], ["serve", "x", "--dry-run"]])
def test_a_full_disk_behind_stdout_is_the_environments_fault(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "day0.cli.main", *arguments]
        done = subprocess.run(command, check=False, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == ExitCode.ENVIRONMENT and "No space left" in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-"])
def test_a_process_without_one_of_its_streams(closed: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m day0.cli.main plan recipe:qwen3-0.6b --cluster h200:1 --json {closed}"
    assert subprocess.run(["/bin/sh", "-c", command], check=False, capture_output=True).returncode == ExitCode.YES


def test_a_full_disk_anywhere_is_no_defect(body: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_body(body, OSError(28, "No space left on device", "/tmp/x")) == ExitCode.ENVIRONMENT
    assert capsys.readouterr().err == "error: /tmp/x: No space left on device\n"
    assert run_body(body, OSError(2, "No such file", "/tmp/x")) == ExitCode.DEFECT
