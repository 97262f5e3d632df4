"""Runs every operator of this machine's runtime against float64 numpy and records what was measured.

    python scripts/record_operator_evidence.py            measure all, rewrite operator_whitelist.yaml
    python scripts/record_operator_evidence.py rms_norm   measure some, print, write nothing

A column is verified when every trial is within the operator's tolerance; else it says what failed. Columns of other
providers and devices stay as they are.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from operator_cases import PREPARE, providers
from operator_draw import Draw
from operator_sizes import CASES
from operator_trial import PLAIN

from day0.operators import OPERATORS, Agreement, Operator, output_tolerance
from day0.source.data_files import load_yaml

WHITELIST = Path(__file__).resolve().parent.parent / "operator_whitelist.yaml"
COMMAND = "python scripts/record_operator_evidence.py"
DEVICE, RUN = "cpu", "reference-cpu"
DTYPES = ("float32", "bfloat16", "float16")
HEADER = """\
# Which provider has which operator on which device, under which constraints, and what was measured.
# docs/inspect.md explains the format. The day0 columns are written by scripts/record_operator_evidence.py; those of
# libraries say what their sources claim, for the chips of a family within the constraints, and are measured by nobody.
"""


class _Line(dict):
    """A mapping that is written on one line."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(_Line, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data, True))


Trial = tuple[dict[str, Any], dict[str, Agreement]]
"""Sizes and attributes, and how the worst output agrees in each dtype."""


def trials(name: str, function: Any, served: Sequence[str] = DTYPES) -> Iterator[Trial]:
    """Every trial of one provider."""
    operator, cases = OPERATORS[name], CASES[name]
    dtypes = served if operator.follows_model_dtype else ("float32",)
    for attributes in cases.attributes:
        for sizes in cases.sizes:
            facts = {**sizes, **attributes}
            if facts.get("weight_format") == PLAIN:  # the name of the dtype is the name of the format
                for dtype in dtypes:
                    plain = {**facts, "weight_format": dtype}
                    yield plain, {dtype: try_once(operator, function, plain, dtype)}
            else:
                yield facts, {dtype: try_once(operator, function, facts, dtype) for dtype in dtypes}


def try_once(operator: Operator, function: Any, facts: dict[str, Any], dtype: str) -> Agreement:
    seed = zlib.crc32(repr((operator.name, sorted(facts.items()), dtype)).encode())
    arguments, expected = PREPARE[operator.name](Draw(getattr(torch, dtype), seed), facts)
    outputs = function(*arguments)
    found = outputs if isinstance(outputs, tuple) else (outputs,)
    agreements = [
        output_tolerance(operator, contract, dtype).check(_numpy(output), reference)
        for contract, output, reference in zip(operator.outputs, found, expected, strict=True)
    ]
    return max(agreements, key=lambda agreement: (not agreement.equal, agreement.ratio))


def _numpy(output: torch.Tensor) -> Any:
    return output.numpy() if output.dtype == torch.int64 else output.double().numpy()


def _row(operator: Operator, facts: dict[str, Any], agreements: dict[str, Agreement]) -> _Line:
    row = {
        "shape": {name: facts[name] for name in facts if name in operator.axes},
        "attributes": {name: facts[name] for name in operator.attributes},
        "worst_error": {dtype: float(f"{agreement.worst:.2e}") for dtype, agreement in agreements.items()},
        "ratio": {dtype: float(f"{agreement.ratio:.2e}") for dtype, agreement in agreements.items()},
        "run": RUN,
    }
    return _line({key: value for key, value in row.items() if value != {}})


def _line(row: dict[str, Any]) -> _Line:
    return _Line({key: _Line(value) if isinstance(value, dict) else value for key, value in row.items()})


def column(name: str, function: Any, served: Sequence[str] = DTYPES) -> dict[str, Any]:
    """What the whitelist says of one provider on this device."""
    rows, failures = [], []
    for facts, agreements in trials(name, function, served):
        rows.append(_row(OPERATORS[name], facts, agreements))
        failures += [f"{dtype} {facts}: {found.message}" for dtype, found in agreements.items() if not found.equal]
    for failure in failures:
        print(f"  FAILS {failure}", file=sys.stderr)
    if failures:
        return {"status": "unverified", "reason": f"{len(failures)} trials fail, the first: {failures[0]}"}
    found: dict[str, Any] = {"status": "verified", "spans": list(CASES[name].spans), "evidence": rows}
    constraints = {fact: _Line(bound) for fact, bound in CASES[name].constraints.items()}
    return found | ({"constraints": constraints} if constraints else {})


def entries(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        for provider, function in providers(name):
            found = column(name, function)
            worst = max((max(row["ratio"].values()) for row in found.get("evidence", ())), default=float("nan"))
            print(f"{name:32} {provider:16} {found['status']:10} {worst:.2g} of the allowance", file=sys.stderr)
            yield {"operator": name, "provider": provider, "devices": {DEVICE: found}}


def write(measured: Sequence[dict[str, Any]]) -> None:
    """Put the measured columns into the whitelist and leave everything else in it as it is."""
    document = load_yaml(WHITELIST) or {}
    document.setdefault("devices", {DEVICE: {}})
    versions = {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": np.__version__}
    run = {"versions": _Line(versions), "date": datetime.date.today().isoformat(), "command": COMMAND}
    document["runs"] = {**document.get("runs", {}), RUN: run}
    kept = {(entry["operator"], entry["provider"]): entry for entry in document.get("entries", [])}
    for entry in measured:
        old = kept.get((entry["operator"], entry["provider"]), {"devices": {}})
        kept[entry["operator"], entry["provider"]] = {**entry, "devices": {**old["devices"], **entry["devices"]}}
    rewrite(document | {"entries": list(kept.values())})


def rewrite(document: dict[str, Any]) -> None:
    """Write the whitelist in its one layout: devices, runs, entries in the order of the vocabulary, ours first."""
    order = {name: position for position, name in enumerate(OPERATORS)}
    entries = sorted(document.get("entries", []), key=lambda entry: order[entry["operator"]])
    for found in (found for entry in entries for found in entry["devices"].values()):
        if "constraints" in found:
            found["constraints"] = {fact: _Line(bound) for fact, bound in found["constraints"].items()}
        if rows := found.pop("evidence", ()):
            found["evidence"] = [_line(row) for row in rows]
    devices = {name: _Line(device) for name, device in document["devices"].items()}
    laid_out = {"devices": devices, "runs": document["runs"], "entries": entries}
    text = yaml.dump(laid_out, Dumper=_Dumper, sort_keys=False, width=10_000, default_flow_style=None)
    WHITELIST.write_text(HEADER + text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", choices=[*OPERATORS, []], help="default: all, written to the whitelist")
    chosen = parser.parse_args().operators
    torch.manual_seed(0)
    measured = list(entries(chosen or list(OPERATORS)))
    if not chosen:
        write(measured)


if __name__ == "__main__":
    main()
