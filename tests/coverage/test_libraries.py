"""What the whitelist that we ship says of other people's libraries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from day0.coverage import Verdict, judge, load_whitelist
from day0.coverage.whitelist import Column
from day0.inventory import OperatorNeed, operators_needed
from day0.operators import OPERATORS
from day0.profile.read import read_profile
from day0.runtime.ops.registry import KERNELS
from day0.source.resolve import resolve

WHITELIST = load_whitelist()
OURS = {kernel.provider for kernels in KERNELS.values() for kernel in kernels}
CHIPS = tuple(name for name, device in WHITELIST.devices.items() if device.family == "cuda")
LIBRARIES = {key: column for key, column in WHITELIST.columns.items() if key[1] not in OURS}


def column_id(key: tuple[str, str, str]) -> str:
    return "-".join(key)


def need(operator: str, dtype: str = "bfloat16", **facts: Any) -> OperatorNeed:
    contract = OPERATORS[operator]
    shapes = {name: value for name, value in facts.items() if name in contract.model_axes}
    attributes = {name: value for name, value in facts.items() if name in contract.attributes}
    return OperatorNeed(operator, (0,), contract.phases, shapes, attributes, dtype, ("x",))


def verdict(wanted: OperatorNeed, device: str) -> Verdict:
    return judge([wanted], WHITELIST, device).verdicts[0]


def test_there_are_libraries_and_chips() -> None:
    assert {provider for _, provider, _ in LIBRARIES} >= {
        *("torch", "fla", "flashinfer", "flashmla", "flash-attn", "deep_gemm", "sgl-kernel", "triton_kernels"),
        *("mamba-ssm", "causal-conv1d", "tilelang"),
    }
    assert set(CHIPS) >= {"a100", "h100", "h200", "b200"}


@pytest.mark.parametrize(("key", "column"), LIBRARIES.items(), ids=map(column_id, LIBRARIES))
def test_a_claim_has_a_source_and_no_evidence(key: tuple[str, str, str], column: Column) -> None:
    assert column.status == "unverified" and not column.evidence
    assert "not measured" in column.reason
    assert column.source, "where is this claimed?"


@pytest.mark.parametrize("key", LIBRARIES, ids=column_id)
def test_some_chip_meets_what_is_demanded_of_it(key: tuple[str, str, str]) -> None:
    _, _, place = key
    bound = LIBRARIES[key].constraints.get("capability")
    chips = [chip for chip in CHIPS if place in (chip, WHITELIST.devices[chip].family)]
    capabilities = [WHITELIST.devices[chip].facts["capability"] for chip in chips]
    assert bound is None or any(bound.refusal("capability", capability) is None for capability in capabilities)


MLA = {"heads": 96, "latent_dim": 512, "rope_dim": 64, "cached_dim": 576, "scale": 0.07}
SPARSE = {**MLA, "heads": 128, "chosen": 2048, "sinks": False}
KDA = {"heads": 96, "head_dim": 128, "value_dim": 128, "scale": 0.09}
CONV = {"width": 12288, "taps": 4, "past_taps": 3, "activation": "silu"}
GQA = {"heads": 8, "kv_heads": 4, "head_dim": 256, "scale": 0.1, "window": None}
EXPERTS = {"experts": 64, "top_k": 8, "expert_in": 2048, "expert_width": 1024, "activation": "silu"}


@pytest.mark.parametrize(
    ("operator", "facts", "change", "says"),
    (
        ("paged_mla_attention", MLA, {"latent_dim": 256}, "latent_dim 256 is not one of 512"),
        ("sparse_mla_attention", SPARSE, {"heads": 32}, "flashmla: heads 32 is not one of 64, 128"),
        ("kda_chunk", KDA, {"head_dim": 512}, "fla: head_dim 512 is above 256"),
        ("causal_conv1d", CONV, {"activation": "gelu"}, "causal-conv1d: activation gelu"),
        ("paged_gqa_attention", GQA, {"head_dim": 512}, "flash-attn: head_dim 512 is above 256"),
        ("routed_experts", EXPERTS | {"weight_format": "mxfp4"}, {"activation": "situ"}, "flashinfer: activation situ"),
    ),
)
def test_constraints_bite_and_are_named(
    operator: str, facts: dict[str, Any], change: dict[str, Any], says: str
) -> None:
    """On a chip for which nothing is measured, so that claims alone speak."""
    assert verdict(need(operator, **facts), "h100").status == "unverified"
    found = verdict(need(operator, **facts | change), "h100")
    assert found.status == "constraint"
    assert says in found.reason


def test_attention_in_float32_is_refused() -> None:
    found = verdict(replace(need("paged_gqa_attention", **GQA), dtype="float32"), "h100")
    assert found.status == "constraint" and "dtype float32" in found.reason


@pytest.mark.parametrize("chip", CHIPS)
def test_what_the_newest_blueprint_lacks_everywhere(chip: str) -> None:
    coverage = judge(operators_needed(read_profile(resolve("recipe:kimi-k3"))), WHITELIST, chip)
    gaps = {one.need.name for one in coverage.verdicts if one.status == "gap"}
    assert gaps == {"attention_residual_mix"} | ({"situ_and_mul"} if chip != "h200" else set())
    bound = {one.need.name for one in coverage.verdicts if one.status == "constraint"}
    assert bound == (set() if chip in ("b200", "b300") else {"routed_experts"})
    verified = {one.need.name for one in coverage.verdicts if one.status == "verified"}
    assert {"paged_mla_attention", "kda_recurrent"} <= verified if chip == "h200" else not verified
