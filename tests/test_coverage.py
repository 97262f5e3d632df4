"""Verdicts follow the whitelist to the letter, and a whitelist that nobody could trust is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from day0.cli.main import main
from day0.coverage import Coverage, Whitelist, judge, load_whitelist, read_whitelist
from day0.errors import InputError
from day0.inventory import OperatorNeed, operators_needed
from day0.operators import OPERATORS
from day0.profile.read import read_profile
from day0.runtime.ops.registry import KERNELS
from day0.source.resolve import recipe_names, resolve

RUN_HERE = ("kimi-k3", "llama-3.1-8b", "mixtral-8x7b", "qwen3-0.6b", "qwen3-30b-a3b")
"""Recipes of which the reference runtime has every operator, at their own sizes."""

RUN = {"versions": {"torch": "2.13.0"}, "date": "2026-09-01", "command": "measure"}


def row(width: int, dtype: str = "bfloat16", **changes: Any) -> dict[str, Any]:
    measured = {"shape": {"tokens": 3, "width": width}, "attributes": {"eps": 1e-6}, "run": "first"}
    return measured | {"worst_error": {dtype: 1e-3}, "ratio": {dtype: 0.2}} | changes


def document(**column: Any) -> dict[str, Any]:
    entry = {"operator": "rms_norm", "provider": "acme", "devices": {"cpu": column}}
    return {"devices": {"cpu": {}, "npu": {"marker": "/no/such/device"}}, "runs": {"first": RUN}, "entries": [entry]}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    def write_yaml(content: Any) -> Path:
        path = tmp_path / f"list{len([*tmp_path.iterdir()])}.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
        return path

    return write_yaml


def need(width: int = 64, dtype: str = "bfloat16", eps: float = 1e-5) -> OperatorNeed:
    return OperatorNeed("rms_norm", (0, 1), ("prefill", "decode"), {"width": width}, {"eps": eps}, dtype, ("norm",))


def verdict(whitelist: Whitelist, wanted: OperatorNeed, device: str = "cpu") -> tuple[str, str | None, str]:
    (found,) = judge([wanted], whitelist, device).verdicts
    return found.status, found.provider, found.reason


class TestVerdicts:
    def test_evidence_at_the_same_sizes_verifies(self, write) -> None:
        whitelist = read_whitelist(write(document(status="verified", evidence=[row(64)])))
        (found,) = judge([need(64)], whitelist, "cpu").verdicts
        assert (found.status, found.provider) == ("verified", "acme")
        (evidence,) = found.evidence
        assert (evidence.device, evidence.command, str(evidence.date)) == ("cpu", "measure", "2026-09-01")

    def test_evidence_elsewhere_does_not(self, write) -> None:
        whitelist = read_whitelist(write(document(status="verified", evidence=[row(64)])))
        assert verdict(whitelist, need(65)) == ("unverified", "acme", "measured with width 64, not 65")
        assert verdict(whitelist, need(64, "float16")) == ("unverified", "acme", "not measured in float16")

    def test_spans_interpolate_and_never_extrapolate(self, write) -> None:
        rows = [row(1), row(100), row(4096, "float32")]
        whitelist = read_whitelist(write(document(status="verified", spans=["width"], evidence=rows)))
        for inside in (1, 63, 100):
            assert verdict(whitelist, need(inside))[0] == "verified"
        status, _, reason = verdict(whitelist, need(101))
        assert status == "unverified" and "width 101" in reason and "1 to 100" in reason

    def test_a_span_is_measured_at_the_needed_words_alone(self, write) -> None:
        shape = {"tokens": 3, "slots": 9, "heads": 4, "kv_heads": 2, "head_dim": 8}
        rows = [row(0, shape=shape, attributes={"scale": 1.0, "window": window}) for window in (None, 4, 16)]
        entry = document(status="verified", spans=["window"], evidence=rows)
        entry["entries"][0]["operator"] = "paged_gqa_attention"
        whitelist = read_whitelist(write(entry))

        def attention(window: int | None) -> OperatorNeed:
            sizes = {"heads": 4, "kv_heads": 2, "head_dim": 8}
            facts = {"scale": 0.5, "window": window}
            return OperatorNeed("paged_gqa_attention", (0,), ("decode",), sizes, facts, "bfloat16", ("x",))

        assert verdict(whitelist, attention(None))[0] == "verified"
        assert verdict(whitelist, attention(9))[0] == "verified"
        assert verdict(whitelist, attention(17))[0] == "unverified"
        del entry["entries"][0]["devices"]["cpu"]["evidence"][0]
        assert verdict(read_whitelist(write(entry)), attention(None))[0] == "unverified"

    def test_operators_that_know_no_dtype_are_covered_in_any(self, write) -> None:
        measured = row(0, "float32", shape={"wanted": 2, "vocab": 9}, attributes={})
        entry = document(status="verified", evidence=[measured])
        entry["entries"][0]["operator"] = "sampling"
        wanted = OperatorNeed("sampling", (), ("decode",), {"vocab": 9}, {}, "bfloat16", ("sampling",))
        assert verdict(read_whitelist(write(entry)), wanted)[0] == "verified"

    def test_a_claim_stays_a_claim(self, write) -> None:
        evidence = [row(64)]
        whitelist = read_whitelist(write(document(status="unverified", reason="seen to work once", evidence=evidence)))
        assert verdict(whitelist, need(64)) == ("unverified", "acme", "seen to work once")
        assert verdict(read_whitelist(write(document(status="unverified"))), need(64))[2] == "claimed, nothing measured"

    @pytest.mark.parametrize(
        ("bounds", "fits", "fails", "says"),
        (
            ({"width": {"max": 64}}, 64, 65, "width 65 is above 64"),
            ({"width": {"min": 64}}, 64, 63, "width 63 is below 64"),
            ({"width": {"multiple_of": 16}}, 48, 40, "width 40 is not a multiple of 16"),
            ({"width": {"one_of": [48, 64]}}, 48, 50, "width 50 is not one of 48, 64"),
        ),
    )
    def test_a_violated_constraint_says_which(self, write, bounds, fits: int, fails: int, says: str) -> None:
        whitelist = read_whitelist(write(document(status="unverified", constraints=bounds)))
        assert verdict(whitelist, need(fits))[0] == "unverified"
        assert verdict(whitelist, need(fails)) == ("constraint", "acme", says)

    def test_constraints_on_words(self, write) -> None:
        bounds = {"dtype": {"one_of": ["float16", "bfloat16"]}}
        whitelist = read_whitelist(write(document(status="unverified", constraints=bounds)))
        assert verdict(whitelist, need())[0] == "unverified"
        assert verdict(whitelist, need(dtype="float32"))[0] == "constraint"

    def test_nobody_is_a_gap_and_says_where_somebody_is(self, write) -> None:
        whitelist = read_whitelist(write(document(status="unverified")))
        assert verdict(whitelist, need(), "npu") == ("gap", None, "only on cpu")
        empty = read_whitelist(write({"devices": {"cpu": {}}}))
        assert verdict(empty, need()) == ("gap", None, "nobody offers it on any device")

    def test_the_best_offer_counts(self, write) -> None:
        content = document(status="unverified")
        for provider, column in (
            ("bounded", {"status": "unverified", "constraints": {"width": {"max": 1}}}),
            ("proven", {"status": "verified", "evidence": [row(64)]}),
        ):
            content["entries"].append({"operator": "rms_norm", "provider": provider, "devices": {"cpu": column}})
        whitelist = read_whitelist(write(content))
        assert verdict(whitelist, need(64))[:2] == ("verified", "proven")
        assert verdict(whitelist, need(65))[0] == "unverified"
        assert whitelist.verified_on("cpu") == {("rms_norm", "proven")}

    def test_evidence_on_the_member_that_is_here_counts_for_the_family(self, write, tmp_path) -> None:
        marker = tmp_path / "marker"
        content = document(status="verified", evidence=[row(64)])
        content["devices"] = {"chip": {"marker": str(marker), "family": "kind"}, "cpu": {}}
        content["entries"][0]["devices"] = {"chip": content["entries"][0]["devices"]["cpu"]}
        whitelist = read_whitelist(write(content))
        assert whitelist.verified_on("kind") == frozenset()
        marker.touch()
        assert len(whitelist.verified_on("kind")) == 1

    def test_a_device_is_found_by_what_its_driver_calls_it(self, write) -> None:
        """Without a marker: a container may hide the driver's files, torch still has the name."""
        content = document(status="verified", evidence=[row(64)])
        chip = {"marker": "/nowhere/a/file", "shows": "ACME X200", "family": "kind"}
        content["devices"] = {"x200": chip, "x20": {**chip, "shows": "ACME X20"}, "cpu": {}}
        content["entries"][0]["devices"] = {"x200": content["entries"][0]["devices"]["cpu"]}
        whitelist = read_whitelist(write(content))
        assert whitelist.verified_on("ACME X200 SXM") == whitelist.verified_on("x200") != frozenset()
        assert whitelist.verified_on("ACME X20") == whitelist.verified_on("ACME X2000") == frozenset()

    def test_counts_and_what_is_lacking(self, write) -> None:
        whitelist = read_whitelist(
            write(document(status="verified", constraints={"width": {"max": 64}}, evidence=[row(64)]))
        )
        coverage = judge([need(64), need(63), need(65)], whitelist, "cpu")
        assert coverage.counts == {"verified": 1, "unverified": 1, "constraint": 1, "gap": 0}
        assert [lack.need.shapes["width"] for lack in coverage.lacking] == [65]

    def test_an_unknown_device_is_refused(self, write) -> None:
        with pytest.raises(InputError, match="no column for device 'tpu'"):
            judge([need()], read_whitelist(write(document(status="unverified"))), "tpu")


class TestDevices:
    def test_a_marker_that_exists_wins_over_a_device_without_one(self, write, tmp_path: Path) -> None:
        assert read_whitelist(write(document(status="unverified"))).present_device() == "cpu"
        content = document(status="unverified")
        content["devices"]["npu"]["marker"] = str(tmp_path)
        assert read_whitelist(write(content)).present_device() == "npu"


class TestOverlay:
    def test_a_vendor_adds_a_device_and_leaves_ours_alone(self, write) -> None:
        ours = read_whitelist(write(document(status="verified", evidence=[row(64)])))
        theirs = {
            "devices": {"tpu": {}},
            "entries": [{"operator": "rms_norm", "provider": "acme", "devices": {"tpu": {"status": "unverified"}}}],
        }
        merged = read_whitelist(write(theirs), under=ours)
        assert verdict(merged, need(64), "cpu")[0] == "verified"
        assert verdict(merged, need(64), "tpu")[0] == "unverified"

    def test_a_column_of_the_user_replaces_ours(self, write) -> None:
        ours = read_whitelist(write(document(status="verified", evidence=[row(64)])))
        merged = read_whitelist(write(document(status="unverified", reason="broken on this board")), under=ours)
        assert verdict(merged, need(64)) == ("unverified", "acme", "broken on this board")

    def test_a_vendor_adds_a_chip_to_a_family_and_measures_on_one(self, write) -> None:
        ours = read_whitelist(
            write(
                {
                    "devices": {"g1": {"family": "gpu", "facts": {"level": 1.0}}},
                    "entries": [
                        {
                            "operator": "rms_norm",
                            "provider": "acme",
                            "devices": {"gpu": {"status": "unverified", "constraints": {"level": {"max": 2.0}}}},
                        }
                    ],
                }
            )
        )
        theirs = {
            "devices": {
                "g2": {"family": "gpu", "facts": {"level": 2.0}},
                "g3": {"family": "gpu", "facts": {"level": 3.0}},
            },
            "runs": {"first": RUN},
            "entries": [
                {
                    "operator": "rms_norm",
                    "provider": "acme",
                    "devices": {"g2": {"status": "verified", "evidence": [row(64)]}},
                }
            ],
        }
        merged = read_whitelist(write(theirs), under=ours)
        assert [verdict(merged, need(64), chip)[0] for chip in ("g1", "g2", "g3")] == [
            "unverified",
            "verified",
            "constraint",
        ]
        assert {key: merged.columns[key] for key in ours.columns} == dict(ours.columns)

    def test_on_the_command_line(self, write, capsys: pytest.CaptureFixture[str]) -> None:
        overlay = write(
            {
                "devices": {"tpu9": {}},
                "entries": [{"operator": "lm_head", "provider": "acme", "devices": {"tpu9": {"status": "unverified"}}}],
            }
        )
        arguments = ["inspect", "recipe:qwen3-0.6b", "--json", "--whitelist", str(overlay), "--device"]
        assert main([*arguments, "tpu9"]) == 1
        found = {
            one["name"]: (one["status"], one["provider"]) for one in json.loads(capsys.readouterr().out)["operators"]
        }
        assert found["lm_head"] == ("unverified", "acme")
        assert found["rms_norm"] == ("gap", None)
        assert main([*arguments, "cpu"]) == 0
        assert json.loads(capsys.readouterr().out)["coverage"]["gap"] == 0


class TestRefusals:
    def changed(self, **changes: Any) -> dict[str, Any]:
        """A sound document with its one evidence row changed; None takes a key out."""
        evidence = {key: value for key, value in (row(64) | changes).items() if value is not None}
        return document(status="verified", evidence=[evidence])

    def refused(self, path: Path) -> str:
        with pytest.raises(InputError) as caught:
            read_whitelist(path)
        assert str(path) in caught.value.where
        return str(caught.value)

    def test_the_sound_document_is_not_refused(self, write) -> None:
        read_whitelist(write(self.changed()))

    def test_verified_without_evidence(self, write) -> None:
        text = self.refused(write(document(status="verified")))
        assert "without evidence" in text and "entry 1 (rms_norm, acme): cpu" in text

    @pytest.mark.parametrize(
        ("changes", "says"),
        (
            ({"shape": {"tokens": 3}}, "does not say width"),
            ({"attributes": {}}, "does not say eps"),
            ({"shape": {"tokens": 3, "width": 64, "depth": 1}}, "unknown key 'depth'"),
            ({"attributes": {"eps": 1e-6, "beta": 1}}, "unknown key 'beta'"),
            ({"run": "second"}, "unknown run 'second'"),
            ({"ratio": {"bfloat16": 1.5}}, "1.5 times what is allowed"),
            ({"worst_error": {"bfloat16": float("nan")}}, "error of nan"),
            ({"colour": "blue"}, "unknown field `colour`"),
            ({"ratio": None}, "missing required field `ratio`"),
            ({"ratio": {"float32": 0.5}}, "error and ratio of every dtype"),
            ({"ratio": {}, "worst_error": {}}, "error and ratio of every dtype"),
            ({"worst_error": {"bfloat16": "small"}}, "got `str`"),
        ),
    )
    def test_evidence_that_proves_nothing(self, write, changes: dict[str, Any], says: str) -> None:
        assert says in self.refused(write(self.changed(**changes)))

    def test_a_failing_measurement_may_be_kept_where_nothing_is_verified(self, write) -> None:
        read_whitelist(
            write(document(status="unverified", reason="too far off", evidence=[row(64, ratio={"bfloat16": 3.0})]))
        )

    @pytest.mark.parametrize(
        ("column", "says"),
        (
            ({"status": "certain"}, "certain"),
            ({"status": "unverified", "notes": "x"}, "unknown field `notes`"),
            ({"status": "unverified", "constraints": {"depth": {"max": 1}}}, "unknown key 'depth'"),
            ({"status": "unverified", "constraints": {"width": {"maximum": 1}}}, "unknown field `maximum`"),
            ({"status": "unverified", "spans": ["tokens"]}, "unknown key 'tokens'"),
        ),
    )
    def test_columns_with_unknown_words(self, write, column: dict[str, Any], says: str) -> None:
        assert says in self.refused(write(document(**column)))

    def test_entries(self, write) -> None:
        sound = document(status="unverified")
        misspelt = copy.deepcopy(sound)
        misspelt["entries"][0]["operator"] = "rmsnorm"
        with pytest.raises(InputError, match="not in the vocabulary") as caught:
            read_whitelist(write(misspelt))
        assert "rms_norm" in caught.value.hint
        twice = copy.deepcopy(sound)
        twice["entries"] *= 2
        assert "given twice" in self.refused(write(twice))
        elsewhere = copy.deepcopy(sound)
        elsewhere["entries"][0]["devices"] = {"abacus": {"status": "unverified"}}
        assert "unknown device 'abacus'" in self.refused(write(elsewhere))
        assert "unknown field `extra`" in self.refused(write(sound | {"extra": 1}))
        assert "entry 1" in self.refused(write(sound | {"entries": ["rms_norm"]}))
        assert "expected" in self.refused(write("- 1\n- 2\n")).lower()


class TestShipped:
    whitelist = load_whitelist()

    def test_every_operator_of_the_runtime_has_an_entry(self) -> None:
        entries = {operator for operator, _, _ in self.whitelist.columns}
        assert entries >= set(KERNELS) & set(OPERATORS)
        assert entries <= set(OPERATORS), "what no kernel has is a gap, not an entry for a word nobody knows"

    def test_it_names_a_device_for_every_machine(self) -> None:
        assert self.whitelist.present_device() in self.whitelist.devices

    @pytest.mark.parametrize("recipe", recipe_names())
    def test_recipes_on_cpu(self, recipe: str) -> None:
        coverage: Coverage = judge(operators_needed(read_profile(resolve(f"recipe:{recipe}"))), self.whitelist, "cpu")
        assert coverage.verdicts
        short = [
            f"{v.need.name} {dict(v.need.shapes)}: {v.reason}" for v in coverage.verdicts if v.status != "verified"
        ]
        assert not short or recipe not in RUN_HERE
