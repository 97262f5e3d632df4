"""The library of references: called as kernels are, cut out whole, and of one mind with the runtime's own."""

from __future__ import annotations

import builtins
import dis
import inspect
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch

from day0.inventory import OperatorNeed
from day0.operators import OPERATORS
from day0.runtime.ops import activation, kda, norm, paged_attention, router
from day0.scaffold.references import LIBRARY, References
from day0.scaffold.signature import signature

MODULES = [path.stem for path in sorted(LIBRARY.glob("*.py")) if path.stem != "__init__"]
REAL = [name for name in OPERATORS if name in References()]


def reference(name: str) -> Any:
    for module in MODULES:
        function = getattr(import_module(f"day0.scaffold.templates.references.{module}"), name, None)
        if function is not None:
            return function
    raise AssertionError(f"no reference of {name}")


def test_most_of_the_vocabulary_has_a_real_reference() -> None:
    text = {name for name in OPERATORS if OPERATORS[name].part not in ("vision", "audio")}
    assert text - {*REAL} == {"moe_router_sparsemixer"}
    assert "vision_attention" in REAL


@pytest.mark.parametrize("name", REAL)
def test_a_reference_is_called_as_its_kernels_are(name: str) -> None:
    contract = OPERATORS[name]
    need = OperatorNeed(name, (0,), ("prefill",), {}, dict.fromkeys(contract.attributes), "bfloat16", ("x",))
    spec = signature(name, [need])
    called = inspect.signature(reference(name)).parameters.values()
    tensors = [p.name for p in called if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    keywords = {p.name for p in called if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert tensors == [tensor.name for tensor in spec.tensors]
    assert keywords == {option.name for option in spec.options}


@pytest.mark.parametrize("name", REAL)
def test_what_is_cut_out_stands_alone(name: str) -> None:
    source = References().source(name)
    assert "day0" not in source
    space: dict[str, Any] = {}
    exec(compile(source, name, "exec"), space)
    assert _looked_up(space[name].__code__) <= {*space, *dir(builtins)}


def _looked_up(code: CodeType) -> set[str]:
    """Names that a function looks up outside of itself, nested functions included."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return names.union(*(_looked_up(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def test_one_name_is_defined_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text("def same():\n    return 1\n")
    with pytest.raises(AssertionError, match="same is there twice"):
        References(tmp_path)


class TestAgainstTheRuntime:
    """The runtime's references were measured against numpy; where both exist they say the same."""

    def test_norms_and_gates(self) -> None:
        x, gate, weight = torch.randn(5, 12), torch.randn(5, 12), torch.randn(12)
        assert torch.equal(reference("rms_norm")(x, weight, eps=1e-5), norm.rms_norm(x, weight, 1e-5))
        assert torch.equal(reference("silu_and_mul")(gate, x), activation.silu_and_mul(gate, x))
        found = reference("situ_and_mul")(gate, x, beta=4.0, linear_beta=25.0)
        torch.testing.assert_close(found, activation.situ_and_mul(gate, x, 4.0, 25.0))

    @pytest.mark.parametrize("window", (None, 3))
    def test_attention(self, window: int | None) -> None:
        q, k, v = torch.randn(6, 4, 8), torch.randn(20, 2, 8), torch.randn(20, 2, 8)
        slots, context = torch.randperm(20).view(2, 10), torch.tensor([7, 0])
        starts = torch.tensor([0, 3, 6])
        found = reference("paged_gqa_attention")(q, k, v, starts, slots, context, scale=0.3, window=window)
        wanted = paged_attention.paged_gqa_attention(q.view(2, 3, 4, 8), k, v, slots, context, 0.3, window)
        torch.testing.assert_close(found, wanted.flatten(0, 1))

    def test_delta_rule(self) -> None:
        q, k, v, g = (torch.randn(6, 2, 4) for _ in range(4))
        beta, state = torch.rand(6, 2), torch.randn(3, 2, 4, 4)
        starts, places = torch.tensor([0, 3, 6]), torch.tensor([2, 0])
        found, states = reference("kda_recurrent")(q, k, v, -g.abs(), beta, state, starts, places, scale=0.5)
        by_sequence = [x.view(2, 3, 2, -1) for x in (q, k, v, -g.abs())]
        wanted, kept = kda.kda_recurrent(*by_sequence, beta.view(2, 3, 2), state[places], 0.5)
        torch.testing.assert_close(found, wanted.flatten(0, 1))
        torch.testing.assert_close(states[places], kept)
        assert torch.equal(states[1], state[1])

    def test_routing(self) -> None:
        logits, bias = torch.randn(9, 16), 0.1 * torch.randn(16)
        facts = {"renormalize": True, "scaling_factor": 2.5, "correction_bias": True, "num_groups": 4, "topk_groups": 2}
        weights, ids = reference("moe_router_topk_sigmoid_bias")(logits, bias, top_k=3, **facts)
        wanted, chosen = router.moe_router_topk_sigmoid_bias(logits, 3, True, 2.5, bias, 4, 2)
        assert torch.equal(ids, chosen)
        torch.testing.assert_close(weights, wanted)
