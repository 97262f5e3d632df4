"""The device contract: a host keeps it, and a stack that breaks a clause is told which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode, resolve_name

from day0.runtime.device.contract import Breach, breaches
from day0.runtime.device.order import CLAUSES

CPU = torch.device("cpu")
REPO = Path(__file__).resolve().parents[3]

Result = Callable[..., Any]


@pytest.fixture(autouse=True, scope="module")
def unwritten_memory_shows() -> None:
    """Not here: one clause has a tensor of more than 2^31 elements, of which it touches three."""


class Broken(TorchFunctionMode):
    """Replaces one function of torch by its plain name ("softmax", "index_add_")."""

    def __init__(self, name: str, wrong: Result) -> None:
        super().__init__()
        self.name, self.wrong = name, wrong

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if (resolve_name(func) or "").rpartition(".")[2] == self.name:
            return self.wrong(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def found_by(name: str, wrong: Result) -> list[str]:
    with Broken(name, wrong):
        return [breach.clause for breach in breaches(CPU, CLAUSES)]


def test_a_host_keeps_the_contract() -> None:
    assert breaches(CPU, CLAUSES) == []


def ten_bits(x: torch.Tensor) -> torch.Tensor:
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32) if x.dtype == torch.float32 else x


def narrow_sum(func: Result, x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
    if x.dtype == torch.float32:
        return func(x, weight, *rest)
    total = torch.zeros(x.shape[0], weight.shape[0], dtype=x.dtype)
    for column in range(x.shape[1]):
        total += x[:, column, None] * weight[:, column]
    return total


def unstable(func: Result, x: torch.Tensor, **options: Any) -> Any:
    flipped = func(x.flip(-1), **options)
    return type(flipped)((flipped.values, x.shape[-1] - 1 - flipped.indices))


def last_add_wins(func: Result, total: torch.Tensor, axis: int, index: torch.Tensor, rows: torch.Tensor) -> Any:
    return total.index_copy_(axis, index, rows)


FAULTS: dict[str, tuple[str, Result]] = {
    "round-trips": ("to", lambda f, x, *a, **k: f(x, *a, **k) & 0 if x.dtype == torch.uint8 else f(x, *a, **k)),
    "rounds-to-even": (
        "to",
        lambda f, x, *a, **k: (
            (x.view(torch.int32) & ~0xFFFF).view(torch.float32).bfloat16() if torch.bfloat16 in a else f(x, *a, **k)
        ),
    ),
    "subnormal-halves": ("to", lambda f, x, *a, **k: f(x, *a, **k) * (0 if torch.float16 in a else 1)),
    "full-products": ("linear", lambda f, x, w, *a: f(ten_bits(x), ten_bits(w), *a)),
    "wide-sums": ("linear", narrow_sum),
    "batched-products": ("einsum", lambda f, rule, left, right: f(rule, left.transpose(0, 1).reshape(3, 2, 2), right)),
    "masked-softmax": ("softmax", lambda f, x, **k: f(x.clamp_min(-20.0), **k)),
    "functions": ("tanh", lambda f, x: x * (27 + x * x) / (27 + 9 * x * x)),
    "far-angles": ("cos", lambda f, x: f(x - 3.1416 * 2 * torch.round(x / (3.1416 * 2)))),
    "small-roots": ("rsqrt", lambda f, x: f(x + 1e-12)),
    "nan-travels": ("amax", lambda f, x, **k: f(x.nan_to_num(0.0), **k)),
    "running-sums": ("cumsum", lambda f, x, **k: f(x, dim=0)),
    "triangular-systems": ("solve_triangular", lambda f, a, b, **k: f(a, b, upper=False, unitriangular=False)),
    "stable-order": ("sort", unstable),
    "first-maximum": ("argmax", lambda f, x, **k: x.shape[-1] - 1 - f(x.flip(-1), **k)),
    "counts": ("bincount", lambda f, x, **k: f(x)),
    "row-writes": ("index_copy_", lambda f, plane, axis, index, rows: f(plane, axis, index.sort().values, rows)),
    "repeated-adds": ("index_add_", last_add_wins),
    "gathers": ("__getitem__", lambda f, x, i: f(x, i.flip(-1)) if isinstance(i, torch.Tensor) else f(x, i)),
    "views-share-memory": ("view", lambda f, x, *shape: f(x, *shape).clone()),
    "empty-batches": ("cat", lambda f, parts: f([*parts, parts[-1]])),
    "copies-in-order": ("to", lambda f, x, *a, **k: f(x, *a, **k) * (not k.get("non_blocking"))),
    "seeds-repeat": ("rand", lambda f, *shape, generator, **k: f(*shape, **k)),
}
"""For every clause that a host can break, what breaks it."""

NOT_ON_A_HOST = {"events-order-streams", "memory-is-told"}


@pytest.mark.parametrize("clause", FAULTS)
def test_a_fault_is_found_by_its_clause(clause: str) -> None:
    assert clause in found_by(*FAULTS[clause])


def test_indices_of_32_bits_are_found() -> None:
    def wrapped(func: Result, plane: torch.Tensor, axis: int, index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return func(plane, axis, index % (1 << 31), rows)

    assert found_by("index_copy_", wrapped) == ["far-indices"]


def test_every_clause_has_a_fault() -> None:
    assert {clause.name for clause in CLAUSES} == {*FAULTS, "far-indices"} | NOT_ON_A_HOST


def test_what_a_device_lacks_is_a_breach_and_the_rest_is_tried() -> None:
    def missing(func: Result, *args: Any, **options: Any) -> Any:
        raise NotImplementedError("no kernel for this device")

    with Broken("bincount", missing):
        found = breaches(CPU, CLAUSES)
    assert [breach.clause for breach in found] == ["counts"]
    assert found[0] == Breach("counts", found[0].why, "NotImplementedError: no kernel for this device")


def test_every_clause_is_written_down() -> None:
    page = (REPO / "docs" / "device-contract.md").read_text()
    assert [clause.name for clause in CLAUSES if f"`{clause.name}`" not in page] == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.accelerator.is_available(), reason="no accelerator here")
def test_this_machines_accelerator_keeps_the_contract() -> None:
    assert breaches(torch.accelerator.current_accelerator(), CLAUSES) == []


def test_the_reference_answers_do_not_come_from_the_device() -> None:
    """A stack that gives zeros for everything keeps no clause of numbers."""
    with Broken("linear", lambda f, x, w, *a: torch.zeros(x.shape[0], w.shape[0], dtype=x.dtype)):
        assert {"full-products", "wide-sums"} <= {breach.clause for breach in breaches(CPU, CLAUSES)}
    assert functional.linear(torch.ones(1, 2), torch.ones(1, 2)).item() == 2.0
