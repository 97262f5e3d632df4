"""Odd files of published models: shards, indexes, pointers and small JSON files, and what must be said of each.

Which of them stands for which oddity is told by the table of `test_oddities.py`.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

SPLIT = "model-{:05d}-of-{:05d}.safetensors"


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN"])
def test_bare_infinity_is_kept_and_named(make, inspect, number: str) -> None:
    model = make()
    model.files["config.json"] = json.dumps(model.config, indent=1)[:-2] + f',\n "time_step_limit": [0.0, {number}]\n}}'
    result = inspect(model)
    finding = result.finding("json-non-finite-number")
    assert result.status == 0 and result.document["unused_config_keys"] == ["time_step_limit"]
    assert re.fullmatch(r"config\.json:\d+:\d+", finding["where"]) and number in finding["message"]


def test_a_missing_shard_is_refused(make, inspect) -> None:
    model = make()
    model.split(2)
    (model.write() / SPLIT.format(2, 2)).unlink()
    result = inspect(model.folder)
    assert result.status == 2
    assert SPLIT.format(2, 2) in result.error and re.search(r"hold \d+ of \d+ tensors", result.error)


def test_an_index_of_other_names_is_refused(make, inspect) -> None:
    model = make()
    model.split(2)
    folder = model.write()
    for number in (1, 2):
        (folder / SPLIT.format(number, 2)).rename(folder / f"quantised-{number}.safetensors")
    result = inspect(folder)
    assert result.status == 2
    assert "quantised-1.safetensors" in result.error and "stale" in result.error


def test_the_index_is_honoured(make, inspect) -> None:
    model = make()
    model.split(2)
    folder = model.write()
    first = {name: model.tensors[name] for name, shard in model.shard_of.items() if shard == SPLIT.format(1, 2)}
    stray = next(name for name, shard in model.shard_of.items() if shard == SPLIT.format(2, 2))
    model.write_beside(SPLIT.format(1, 2), first | {stray: ("BF16", (2,), b"\7\7\7\7")})
    result = inspect(folder)
    assert (result.status, result.serious) == (0, {"tensors-outside-index"})
    assert f"{stray} in {SPLIT.format(1, 2)}" in result.finding("tensors-outside-index")["message"]


def test_of_two_splits_the_indexed_one_counts(make, inspect) -> None:
    model = make()
    model.split(3)
    index = {"weight_map": dict(model.shard_of)}
    model.write()
    model.split(2)
    model.files["model.safetensors.index.json"] = index
    result = inspect(model)
    assert (result.status, result.document["weights"]["shards"]) == (0, 3)
    assert SPLIT.format(1, 2) in result.finding("unused-weight-files")["message"]


@pytest.mark.parametrize(("name", "status"), [("model.safetensors", 2), ("tokenizer.model", 1), ("tokenizer.json", 1)])
def test_pointers_are_named(make, inspect, name: str, status: int) -> None:
    folder = make().write()
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 987654\n")
    result = inspect(folder)
    assert result.status == status
    said = (
        result.error if status == 2 else result.finding("file-is-pointer")["where"] + str(result.document["findings"])
    )
    assert name in said and "987,654" in said


@pytest.mark.parametrize("keep", [0, 4, 40, -100])
def test_a_short_shard_is_refused(make, inspect, keep: int) -> None:
    shard = make().write() / "model.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:keep])
    result = inspect(shard.parent)
    assert result.status == 2
    assert str(shard) in result.error
    assert keep == 0 or f"{len(whole[:keep]):,} bytes" in result.error or f"{keep} bytes" in result.error


@pytest.mark.parametrize("model_type", ["llama", "novel"])
@pytest.mark.parametrize("place", ["config.json", "tokenizer_config.json"])
def test_remote_code_is_listed_and_not_run(make, inspect, model_type: str, place: str) -> None:
    model = make()
    model.config["model_type"] = model_type
    target = model.config if place == "config.json" else model.files[place]
    target["auto_map"] = {"AutoModelForCausalLM": "modeling_novel.NovelForCausalLM"}
    model.files["modeling_novel.py"] = "raise SystemExit('executed')"
    result = inspect(model)
    assert result.status == 0
    finding = result.finding("remote-code")
    assert finding["where"] == f"{place}: auto_map" and "modeling_novel.NovelForCausalLM" in finding["message"]


VISION = {"model_type": "pixtral", "patch_size": 14, "hidden_size": 16, "image_size": 28, "num_hidden_layers": 1,
          "num_attention_heads": 2, "head_dim": 8, "intermediate_size": 32, "spatial_merge_size": 2}  # fmt: skip


@pytest.mark.parametrize(
    ("files", "codes"),
    [
        ({}, {"processor-missing"}),
        ({"preprocessor_config.json": {"image_processor_type": "SomeFast", "patch_size": 14, "merge_size": 2}}, set()),
        ({"processor_config.json": {"processor_class": "Some", "patch_size": 14}}, set()),
        ({"video_preprocessor_config.json": {"patch_size": 14}}, {"processor-missing"}),
        ({"preprocessor_config.json": {"patch_size": 14, "size": {"max_pixels": 9}}}, {"processor-class-missing"}),
        ({"preprocessor_config.json": {"feature_extractor_type": "Old", "patch_size": 16}}, {"processor-differs"}),
    ],
)
def test_processor_files(make, inspect, configs, files: dict[str, Any], codes: set[str]) -> None:
    text = configs["sizes"] | {"model_type": "mistral"}
    model = make({"model_type": "mistral3", "text_config": text, "vision_config": VISION})
    model.files |= files
    result = inspect(model)
    assert {code for code in result.serious if code.startswith("processor")} == codes
    assert {f["where"] for f in result.document["findings"] if f["code"] == "processor-file"} == set(files)


def test_what_counts_without_a_generation_config(make, inspect) -> None:
    model = make(temperature=0.5)
    del model.files["generation_config.json"]
    result = inspect(model)
    assert result.status == 0
    message = result.finding("generation-config-missing")["message"]
    assert "stop ids 2 come from config.json" in message and "temperature 0.5" in message


def test_linked_shards(make, inspect, tmp_path: Path) -> None:
    folder = make().write()
    os.link(folder / "model.safetensors", tmp_path / "other-name")
    result = inspect(folder)
    assert (result.status, result.codes) == (0, {"hard-linked-shards"})


@pytest.mark.parametrize("indexed", [True, False])
def test_two_formats_in_one_folder(make, inspect, indexed: bool) -> None:
    model = make()
    model.split(2)
    folder = model.write()
    model.write_beside("consolidated.safetensors", {"tok_embeddings.weight": ("BF16", (1,), b"\0\0")})
    (folder / "params.json").write_text("{}")
    if not indexed:
        (folder / "model.safetensors.index.json").unlink()
    result = inspect(folder)
    assert (result.status, result.serious) == (0, set())
    assert "consolidated.safetensors" in result.finding("unused-weight-files")["message"]


@pytest.mark.parametrize("name", ["params.json", "config.json"])
def test_a_vendor_s_own_config(inspect, tmp_path: Path, name: str) -> None:
    words = {"dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 64, "model_type": "mistral"}
    (tmp_path / name).write_text(json.dumps(words))
    result = inspect(tmp_path)
    assert result.status == 2
    assert "vendor's own" in result.error and "params.json" in result.error


@pytest.mark.parametrize("text", ['{"a": true.\n"b": 1}', '{"a": 1,\n}', '{"a": [1,\n2}', '{"a": 1 // why\n}'])
def test_broken_json_by_file(make, inspect, text: str) -> None:
    model = make()
    model.files["generation_config.json"] = text
    result = inspect(model)
    assert (result.status, result.serious) == (0, {"unreadable-file"})
    assert re.fullmatch(r"generation_config\.json:[12]:\d+", result.finding("unreadable-file")["where"])
    (model.folder / "config.json").write_text(text)
    result = inspect(model.folder)
    assert result.status == 2 and re.search(r"config\.json:[12]:\d+", result.error)
