"""Trace comparison: the first deviation in execution order, and missing data that never passes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from day0.numerics.compare import compare_traces, execution_order, layer_and_operator
from day0.numerics.metrics import Allowance


def within(limit: float) -> Callable[[str], Allowance]:
    return lambda name: Allowance(limit)


def trace(num_layers: int = 3) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    names = ["embed"]
    for layer in range(num_layers):
        names += [f"layers.{layer}.{point}" for point in ("mixer_in", "mixer_out", "ffn_in", "ffn_out", "output")]
    names += ["norm", "logits"]
    return {name: torch.randn(5, 8, generator=generator) for name in names}


def test_equal_traces() -> None:
    found = compare_traces(trace(), trace(), within(1e-4))
    assert found.verdict == "equal" and found.first is None
    assert {node.verdict for node in found.nodes} == {"same"}
    assert found.num_checked == 18


def test_the_first_deviation_is_the_first_in_execution_order() -> None:
    candidate = trace()
    for name in ("logits", "layers.2.mixer_in", "layers.1.ffn_out", "layers.1.output"):
        candidate[name] = candidate[name] + 0.1
    found = compare_traces(candidate, trace(), within(1e-4))
    assert found.verdict == "deviates"
    assert found.first is not None
    assert (found.first.tensor, found.first.layer, found.first.operator) == ("layers.1.ffn_out", 1, "ffn_out")
    assert found.first.kind == "deviation"


def test_within_tolerance_is_said_as_such() -> None:
    candidate = {name: tensor * (1 + 1e-6) for name, tensor in trace().items()}
    found = compare_traces(candidate, trace(), within(1e-4))
    assert found.verdict == "equal"
    assert {node.verdict for node in found.nodes} == {"within tolerance"}


def test_missing_data_is_incomplete_and_listed() -> None:
    candidate = trace()
    del candidate["layers.0.output"]
    candidate["extra"] = torch.ones(2)
    found = compare_traces(candidate, trace(), within(1e-4))
    assert found.verdict == "incomplete"
    assert found.missing_candidate == ("layers.0.output",)
    assert found.missing_reference == ("extra",)


def test_all_missing_or_all_empty_is_never_equal() -> None:
    assert compare_traces({}, trace(), within(1.0)).verdict == "incomplete"
    assert compare_traces({}, {}, within(1.0)).verdict == "incomplete"
    constant = {"logits": torch.zeros(4, 4)}
    assert compare_traces(constant, constant, within(1.0)).verdict == "incomplete"


def test_not_finite_deviates_whatever_the_tolerance() -> None:
    candidate = trace()
    candidate["layers.1.mixer_out"][3] = float("nan")
    found = compare_traces(candidate, trace(), within(1e9))
    assert found.first is not None
    assert (found.first.tensor, found.first.kind, found.first.position) == ("layers.1.mixer_out", "not-finite", 3)
    assert found.first.error is None


def test_names_sort_by_layer_number_then_point() -> None:
    names = [
        "logits",
        "layers.10.mixer_in",
        "layers.2.output",
        "layers.2.mixer.q",
        "layers.2.mixer_in",
        "norm",
        "embed",
    ]
    assert sorted(names, key=execution_order) == [
        "embed", "layers.2.mixer_in", "layers.2.mixer.q", "layers.2.output", "layers.10.mixer_in", "norm", "logits",
    ]  # fmt: skip
    assert layer_and_operator("layers.10.mixer.q") == (10, "mixer.q")
    assert layer_and_operator("logits") == (None, "logits")


def test_the_median_row_forgives_a_minority_and_no_more() -> None:
    def judged(num_bad: int) -> str:
        candidate = trace()
        candidate["logits"][:num_bad] *= -1
        return compare_traces(candidate, trace(), lambda name: Allowance(1e-4, "median")).verdict

    assert [judged(count) for count in (1, 2, 3, 5)] == ["equal", "equal", "deviates", "deviates"]
