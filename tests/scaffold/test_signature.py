"""How kernels are called, by the contracts of the vocabulary."""

from __future__ import annotations

import pytest

from day0.inventory import Fact, OperatorNeed
from day0.operators import OPERATORS
from day0.scaffold.signature import STEP_FACTS, Signature, signature


def signature_of(name: str, **attributes: Fact) -> Signature:
    given = dict.fromkeys(OPERATORS[name].attributes) | attributes
    return signature(name, [OperatorNeed(name, (0,), ("prefill",), {}, given, "bfloat16", ("x",))])


def words(spec: Signature) -> list[str]:
    return [tensor.name for tensor in spec.tensors] + [option.name for option in spec.options]


@pytest.mark.parametrize(
    ("name", "called_with"),
    (
        ("rms_norm", "x weight eps"),
        ("rope_table", "positions rope_pairs theta scaling"),
        ("paged_cache_write", "x slots cache"),
        ("paged_gqa_attention", "q k_cache v_cache starts slots context scale window"),
        (
            "csa_attention",
            "q window_cache compressed_cache ids sinks starts slots compressed_slots context scale window ratio",
        ),
        ("kda_recurrent", "q k v g beta state starts state_slots scale"),
        ("gated_pool", "x gate bias starts entries head_dim overlap"),
        ("mxfp4_dequantize", "packed scale columns group_size dtype"),
        ("cross_attention", "q k v visible scale"),
    ),
)
def test_tensors_then_the_facts_of_the_step_then_keywords(name: str, called_with: str) -> None:
    assert words(signature_of(name)) == called_with.split()


def test_an_attribute_of_a_tensors_name_says_whether_the_tensor_is_there() -> None:
    spec = signature_of("linear", bias=True)
    assert [(tensor.name, tensor.optional) for tensor in spec.tensors] == [
        ("x", False), ("weight", False), ("bias", True),
    ]  # fmt: skip
    assert spec.options == ()


def test_keywords_are_annotated_by_what_the_model_gives() -> None:
    kinds = {option.name: option.kind for option in signature_of("paged_gqa_attention", scale=0.1, window=None).options}
    assert kinds == {"scale": "float", "window": "float | None"}
    needs = [
        OperatorNeed("rms_norm", (0,), ("decode",), {"width": 8}, {"eps": eps}, "bfloat16", ("x",)) for eps in (1, 0.5)
    ]
    assert signature("rms_norm", needs).options[0].kind == "float"


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_can_be_called(name: str) -> None:
    """No two arguments of one name; every axis has a size that an input, a step or a keyword gives."""
    spec = signature_of(name)
    called = words(spec)
    assert len({*called}) == len(called)
    shown = {axis for tensor in spec.tensors for axis in tensor.axes} | {option.name for option in spec.options}
    assert {axis for output in spec.outputs for axis in output.axes} <= shown
    assert {tensor.name for tensor in spec.tensors} - {t.name for t in spec.operator.inputs} <= {*STEP_FACTS}
