"""`day0 trace` and `day0 compare` by their command lines: files, documents, exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from day0.cli.main import main

IDS = ",".join(str((29 * place + 5) % 300) for place in range(20))


@pytest.fixture(scope="module")
def traced(tiny_qwen3_moe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """REF, and BF with REF's choices, in one folder."""
    folder = tmp_path_factory.mktemp("traces")
    common = ["--token-ids", IDS, "--max-new-tokens", "2", "--device", "cpu"]
    assert main(["trace", str(tiny_qwen3_moe), str(folder / "ref"), *common]) == 0
    coarse = ["--dtype", "bfloat16", "--replay", str(folder / "ref")]
    assert main(["trace", str(tiny_qwen3_moe), str(folder / "bf"), *common, *coarse]) == 0
    return folder


def document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    capsys.readouterr()
    status = main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def changed(traced: Path, tmp_path: Path, name: str, change) -> Path:
    """A copy of REF with one tensor changed; None takes it out, its line too."""
    tensors = load_file(traced / "ref.safetensors")
    lines = (traced / "ref.jsonl").read_text().splitlines()
    result = change(tensors.pop(name))
    if result is None:
        lines = [line for line in lines if json.loads(line)["name"] != name or json.loads(line)["step"]]
    else:
        tensors[name] = result
    save_file(tensors, tmp_path / "other.safetensors")
    (tmp_path / "other.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "other"


def test_a_trace_has_the_files_and_fields_of_the_contract(traced: Path) -> None:
    tensors = load_file(traced / "ref.safetensors")
    assert tensors["embed"].shape[0] == 20 and tensors["logits"].dtype == torch.float32
    assert {"layers.0.output", "generated_ids", "input_ids", "steps.1.logits"} <= set(tensors)
    lines = [json.loads(line) for line in (traced / "ref.jsonl").read_text().splitlines()]
    fields = {"name", "order", "layer", "operator", "step", "rank", "shard_axis", "dtype", "shape", "strides"}
    assert all(fields <= set(line) for line in lines)
    assert [line["order"] for line in lines] == list(range(len(lines)))
    first = next(line for line in lines if line["name"] == "layers.1.mixer_in")
    measured = tensors["layers.1.mixer_in"].double()
    assert first["statistics"]["rms"] == pytest.approx(float(measured.square().mean().sqrt()))
    assert json.loads((traced / "ref.json").read_text())["generated_ids"] == tensors["generated_ids"].tolist()


def test_a_trace_equals_itself(traced: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = document(["compare", str(traced / "ref"), str(traced / "ref.safetensors")], capsys)
    assert (status, found["verdict"], found["first"]) == (0, "equal", None)
    assert found["logits"]["top_k_agreement"] == 1.0 and found["missing"] == {"a": [], "b": []}


def test_a_scaled_tensor_is_named_with_its_kind(traced: Path, tmp_path: Path, capsys) -> None:
    other = changed(traced, tmp_path, "layers.2.mixer_out", lambda tensor: tensor * 1.001)
    arguments = ["compare", str(traced / "ref"), str(other), "--floor", str(traced / "bf")]
    status, found = document(arguments, capsys)
    assert (status, found["floor"]) == (1, "measured")
    assert {key: found["first"][key] for key in ("layer", "operator", "kind")} == {
        "layer": 2, "operator": "mixer_out", "kind": "scale",
    }  # fmt: skip


def test_one_token_is_named(traced: Path, tmp_path: Path, capsys) -> None:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        tensor[13] += 1
        return tensor

    status, found = document(["compare", str(traced / "ref"), str(changed(traced, tmp_path, "embed", change))], capsys)
    assert status == 1 and (found["first"]["tensor"], found["first"]["position"]) == ("embed", 13)


@pytest.mark.parametrize("swapped", [False, True], ids=["candidate", "reference"])
def test_a_missing_tensor_never_passes(traced: Path, tmp_path: Path, capsys, swapped: bool) -> None:
    sides = [str(traced / "ref"), str(changed(traced, tmp_path, "layers.1.ffn_in", lambda tensor: None))]
    status, found = document(["compare", *(sides[::-1] if swapped else sides)], capsys)
    assert (status, found["verdict"]) == (4, "incomplete")
    assert found["missing"]["a" if swapped else "b"] == ["layers.1.ffn_in"]


def test_another_prompt_is_wrong_input(traced: Path, tmp_path: Path, capsys) -> None:
    other = changed(traced, tmp_path, "input_ids", lambda ids: ids[1:].clone())
    assert main(["compare", str(traced / "ref"), str(other)]) == 2
    assert "one token more in front" in capsys.readouterr().err


def test_statistics_alone_are_equal_by_hash_and_open_otherwise(tiny_qwen3_moe: Path, traced: Path, tmp_path, capsys):
    common = ["--token-ids", IDS, "--max-new-tokens", "2", "--device", "cpu", "--stats"]
    assert main(["trace", str(tiny_qwen3_moe), str(tmp_path / "stats"), *common]) == 0
    assert (tmp_path / "stats.safetensors").stat().st_size < (traced / "ref.safetensors").stat().st_size / 2
    status, found = document(["compare", str(traced / "ref"), str(tmp_path / "stats")], capsys)
    assert (status, found["verdict"]) == (0, "equal")
    status, found = document(["compare", str(traced / "bf"), str(tmp_path / "stats")], capsys)
    assert status in (1, 4)


def test_dumps_of_two_ranks_are_joined_as_the_name_map_says(traced: Path, tmp_path: Path, capsys) -> None:
    tensors = load_file(traced / "ref.safetensors")
    kept = ("embed", "layers.0.mixer.attention", "layers.0.output", "logits")
    folder = tmp_path / "dump"
    folder.mkdir()
    torch.save(tensors["input_ids"], folder / "input_ids.pt")
    for name in kept:
        if name == "layers.0.mixer.attention":
            for rank, part in enumerate(tensors[name].chunk(2, dim=1)):
                torch.save({"value": part.clone()}, folder / f"name=attn_out___layer_id=0___rank={rank}.pt")
        else:
            np.save(folder / f"{name}.npy", tensors[name].numpy())
    names = tmp_path / "names.yaml"
    names.write_text("names: {'layers\\.(\\d+)\\.attn_out': 'layers.\\1.mixer.attention'}\n")
    other = tmp_path / "small.safetensors"
    save_file({name: tensors[name] for name in (*kept, "input_ids")}, other)
    arguments = ["compare", str(other), str(folder), "--names", str(names)]
    assert main(arguments) == 2 and "nothing says how they join" in capsys.readouterr().err
    names.write_text(names.read_text() + "axes: {'.*attention': 1}\n")
    status, found = document(arguments, capsys)
    assert (status, found["verdict"], len(found["nodes"])) == (0, "equal", 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "nowhere", "nowhere"], "no such file"),
        (["trace", "MODEL", "OUT"], "one of --prompt and --token-ids"),
        (["trace", "MODEL", "OUT", "--token-ids", "1,x"], "neither whole numbers"),
        (["trace", "MODEL", "OUT", "--token-ids", "1,2", "--stats", "--sample", "3"], "keeps no tensors"),
    ],
)
def test_wrong_input_is_status_2(tiny_qwen3: Path, tmp_path: Path, capsys, arguments: list[str], words: str) -> None:
    places = {"MODEL": str(tiny_qwen3), "OUT": str(tmp_path / "out")}
    assert main([places.get(word, word) for word in arguments]) == 2
    assert words in capsys.readouterr().err
