"""The single writer of results: one JSON document or text for people on stdout, everything else on stderr."""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from day0.errors import EnvironmentFault, not_written

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 120
"""Columns where stdout is no terminal and COLUMNS does not say otherwise."""

# Control characters, except line ends, tabs and the escape of a colour sequence.
_CONTROL = re.compile(r"(?!\x1b\[[0-9;]*m)[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def emit(document: object, *, as_json: bool, output: Path | None, render: Callable[[Console], None]) -> None:
    """Print the result: the JSON document with `as_json`, else what `render` draws. `output` gets the JSON too.

    The console takes no markup in plain strings, because they may come from a model's files; style with
    `rich.text.Text` and `style=`.
    """
    if as_json:
        write_stdout(encode(document))
    else:
        with _reader_may_leave():
            render(_console(_Printable(sys.stdout)))
    if output is not None:
        write_file(output, encode(document))


def encode(document: object) -> bytes:
    """One JSON document, indented, with a line end; NaN and infinity become null, half a character a question mark."""
    try:
        text = msgspec.json.encode(document, enc_hook=_plain)
    except UnicodeEncodeError:  # a file name that is no UTF-8, as Python carries it
        text = msgspec.json.encode(_whole(msgspec.to_builtins(document, enc_hook=_plain)))
    return msgspec.json.format(text, indent=2) + b"\n"


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_whole(key): _whole(entry) for key, entry in value.items()}
    return [_whole(entry) for entry in value] if isinstance(value, list | tuple) else value


def write_stdout(data: bytes) -> None:
    """Write bytes to stdout whatever its encoding."""
    with _reader_may_leave():
        buffer = getattr(sys.stdout, "buffer", None)
        if buffer is None:
            sys.stdout.write(data.decode())
        else:
            sys.stdout.flush()
            buffer.write(data)


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file or none: under another name first, then renamed. Missing folders are made."""
    try:
        target = path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file():  # a pipe or a device cannot be renamed over
            target.write_bytes(data)
            return
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            partial.write_bytes(data)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise not_written(error, path) from None


def check_writable(path: Path) -> None:
    """Raise what `write_file` would, before the work whose result is to go there. Missing folders are made."""
    try:
        target = path.resolve()
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.is_file():
            with tempfile.TemporaryFile(dir=target.parent):
                pass
    except OSError as error:
        raise not_written(error, path) from None


def status_console() -> Console:
    """Where progress, logs and remarks go: stderr. Where it cannot be written (a full disk), the work goes on."""
    return _console(_Forgiving(sys.stderr))


def printable(text: str) -> str:
    """`text` on one line, with control characters spelled out, so that a model's strings cannot drive a terminal."""
    return _CONTROL.sub(_spell_out, " ".join(text.split()))


def _spell_out(match: re.Match[str]) -> str:
    return f"\\x{ord(match.group()):02x}"


def _plain(value: object) -> object:
    """JSON for what msgspec does not know by itself."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"no JSON form for {type(value).__name__}")


class _Printable:
    """A text stream that spells out control characters other than colours."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(_CONTROL.sub(_spell_out, text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Forgiving:
    """A text stream that loses what cannot be written."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _console(stream: Any) -> Console:
    from rich.console import Console

    class QuietConsole(Console):
        def on_broken_pipe(self) -> None:
            """The reader has gone; rich would end the process with status 1, which means "no" here."""
            _send_nowhere(self.file)

    width = None if stream.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    return QuietConsole(file=stream, width=width, markup=False, emoji=False, highlight=False)


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Write to stdout; a reader that has gone (`| head`) is no error, and the verdict still stands."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _send_nowhere(sys.stdout)
    except OSError as error:
        _send_nowhere(sys.stdout)
        raise EnvironmentFault(f"cannot write to stdout: {error.strerror or error}") from None


def _send_nowhere(stream: IO[str]) -> None:
    """Let what is still to be written vanish, so that the flush at exit has nothing to complain of."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
