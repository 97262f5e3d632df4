"""How an operator's output is judged: by the tolerance of its contract, which constant outputs must fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from day0.operators import OPERATORS, output_tolerance

Judge = Callable[..., None]


def _agrees(name: str, found: torch.Tensor, wanted: Any, *, output: int = 0, dtype: str = "float32") -> None:
    operator = OPERATORS[name]
    contract = operator.outputs[output]
    tolerance = output_tolerance(operator, contract, dtype)
    reference = torch.as_tensor(np.asarray(wanted))
    stored = dtype if contract.dtype == "model" else contract.dtype
    agreement = tolerance.check(found, reference, dtype=stored)
    assert agreement.equal, f"{name}: {agreement.message}"
    if reference.unique().numel() < 2:
        return  # one number throughout cannot be told from a constant
    for constant in (0.0, 1.0, float(reference.double().mean())):
        watermark = torch.full_like(found, constant)
        assert not tolerance.check(watermark, reference).equal, f"{name}: a constant {constant} passes"


@pytest.fixture(scope="session")
def agrees() -> Judge:
    """`agrees(operator, found, wanted, output=0, dtype="float32")` asserts that the contract's tolerance holds."""
    return _agrees


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
