"""The single writer of results: JSON and text on stdout, files written whole, and readers that leave early."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from day0.cli.output import check_writable, emit, encode, printable, status_console, write_file
from day0.errors import EnvironmentFault, ExitCode, InputError

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Inner:
    ratio: float
    path: Path
    status: ExitCode


@dataclass(frozen=True, slots=True)
class Document:
    schema: str
    inner: tuple[Inner, ...]
    groups: MappingProxyType[str, int]


DOCUMENT = Document("day0.test/1", (Inner(math.nan, Path("/models/m"), ExitCode.NO),), MappingProxyType({"a": 2**70}))
AS_JSON = {
    "schema": "day0.test/1",
    "inner": [{"ratio": None, "path": "/models/m", "status": 1}],
    "groups": {"a": 2**70},
}


def draw(console: Console) -> None:
    from rich.table import Table

    table = Table("name", "value")
    table.add_row("[bold]layers[/nonsense] :smile: \x1b]0;title\x07 \x1b[2J", "x" * 60)
    console.print(table)


def test_json_is_the_only_thing_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    emit(DOCUMENT, as_json=True, output=None, render=draw)
    printed = capsys.readouterr()
    assert json.loads(printed.out) == AS_JSON
    assert printed.out.endswith("}\n") and printed.err == ""


def test_strings_of_a_model_are_shown_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No markup, no emoji codes, and no control sequence reaches the terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)
    emit(DOCUMENT, as_json=False, output=None, render=draw)
    shown = capsys.readouterr().out
    assert "[bold]layers[/nonsense] :smile:" in shown
    assert "\x1b" not in shown and "\x07" not in shown
    assert "\\x1b[2J" in shown
    assert "x" * 60 in shown  # not squeezed into eighty columns where nobody asked for that


def test_colours_pass_and_other_sequences_do_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    emit(DOCUMENT, as_json=False, output=None, render=lambda console: console.print("name\x1b[5A", style="red"))
    assert capsys.readouterr().out == "\x1b[31mname\\x1b[5A\x1b[0m\n"


def test_output_file_holds_the_same_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "report.json"
    emit(DOCUMENT, as_json=False, output=path, render=draw)
    assert json.loads(path.read_bytes()) == AS_JSON
    assert "layers" in capsys.readouterr().out


def test_unknown_type_is_a_defect_not_a_string() -> None:
    with pytest.raises((TypeError, NotImplementedError)):
        encode({"x": object()})


def test_file_is_replaced_whole(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_file(link, b"new")
    assert target.read_bytes() == b"new" and link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "target.json"]


def test_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    write_file(Path("/dev/null"), b"x")
    assert not Path("/dev/null").is_file()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, b"x")
    reader.join(timeout=10)
    assert read == [b"x"]


def test_unwritable_file_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_file(tmp_path / "file" / "below", b"x")
    with pytest.raises(InputError, match="cannot be written"):
        write_file(tmp_path, b"x")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_what_cannot_be_written_is_known_beforehand(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path, tmp_path / "file" / "below", Path("/proc/nothing/here")):
        with pytest.raises(InputError, match="cannot be written"):
            check_writable(path)
    check_writable(tmp_path / "file")
    check_writable(tmp_path / "new" / "folder" / "file")
    check_writable(Path("/dev/null"))
    assert (tmp_path / "file").read_text() == "kept" and list((tmp_path / "new" / "folder").iterdir()) == []


def test_a_full_disk_is_no_fault_of_the_input() -> None:
    with pytest.raises(EnvironmentFault, match="No space left"):
        write_file(Path("/dev/full"), b"x")


def test_a_name_that_is_no_text_does_not_keep_the_rest_from_being_told() -> None:
    document = {"files": ["a", os.fsdecode(b"b\xff")], "n": {"\ud800": math.nan}}
    assert json.loads(encode(document)) == {"files": ["a", "b?"], "n": {"?": None}}


def test_progress_that_cannot_be_written_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr("sys.stderr", full)
        status_console().print("loading")
        monkeypatch.undo()
        with suppress(OSError):
            full.close()


def test_status_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    status_console().print("loading [3/4]")
    assert capsys.readouterr() == ("", "loading [3/4]\n")


def test_printable() -> None:
    assert printable("a\nb\t c\x07\x9b2J") == "a b c\\x07\\x9b2J"
    assert printable("plain – ünïcode ✓") == "plain – ünïcode ✓"


SCRIPT = """
import sys
from pathlib import Path
from day0.cli.output import emit
from day0.errors import Day0Error
lines = ["x" * 70] * 5000
try:
    emit(lines, as_json="--json" in sys.argv, output=Path(sys.argv[1]), render=lambda c: c.print("\\n".join(lines)))
except Day0Error as error:
    sys.stderr.write(str(error))
    sys.exit(error.exit_code)
sys.exit(4)
"""


@pytest.mark.parametrize("form", ["--json", "--text"])
def test_verdict_stands_when_the_reader_leaves(tmp_path: Path, form: str) -> None:
    """`day0 ... | head -1` ends with the command's own status, and the file is written all the same."""
    output = tmp_path / "report.json"
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(output), form], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    complaint = process.stderr.read()
    assert (process.wait(), complaint) == (4, b"")
    assert len(json.loads(output.read_bytes())) == 5000
    process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_is_an_environment_fault(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / "x"), "--json"],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 3
    assert "cannot write to stdout: No space left" in done.stderr
