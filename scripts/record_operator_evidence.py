"""Runs every operator of this machine's runtime against float64 numpy and records what was measured.

    python scripts/record_operator_evidence.py            measure all, rewrite operator_whitelist.yaml
    python scripts/record_operator_evidence.py rms_norm   measure some, print, write nothing

A column is verified when every trial is right (`day0 ops verify` runs the same); else it says what failed. Columns of
other providers and devices stay as they are.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from day0.coverage.recording import merged, run_record, whitelist_text
from day0.operators import OPERATORS
from day0.runtime.verify.cases import providers
from day0.runtime.verify.evidence import column, tried
from day0.runtime.verify.sizes import CASES
from day0.source.data_files import load_yaml

WHITELIST = Path(__file__).resolve().parent.parent / "operator_whitelist.yaml"
COMMAND = "python scripts/record_operator_evidence.py"
DEVICE, RUN = "cpu", "reference-cpu"


def measured(name: str, function: Any) -> dict[str, Any]:
    """What the whitelist says of one provider on this machine's CPU."""
    trials = list(tried(name, function, torch.device("cpu"), cases=CASES[name]))
    for fault in (fault for one in trials for fault in one.faults):
        print(f"  FAILS {fault}", file=sys.stderr)
    return column(name, trials, RUN)


def entries(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        for provider, function in providers(name):
            found = measured(name, function)
            worst = max((max(row["ratio"].values()) for row in found.get("evidence", ())), default=float("nan"))
            print(f"{name:32} {provider:16} {found['status']:10} {worst:.2g} of the allowance", file=sys.stderr)
            yield {"operator": name, "provider": provider, "devices": {DEVICE: found}}


def write(columns: Sequence[dict[str, Any]]) -> None:
    """Put the measured columns into the whitelist and leave everything else in it as it is."""
    versions = {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": np.__version__}
    document = load_yaml(WHITELIST) or {}
    document.setdefault("devices", {DEVICE: {}})
    WHITELIST.write_text(whitelist_text(merged(document, columns, {RUN: run_record(versions, COMMAND)})), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", choices=[*OPERATORS, []], help="default: all, written to the whitelist")
    chosen = parser.parse_args().operators
    torch.manual_seed(0)
    columns = list(entries(chosen or list(OPERATORS)))
    if not chosen:
        write(columns)


if __name__ == "__main__":
    main()
