"""The report of a defect of day0 itself: traceback, versions and command line, without secrets."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shlex
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from itertools import zip_longest

import day0

_PACKAGES = ("torch", "transformers", "safetensors", "huggingface_hub", "msgspec", "typer", "rich", "fastapi")
_SECRET_OPTION = re.compile(r"--(?:[\w-]*(?:api-?key|secret|password)[\w-]*|(?:hf-|auth-)?token)")
_SECRET_VARIABLE = re.compile(r"TOKEN|KEY|SECRET|PASSWORD")
_SECRET_TEXT = re.compile(r"\b(?:hf_|sk-)\w{8,}|(?<=://)[^/\s@]+(?=@)")
_HIDDEN = "[redacted]"


def write_crash_report(error: BaseException, arguments: Sequence[str]) -> str | None:
    """Write the report to a new file in the temporary folder; its path, or None where it cannot be written."""
    lines = [
        f"day0 {day0.__version__}, Python {platform.python_version()}, {platform.platform()}",
        *(f"{name} {_version(name)}" for name in _PACKAGES),
        f"command: {shlex.join(['day0', *arguments])}",
        "",
        *traceback.format_exception(error),
    ]
    report = redact("\n".join(lines), arguments, os.environ)
    try:
        handle, path = tempfile.mkstemp(prefix="day0-crash-", suffix=".txt")
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(report)
    except OSError:
        return None
    return path


def redact(text: str, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """`text` without keys, tokens and passwords that the command line or the environment gave."""
    secrets = {value for name, value in environment.items() if _SECRET_VARIABLE.search(name) and len(value) >= 8}
    for option, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        name, given, value = option.partition("=")
        if _SECRET_OPTION.fullmatch(name):
            secrets.add(value if given else following)
    for secret in sorted(secrets - {""}, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return _SECRET_TEXT.sub(_HIDDEN, text)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
