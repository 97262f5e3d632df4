"""Pieces of the document that need odd input: order of findings, sizes nobody can know."""

from __future__ import annotations

from dataclasses import replace

from day0.coverage import Coverage
from day0.errors import Finding
from day0.inventory import take_inventory
from day0.profile.profile import MultiTokenPrediction
from day0.profile.read import read_profile
from day0.profile.tensors import TensorComparison
from day0.report.inspect_document import all_findings, expert_facts, mtp_facts, parameter_facts, weight_facts
from day0.report.inspect_next import next_steps
from day0.source.model_files import TensorHeader
from day0.source.resolve import resolve

FILES = resolve("recipe:kimi-k3")
PROFILE = read_profile(FILES)


def test_the_gravest_finding_comes_first() -> None:
    files = replace(FILES, findings=(Finding("a", "note", "", ""), Finding("b", "warning", "", "")))
    profile = replace(PROFILE, unused_config_keys=("x.y",), findings=(Finding("c", "error", "", ""),))
    comparison = TensorComparison(("m",) * 5, (), (Finding("d", "warning", "", ""),))
    found = all_findings(files, profile, comparison, take_inventory(profile))
    assert [finding.code for finding in found] == ["c", "tensors-missing", "b", "d", "config-keys-unused", "a"]
    assert found[1].message == "5 expected and not there: m, m, m and 2 more"
    assert "x.y" in found[4].message


def test_headers_count_packed_bytes_under_the_packing() -> None:
    headers = {
        "packed": TensorHeader("U8", (4, 8), "s", 0, 32),
        "scale": TensorHeader("U8", (4, 1), "s", 32, 36),
        "plain": TensorHeader("BF16", (5,), "s", 36, 46),
    }
    facts = weight_facts(replace(FILES, tensors=headers, shards=("s",)), PROFILE)
    assert facts.formats == {"mxfp4": 36, "bf16": 10}
    assert (facts.bytes, facts.tensors, facts.shards, facts.counted_from) == (46, 3, 1, "headers")
    unpacked = weight_facts(replace(FILES, tensors=headers), replace(PROFILE, quantization=None))
    assert unpacked.formats == {"u8": 36, "bf16": 10}


def test_without_headers_and_family_nothing_is_invented() -> None:
    unknown = replace(PROFILE, family=None, layers=())
    facts = weight_facts(FILES, unknown)
    assert (facts.bytes, facts.tensors, facts.formats, facts.counted_from) == (None, None, {}, "nothing")
    assert parameter_facts(unknown) is None
    assert expert_facts(unknown) is None


def test_layers_that_predict_ahead_are_told_beside_the_total() -> None:
    assert mtp_facts(PROFILE, None) is None
    with_mtp = replace(PROFILE, mtp=MultiTokenPrediction(PROFILE.layers[:2], shares_embedding=False))
    assert mtp_facts(with_mtp, None) == {"layers": 2, "shares_embedding": False, "params": None}


def test_next_steps_do_not_send_a_broken_model_to_the_planner() -> None:
    coverage = Coverage("cpu", ())
    broken = next_steps("m", None, coverage, (Finding("tensors-missing", "error", "", ""),), has_weights=True)
    assert len(broken) == 1 and "Complete the checkpoint" in broken[0]
