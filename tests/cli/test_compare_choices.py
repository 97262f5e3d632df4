"""`day0 compare` with choices: what kind of flip each is, and the three errors at the end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from day0.cli.main import main

IDS = ",".join(str((29 * place + 5) % 300) for place in range(20))
COMMON = ["--token-ids", IDS, "--max-new-tokens", "2", "--device", "cpu"]


@pytest.fixture(scope="module")
def flipped(tiny_qwen3_moe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """REF; FREE and REPLAYED of the same model with two experts' router rows exchanged in its last layer."""
    folder = tmp_path_factory.mktemp("flipped")
    shutil.copytree(tiny_qwen3_moe, folder / "model")
    shard = next(path for path in sorted((folder / "model").glob("*.safetensors")) if _router(path))
    tensors = load_file(shard)
    tensors[_router(shard)[-1]][:2] = tensors[_router(shard)[-1]][:2].flip(0)
    save_file(tensors, shard, metadata={"format": "pt"})
    assert main(["trace", str(tiny_qwen3_moe), str(folder / "ref"), *COMMON]) == 0
    assert main(["trace", str(folder / "model"), str(folder / "free"), *COMMON]) == 0
    replay = ["--replay", str(folder / "ref")]
    assert main(["trace", str(folder / "model"), str(folder / "replayed"), *COMMON, *replay]) == 0
    return folder


def document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    status = main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def _router(shard: Path) -> list[str]:
    return sorted(name for name in load_file(shard) if name.endswith("mlp.gate.weight"))


def test_a_wrong_choice_is_a_fault_and_the_three_errors_are_told(flipped: Path, capsys) -> None:
    arguments = ["compare", str(flipped / "ref"), str(flipped / "free"), "--replayed", str(flipped / "replayed")]
    status, report = document(arguments, capsys)
    assert (status, report["first"]["operator"]) == (1, "ffn.router_logits")
    errors = report["logit_errors"]
    assert errors["free"] > errors["replayed"] >= 0
    assert errors["choices"] == pytest.approx((errors["free"] ** 2 - errors["replayed"] ** 2) ** 0.5)
    (choice,) = [one for one in report["decisions"] if one["faults"] and one["step"] == 0]
    assert choice["tensor"].endswith("ffn.topk_ids") and choice["gap"] > choice["noise"] > 0
    assert main(arguments) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert f"errors of the logits: free {errors['free']:.2e}, replayed {errors['replayed']:.2e}, choices" in text
    assert f"{choice['faults']} faults" in text and "largest gap" in text


def test_choices_of_a_coarser_type_are_near_ties_at_most(tiny_qwen3_moe: Path, flipped: Path, capsys) -> None:
    coarse = [*COMMON, "--dtype", "bfloat16"]
    assert main(["trace", str(tiny_qwen3_moe), str(flipped / "coarse"), *coarse]) == 0
    replay = ["--replay", str(flipped / "ref")]
    assert main(["trace", str(tiny_qwen3_moe), str(flipped / "coarse-replayed"), *coarse, *replay]) == 0
    sides = [str(flipped / "ref"), str(flipped / "coarse")]
    more = ["--floor", str(flipped / "coarse-replayed"), "--replayed", str(flipped / "coarse-replayed")]
    status, report = document(["compare", *sides, *more], capsys)
    assert report["first"] is None and status in (0, 4), report["first"]
    assert all(one["faults"] == one["unknown"] == 0 for one in report["decisions"])
    assert json.dumps(report["logit_errors"]).count("null") == 0
