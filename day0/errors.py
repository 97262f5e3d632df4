"""What can go wrong, where, and what to do next; each error knows the exit status of the contract."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal


class ExitCode(IntEnum):
    """Exit statuses of the command contract, version 1."""

    YES = 0
    NO = 1
    BAD_INPUT = 2
    ENVIRONMENT = 3
    CANNOT_SAY = 4
    DEFECT = 70
    INTERRUPTED = 130


Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something an engineer should know about the input; `where` names file and field, tensor or line."""

    code: str
    severity: Severity
    where: str
    message: str
    hint: str = ""


class Day0Error(Exception):
    """A condition the user can understand and mend; the CLI prints it without a traceback."""

    exit_code: ExitCode = ExitCode.BAD_INPUT

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class InputError(Day0Error):
    """The request or the input is wrong: unknown option, broken JSON, missing shard."""

    exit_code = ExitCode.BAD_INPUT


class EnvironmentFault(Day0Error):
    """The environment is at fault: hub unreachable, device or engine missing, a rank died."""

    exit_code = ExitCode.ENVIRONMENT


class CannotSay(Day0Error):
    """The answer needs something that was not checked or not understood."""

    exit_code = ExitCode.CANNOT_SAY


FAILING_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""What a disk says that is full or broken."""


def not_written(error: OSError, where: object) -> Day0Error:
    """Why a file or folder was not written: a full or failing disk is the environment's fault, else the place is."""
    kind = EnvironmentFault if error.errno in FAILING_DISK else InputError
    return kind(f"cannot be written: {error.strerror or error}", where=str(where))
