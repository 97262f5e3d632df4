"""`--sample` of traces, `--common` and `--model` of comparisons: what each lets pass, and what it must not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from day0.cli.main import main

IDS = ",".join(str((31 * place + 7) % 300) for place in range(12))
COMMON = ["--token-ids", IDS, "--max-new-tokens", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def traces(tiny_qwen3_moe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """REF whole and FEW with four channels of each row, of one prompt."""
    folder = tmp_path_factory.mktemp("flags")
    assert main(["trace", str(tiny_qwen3_moe), str(folder / "ref"), *COMMON]) == 0
    assert main(["trace", str(tiny_qwen3_moe), str(folder / "few"), *COMMON, "--sample", "4"]) == 0
    return folder


def compared(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    capsys.readouterr()
    status = main(["compare", *arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def without(folder: Path, out: Path, *names: str, change: str | None = None) -> str:
    """REF without some tensors, and with one scaled a little."""
    tensors = load_file(folder / "ref.safetensors")
    lines = [json.loads(line) for line in (folder / "ref.jsonl").read_text().splitlines()]
    if change is not None:
        tensors[change] = tensors[change] * 1.01
    save_file({name: tensor for name, tensor in tensors.items() if name not in names}, out.with_suffix(".safetensors"))
    kept = [json.dumps(line) for line in lines if line["name"] not in names]
    out.with_suffix(".jsonl").write_text("\n".join(kept) + "\n")
    return str(out)


def test_a_sample_is_small_keeps_rows_and_stands_for_the_whole(traces: Path, capsys) -> None:
    few, ref = load_file(traces / "few.safetensors"), load_file(traces / "ref.safetensors")
    assert few["layers.0.output"].shape == (12, 4) and few["logits"].shape == ref["logits"].shape
    assert torch.isin(few["layers.0.output"][5], ref["layers.0.output"][5]).all()
    status, found = compared([str(traces / "ref"), str(traces / "few")], capsys)
    assert (status, found["verdict"]) == (0, "equal")


def test_a_sample_finds_what_every_channel_shows(traces: Path, tmp_path: Path, capsys) -> None:
    broken = without(traces, tmp_path / "broken", change="layers.1.mixer_out")
    status, found = compared([str(traces / "few"), broken], capsys)
    assert (status, found["first"]["tensor"]) == (1, "layers.1.mixer_out")


def test_common_passes_over_what_one_side_lacks_and_no_layer_output(traces: Path, tmp_path: Path, capsys) -> None:
    lacks = without(traces, tmp_path / "lacks", "layers.1.ffn_in", "layers.2.mixer_in")
    assert compared([str(traces / "ref"), lacks], capsys)[0] == 4
    assert compared([str(traces / "ref"), lacks, "--common"], capsys)[0] == 0
    for name in ("layers.1.output", "logits"):
        needed = without(traces, tmp_path / "needed", name)
        assert compared([str(traces / "ref"), needed, "--common"], capsys)[0] == 4
    broken = without(traces, tmp_path / "broken", "layers.1.ffn_in", change="layers.1.output")
    assert compared([str(traces / "ref"), broken, "--common"], capsys)[0] == 1


def test_model_measures_the_floor_itself(traces: Path, tiny_qwen3_moe: Path, tmp_path: Path, capsys) -> None:
    status, found = compared([str(traces / "ref"), str(traces / "ref"), "--model", str(tiny_qwen3_moe)], capsys)
    assert (status, found["floor"]) == (0, "measured")
    broken = without(traces, tmp_path / "broken", change="layers.2.ffn_out")
    status, found = compared([str(traces / "ref"), broken, "--model", str(tiny_qwen3_moe)], capsys)
    assert (status, found["first"]["tensor"]) == (1, "layers.2.ffn_out")
    both = ["--model", str(tiny_qwen3_moe), "--floor", str(traces / "ref")]
    assert main(["compare", str(traces / "ref"), str(traces / "ref"), *both]) == 2
