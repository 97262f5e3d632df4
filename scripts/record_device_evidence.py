"""Runs the Triton kernels on this machine's accelerator against float64 numpy, as record_operator_evidence.py does.

python scripts/record_device_evidence.py measure evidence.json [OPERATOR ...]    # on the machine with the device
python scripts/record_device_evidence.py merge evidence.json h200                # into operator_whitelist.yaml
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import record_operator_evidence as evidence
import torch
import triton

from day0.operators import OPERATORS
from day0.runtime.ops.registry import KERNELS, TRITON
from day0.source.data_files import load_yaml

OURS = tuple(name for name, kernels in KERNELS.items() if any(kernel.provider == TRITON for kernel in kernels))
COMMAND = "python scripts/record_device_evidence.py measure"


def on_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its tensors on the accelerator and its outputs back on the CPU."""
    device = torch.accelerator.current_accelerator()

    def run(*arguments: Any) -> Any:
        found = function(*(_moved(x, device) for x in arguments))
        return tuple(x.cpu() for x in found) if isinstance(found, tuple) else found.cpu()

    return run


def _moved(argument: Any, device: Any) -> Any:
    if isinstance(argument, (list, tuple)):
        return [_moved(one, device) for one in argument]
    return argument.to(device) if isinstance(argument, torch.Tensor) else argument


def measured(name: str) -> dict[str, Any]:
    """The column of one operator."""
    kernel = next(kernel for kernel in KERNELS[name] if kernel.provider == TRITON)
    device = torch.accelerator.current_accelerator()
    served = [dtype for dtype in evidence.DTYPES if kernel.unmet(device, getattr(torch, dtype)) is None]
    return json.loads(json.dumps(evidence.column(name, on_device(kernel.function), served), default=dict))


def measured_or_why_not(name: str) -> dict[str, Any]:
    try:
        return measured(name)
    except Exception as error:  # of whatever kind: a kernel that does not run has no evidence
        return {"status": "unverified", "reason": f"{type(error).__name__}: {error}"}


def measure(target: Path, names: list[str]) -> None:
    """Operators in processes of their own, since most of the time is the compiler's."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        columns = dict(zip(names, pool.map(measured_or_why_not, names), strict=True))
    versions = {"torch": str(torch.__version__), "triton": triton.__version__, "numpy": np.__version__}
    run = {"versions": versions, "date": datetime.date.today().isoformat(), "command": COMMAND}
    target.write_text(json.dumps({"run": run, "columns": columns}))
    for name, column in columns.items():
        worst = max((max(row["ratio"].values()) for row in column.get("evidence", ())), default=float("nan"))
        print(f"{name:32} {column['status']:12} {worst:.2g} of the allowance {column.get('reason', '')[:300]}")


def merge(source: Path, device: str) -> None:
    """Put the columns into the whitelist as those of a device, under a run named after it."""
    found = json.loads(source.read_text())
    document = load_yaml(evidence.WHITELIST)
    name = f"triton-{device}"
    document["runs"][name] = {**found["run"], "versions": evidence._Line(found["run"]["versions"])}
    kept = {(entry["operator"], entry["provider"]): entry for entry in document["entries"]}
    for operator, column in found["columns"].items():
        for row in column.get("evidence", ()):
            row["run"] = name
        entry = kept.setdefault((operator, TRITON), {"operator": operator, "provider": TRITON, "devices": {}})
        entry["devices"][device] = column
    evidence.rewrite(document | {"entries": list(kept.values())})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("measure", "merge"))
    parser.add_argument("file", type=Path)
    parser.add_argument("rest", nargs="*", help="operators to measure (all), or the device to merge for")
    arguments = parser.parse_args()
    if arguments.action == "merge":
        (device,) = arguments.rest
        merge(arguments.file, device)
    else:
        assert set(arguments.rest) <= OPERATORS.keys(), "operators of the vocabulary"
        measure(arguments.file, arguments.rest or list(OURS))


if __name__ == "__main__":
    main()
