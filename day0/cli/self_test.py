"""`day0 run-checklist --self-test`: can the checks fail on this machine?"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from typing import TYPE_CHECKING

from day0.cli.output import status_console
from day0.errors import ExitCode

if TYPE_CHECKING:
    from day0.checklist.client import EndpointTarget
    from day0.checklist.probe_runtime import RuntimeTarget
    from day0.checklist.probe_self_test import SelfTest
    from day0.checklist.target import CheckContext


def run_self_test(
    name: str, phases: Collection[str], context: CheckContext, target: RuntimeTarget | EndpointTarget
) -> SelfTest:
    """Put each check's fault in and see whether it is found."""
    from day0.checklist.probe_self_test import SelfTest, self_test
    from day0.checklist.probe_table import PROBES
    from day0.checklist.read import find_checklist, read_checklist

    checklist = read_checklist(find_checklist(name), PROBES)
    with status_console().status("starting") as status, closing(target):
        trials = self_test(checklist, context, phases, lambda spec: status.update(f"{spec.phase}: {spec.title}"))
    return SelfTest(checklist.name, context.files.id, target.name, trials)


def exit_of(result: SelfTest) -> ExitCode:
    """1 where a fault was missed, 4 where none could be put in."""
    if result.count("missed"):
        return ExitCode.NO
    return ExitCode.YES if result.count("found") else ExitCode.CANNOT_SAY
