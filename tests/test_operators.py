"""The vocabulary is consistent, and a tolerance lets rounding pass and nothing else."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from day0.operators import (
    ATTRIBUTES,
    AXES,
    CHAIN,
    EXACT,
    MATMUL,
    OPERATORS,
    POINTWISE,
    RECURRENCE,
    REDUCTION,
    VARIABLE_AXES,
    Tolerance,
    output_tolerance,
    root_mean_square,
)

SIZES = (1, 63, 100)


def test_every_axis_is_explained_and_every_explanation_is_used() -> None:
    used = {axis for operator in OPERATORS.values() for axis in operator.axes}
    assert used == set(AXES)
    assert set(AXES) >= VARIABLE_AXES


def test_every_attribute_is_explained_and_every_explanation_is_used() -> None:
    assert {name for operator in OPERATORS.values() for name in operator.attributes} == set(ATTRIBUTES)


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_a_contract_is_complete(operator) -> None:
    assert operator.meaning and operator.source and operator.phases and operator.inputs and operator.outputs
    names = [tensor.name for tensor in (*operator.inputs, *operator.outputs)]
    assert len(names) == len(set(names)), "a tensor is named twice"
    assert all(tensor.name.isidentifier() and tensor.axes for tensor in (*operator.inputs, *operator.outputs))
    for output in operator.outputs:
        for dtype in ("float32", "bfloat16", "float16"):
            assert output_tolerance(operator, output, dtype).share < 0.1


def test_an_output_of_fixed_dtype_is_judged_by_that_dtype() -> None:
    router = OPERATORS["moe_router_topk_softmax"]
    weights, ids = router.outputs
    assert output_tolerance(router, weights, "bfloat16") == REDUCTION["float32"]
    assert output_tolerance(router, ids, "bfloat16") == Tolerance(0.0, 0.0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", (1e-30, 1.0, 1e30))
def test_rounding_passes_and_watermarks_fail_at_every_scale(size: int, scale: float) -> None:
    reference = np.random.default_rng(size).standard_normal((3, size)) * scale
    rounded = reference.astype(np.float32).astype(np.float64)
    for family in (POINTWISE, REDUCTION, MATMUL, CHAIN, RECURRENCE):
        assert family["float32"].check(rounded, reference).equal
        for tolerance in family.values():
            assert tolerance.check(reference * 0.0, reference).failure == "value"
            assert tolerance.check(np.full_like(reference, reference.mean()), reference).failure == "value"


def test_the_error_is_reported_where_it_is_worst_against_its_allowance() -> None:
    reference = np.array([[1.0, 1000.0], [1.0, 1.0]])
    actual = reference + np.array([[0.0, 0.5], [0.0, 0.4]])
    agreement = Tolerance(rtol=1e-3, share=1e-6).check(actual, reference)
    assert agreement.failure == "value"
    # 0.5 is within rtol of 1000; 0.4 is far from it at 1.
    assert agreement.index == (1, 1)
    size = root_mean_square(reference)
    assert agreement.worst == pytest.approx(0.5 / size)
    assert agreement.ratio == pytest.approx(0.4 / (1e-3 + 1e-6 * size))


def test_checks_come_in_order_shape_dtype_finite_value() -> None:
    reference = torch.ones(2, 3)
    tolerance = MATMUL["float32"]
    assert tolerance.check(torch.ones(3, 2), reference).failure == "shape"
    assert tolerance.check(torch.full((2, 3), math.nan).double(), reference, dtype="float32").failure == "dtype"
    broken = torch.ones(2, 3)
    broken[1, 2] = math.nan
    assert tolerance.check(broken, reference).index == (1, 2)
    broken[0, 1] = math.inf
    found = tolerance.check(broken, reference, dtype="float32")
    assert (found.failure, found.index) == ("nonfinite", (0, 1))
    assert tolerance.check(reference, broken).failure == "nonfinite", "a broken reference proves nothing"


def test_low_precision_outputs_are_compared_without_conversion() -> None:
    reference = torch.randn(63, 5, generator=torch.Generator().manual_seed(0))
    assert POINTWISE["bfloat16"].check(reference.bfloat16(), reference, dtype="bfloat16").equal
    assert POINTWISE["float32"].check(reference.bfloat16(), reference).failure == "value"


def test_exact_means_exact() -> None:
    exact = EXACT["float32"]
    reference = np.array([1.0, 0.0, -3.0])
    assert exact.check(reference.copy(), reference).equal
    off = exact.check(np.nextafter(reference, 9.0), reference)
    assert off.failure == "value" and off.ratio == math.inf
    ids = torch.tensor([3, 1, 2])
    assert exact.check(ids, ids.clone()).equal
    assert not exact.check(ids, ids.flip(0)).equal


def test_zeros_allow_only_zeros_and_nothing_is_equal_to_nothing() -> None:
    zeros = np.zeros((2, 2))
    assert MATMUL["bfloat16"].check(zeros.copy(), zeros).equal
    assert MATMUL["bfloat16"].check(zeros + 1e-30, zeros).failure == "value"
    assert MATMUL["float32"].check(np.zeros((0, 4)), np.zeros((0, 4))).equal
    scalar = np.array(2.0)
    assert MATMUL["float32"].check(scalar.copy(), scalar).equal


def test_relative_tolerance_alone_is_refused() -> None:
    with pytest.raises(AssertionError):
        Tolerance(rtol=1e-3, share=0.0)
