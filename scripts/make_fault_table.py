"""Hunts every fault of the fault table and every sound variant, and writes docs/fault-table.md.

python scripts/make_fault_table.py
"""

from __future__ import annotations

import datetime
import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "faults"), str(ROOT / "tests" / "runtime")]

from clean_variants import CLEAN, Clean, clean_report, passes  # noqa: E402
from fault_table import FAULTS, Models, faulty_run  # noqa: E402
from hunting import Fault, Named, named_by  # noqa: E402

PAGE = ROOT / "docs" / "fault-table.md"
INTRODUCTION = """\
# The fault table

Written by `python scripts/make_fault_table.py`.

Each fault below is put into a tiny random model by a switch (`tests/faults/`), the sound model and the faulty one are
traced, and `day0 compare`'s own walk says where they part: no test-only short cut. The noise floor is the sound model
in bfloat16 with its choices replayed. A fault counts as named where the first deviation is of the right layer (in the
right step), and of the right trace point ([Trace points](trace-points.md)) besides. *Kind* is what the deviation looks
like; `other` is right where no simple transformation explains it. `decision` is a choice of a router or an indexer that
scores do not excuse.

Right is the first trace point that a fault can show in: features that are wrongly added behind layer 0 show in what
layer 1 reads, and a scale that a norm takes away again shows in whatever is not normed. The table cannot say how the
hunt does across two implementations, whose roundings differ more than these: there the tolerance is wider.
"""


@dataclass(frozen=True, slots=True)
class Hunted:
    """A fault and what was named, None where nothing was noticed."""

    fault: Fault
    named: Named | None

    @property
    def layer(self) -> bool:
        fault, named = self.fault, self.named
        return named is not None and (named.layer, named.step) == (fault.layer, fault.step)

    @property
    def operator(self) -> bool:
        return self.layer and self.named is not None and self.named.point == self.fault.point

    @property
    def kind(self) -> bool:
        return self.named is not None and self.named.kind == self.fault.kind


def hunt_all(models: Models, scratch: Path) -> list[Hunted]:
    found = []
    for fault in FAULTS:
        sound = models[fault.model]
        found.append(Hunted(fault, named_by(sound.compare(faulty_run(fault, sound, scratch / "faults")))))
        print(f"{fault.id}: {'found' if found[-1].operator else 'MISSED'}", file=sys.stderr)
    return found


def alarms_of(models: Models, scratch: Path) -> list[Clean]:
    return [case for case in CLEAN if not passes(case, clean_report(case, models[case.model], scratch / "clean"))]


def page(hunted: Sequence[Hunted], alarms: Sequence[Clean]) -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *_rates(hunted, alarms), *_table(hunted), *_clean(alarms)]) + "\n"


def _rates(hunted: Sequence[Hunted], alarms: Sequence[Clean]) -> Iterator[str]:
    count = len(hunted)
    simple = [one for one in hunted if one.fault.kind != "other"]
    rows = (
        ("layer", sum(one.layer for one in hunted), count, "at least 98%"),
        ("operator", sum(one.operator for one in hunted), count, "at least 95%"),
        ("kind", sum(one.kind for one in hunted), count, ""),
        ("kind, where a simple one is right", sum(one.kind for one in simple), len(simple), ""),
        ("alarms over sound runs", len(alarms), len(CLEAN), "none"),
    )
    yield "| what | result | share | asked for |\n|---|---|---|---|"
    yield from (f"| {name} | {hits} of {of} | {hits / of:.1%} | {asked} |" for name, hits, of, asked in rows)
    catalogued = sum(bool(one.fault.source) for one in hunted)
    versions = f"day0 {version('day0')}, torch {torch.__version__}, Python {platform.python_version()}"
    yield f"\n{versions}, CPU, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}."
    yield f"Of the faults {catalogued} follow bugs that engines have had.\n"


def _table(hunted: Sequence[Hunted]) -> Iterator[str]:
    yield "## Faults\n\n| fault | what is wrong | model | switch | named | kind | result |"
    yield "|---|---|---|---|---|---|---|"
    for one in hunted:
        fault, named = one.fault, one.named
        said = "nothing" if named is None else _place(named.layer, named.point, named.step)
        kind = "" if named is None else named.kind
        result = "yes" if one.operator else f"wanted {_place(fault.layer, fault.point, fault.step)}"
        if one.operator and not one.kind:
            result = f"yes, but not the kind: {fault.kind}"
        yield f"| `{fault.id}` | {fault.what} | {fault.model} | {fault.how} | {said} | {kind} | {result} |"
    yield ""


def _place(layer: int | None, point: str, step: int) -> str:
    where = f"`{point}`" if layer is None else f"{layer} `{point}`"
    return where if step == 0 else f"{where}, step {step}"


def _clean(alarms: Sequence[Clean]) -> Iterator[str]:
    yield "## Sound runs\n\nRun in another way than the reference, without a fault:\n"
    yield "| variant | models | alarms |\n|---|---|---|"
    for variant, count in Counter(case.variant for case in CLEAN).items():
        models = ", ".join(case.model for case in CLEAN if case.variant == variant)
        raised = [case.model for case in alarms if case.variant == variant]
        yield f"| {variant} ({count}) | {models} | {', '.join(raised) or 'none'} |"


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        (scratch / "faults").mkdir()
        models = Models(scratch / "models")
        PAGE.write_text(page(hunt_all(models, scratch), alarms_of(models, scratch)), "utf-8")


if __name__ == "__main__":
    main()
