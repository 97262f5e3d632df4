"""Wrong kernels are refused by the trials that make evidence, right ones are not; in Triton's interpreter on a CPU."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from kernel_mutants import MUTANTS, TRIALS, USED_BY

from day0.runtime.ops import kernels as kernels_package
from day0.runtime.ops.registry import COMPILED
from day0.runtime.verify.evidence import reference_of
from day0.runtime.verify.trial import attempt

FAST = tuple(one for one in MUTANTS if one[0] in ("norm", "gates"))[::4]
KILLED_AT_LEAST = 0.95
FOLDER = Path(kernels_package.__file__).parent


def loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{COMPILED}.{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., dict[str, Any]]]:
    """Functions by (operator's function) of a module, with a text in it replaced by another."""
    kept = {name: module for name, module in sys.modules.items() if name.startswith(COMPILED)}

    def make(module: str, old: str = "", new: str = "") -> dict[str, Any]:
        text = (FOLDER / f"{module}.py").read_text("utf-8")
        assert old in text, f"{module} no longer has {old!r}"
        path = tmp_path / f"{module}.py"
        path.write_text(text.replace(old, new, 1), "utf-8")
        modules = [loaded(module, path), *(loaded(user, FOLDER / f"{user}.py") for user in USED_BY.get(module, ()))]
        found: dict[str, Any] = {}
        for one in modules:
            found |= vars(one)
        return found

    yield make
    for name in [name for name in sys.modules if name.startswith(COMPILED)]:
        del sys.modules[name]
    sys.modules.update(kept)


def faults(functions: dict[str, Any], module: str, dtypes: tuple[str, ...] = ("float32",)) -> list[str]:
    """What the trials have against it; a kernel that raises has not run, which is a fault as well."""
    for operator, function, facts in TRIALS[module]:
        for dtype in dtypes:
            try:
                found = attempt(
                    operator, functions[function], reference_of(operator), facts, dtype, torch.device("cpu")
                ).faults
            except Exception as error:  # whatever a mutant raises
                return [f"{type(error).__name__}: {error}"]
            if found:
                return [f"{operator} {dtype}: {fault}" for fault in found]
    return []


@pytest.mark.parametrize(("module", "what", "old", "new"), FAST, ids=[f"{one[0]}: {one[1]}" for one in FAST])
def test_a_mutant_is_refused(kernels, module: str, what: str, old: str, new: str) -> None:
    assert faults(kernels(module, old, new), module)


@pytest.mark.parametrize("module", ["norm", "gates"])
def test_a_right_kernel_is_not_refused(kernels, module: str) -> None:
    assert faults(kernels(module), module) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("module", TRIALS)
def test_no_right_kernel_is_refused(kernels, module: str) -> None:
    assert faults(kernels(module), module, ("float32", "float16")) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_of_sixty_mutants_nearly_all_are_refused(kernels) -> None:
    assert len(MUTANTS) >= 60
    alive = [f"{module}: {what}" for module, what, old, new in MUTANTS if not faults(kernels(module, old, new), module)]
    assert len(alive) <= (1 - KILLED_AT_LEAST) * len(MUTANTS), alive
