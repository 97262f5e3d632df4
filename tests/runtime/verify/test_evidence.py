"""The runtime's operators against float64 numpy; and a wrong operator must be caught, whichever it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch

from day0.coverage import Whitelist, load_whitelist, read_whitelist
from day0.coverage.recording import merged, run_record, whitelist_text
from day0.operators import OPERATORS
from day0.runtime.ops.registry import KERNELS
from day0.runtime.verify.case import PLAIN, Cases
from day0.runtime.verify.cases import PREPARE, providers
from day0.runtime.verify.evidence import DTYPES, column, reference_of, tried
from day0.runtime.verify.sizes import CASES
from day0.source.data_files import data_path, load_yaml

RUN_HERE = tuple(name for name in OPERATORS if list(providers(name)))
"""Operators of the vocabulary that the runtime has; the others are names for what it lacks."""

SMALL = 40_000
"""Trials whose sizes multiply to less are quick; the others are run when evidence is recorded."""


def offers() -> list[tuple[str, str]]:
    return [(name, provider) for name in OPERATORS for provider, _ in providers(name)]


def small(cases: Cases) -> Cases:
    sizes = [sizes for sizes in cases.sizes if prod(sizes.values()) < SMALL]
    return Cases(cases.spans, sizes, cases.attributes)


def measured(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    return column(name, list(tried(name, function, torch.device("cpu"), cases=small(CASES[name]))), "here")


def test_every_operator_that_runs_is_measured() -> None:
    assert set(PREPARE) == set(CASES) == set(RUN_HERE)
    assert set(KERNELS) <= set(RUN_HERE)


@pytest.mark.parametrize(("name", "provider"), offers())
def test_small_trials_agree(name: str, provider: str) -> None:
    found = measured(name, dict(providers(name))[provider])
    assert found["status"] == "verified", found["reason"]
    assert found["evidence"]


def spoilt(function: Callable[..., Any], change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """The operator with its first output changed."""

    def wrong(*arguments: Any) -> Any:
        outputs = function(*arguments)
        if isinstance(outputs, tuple):
            return (change(outputs[0]), *outputs[1:])
        return change(outputs)

    return wrong


def last_element_off(output: torch.Tensor) -> torch.Tensor:
    changed = output.clone()
    last = changed.reshape(-1)[-1]
    last += 1 if output.dtype == torch.int64 else output.double().square().mean().sqrt() * 0.15
    return changed


@pytest.mark.parametrize("change", (torch.zeros_like, last_element_off), ids=("zeros", "last element"))
@pytest.mark.parametrize("name", RUN_HERE)
def test_a_wrong_operator_is_not_verified(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    found = measured(name, spoilt(reference_of(name), change))
    assert found["status"] == "unverified"
    assert "trials fail" in found["reason"]


def spanned(cases: Cases) -> Iterator[tuple[str, set[Any]]]:
    for name in cases.spans:
        yield name, {facts[name] for facts in (*cases.sizes, *cases.attributes) if facts.get(name) is not None}


@pytest.mark.parametrize("name", RUN_HERE)
def test_spans_are_measured_at_both_ends_and_at_an_odd_size(name: str) -> None:
    for axis, sizes in spanned(CASES[name]):
        assert len(sizes) >= 2, axis
        assert len(sizes) == 2 or any(size & (size - 1) for size in sizes), f"{axis}: powers of two only"


@pytest.fixture(scope="module")
def shipped() -> Whitelist:
    return load_whitelist()


@pytest.mark.parametrize("name", RUN_HERE)
def test_the_shipped_evidence_is_of_these_trials(name: str, shipped: Whitelist) -> None:
    """Whoever changes the trials records again."""
    cases, contract = CASES[name], OPERATORS[name]
    wanted = {
        (tuple(sorted(sizes.items())), dtype)
        for row in cases.sizes
        for attributes in cases.attributes
        for sizes in ({k: v for k, v in {**row, **attributes}.items() if k in contract.axes},)
        for dtype in (DTYPES if contract.follows_model_dtype else ("float32",))
    }
    columns = {key: column for key, column in shipped.columns.items() if key[0] == name}
    for provider, _ in providers(name):
        column = columns[name, provider, "cpu"]
        assert {(tuple(sorted(row.shape.items())), row.dtype) for row in column.evidence} >= wanted
        assert column.spans == cases.spans
        assert all(row.attributes.get("weight_format") != PLAIN for row in column.evidence)


def test_writing_keeps_what_others_wrote(tmp_path: Path) -> None:
    path = tmp_path / "operator_whitelist.yaml"
    path.write_text(
        "devices: {cpu: {}, npu: {}}\n"
        "entries:\n"
        "- operator: rms_norm\n  provider: acme\n"
        "  devices: {npu: {status: unverified, constraints: {width: {max: 8}}}}\n"
        "- operator: rms_norm\n  provider: day0-reference\n  devices: {npu: {status: unverified}}\n"
    )
    entry = {"operator": "rms_norm", "provider": "day0-reference"}
    entry["devices"] = {"cpu": measured("rms_norm", reference_of("rms_norm"))}
    runs = {"here": run_record({"torch": "2.13.0"}, "make evidence")}
    for _ in "twice":
        path.write_text(whitelist_text(merged(load_yaml(path), [entry], runs)))
    columns = read_whitelist(path).columns
    assert columns["rms_norm", "acme", "npu"].constraints["width"].max == 8
    assert columns["rms_norm", "day0-reference", "npu"].status == "unverified"
    assert columns["rms_norm", "day0-reference", "cpu"].status == "verified"
    assert path.read_text().count("day0-reference") == 1, "recording twice gives one entry"


def test_the_whitelist_is_kept_as_it_is_laid_out() -> None:
    shipped = data_path("operator_whitelist.yaml")
    assert whitelist_text(load_yaml(shipped)) == shipped.read_text()
