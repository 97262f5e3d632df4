"""Model folders on disk: good ones, and each way in which index, shards and JSON can disagree."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
from safetensors.numpy import save_file

from day0.errors import InputError
from day0.source.folder import read_config_file, read_folder
from day0.source.model_files import ModelFiles

CONFIG = {"architectures": ["SomeForCausalLM"], "model_type": "some"}
SHARDS = {
    "model-00001-of-00002.safetensors": ("embed.weight", "layers.0.weight"),
    "model-00002-of-00002.safetensors": ("layers.1.weight", "norm.weight", "lm_head.weight"),
}


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def write_shard(path: Path, names: tuple[str, ...], value: float = 0.0) -> None:
    save_file({name: numpy.full((2, 3), value, numpy.float32) for name in names}, path)


def write_index(folder: Path, weight_map: Mapping[str, Any], **metadata: object) -> None:
    write_json(folder / "model.safetensors.index.json", {"metadata": metadata, "weight_map": weight_map})


def weight_map() -> dict[str, str]:
    return {name: shard for shard, names in SHARDS.items() for name in names}


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A folder of two shards with index and config."""
    write_json(tmp_path / "config.json", CONFIG)
    for shard, names in SHARDS.items():
        write_shard(tmp_path / shard, names)
    write_index(tmp_path, weight_map(), total_size=5 * 24)
    return tmp_path


def read(folder: Path) -> ModelFiles:
    return read_folder(folder, model_id="some-model")


def codes(files: ModelFiles) -> list[str]:
    return [finding.code for finding in files.findings]


def refusal(folder: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        read(folder)
    return caught.value


def test_sharded_folder(sharded: Path) -> None:
    write_json(sharded / "generation_config.json", {"eos_token_id": 2})
    (sharded / "README.md").write_text("a model")
    files = read(sharded)
    assert (files.id, files.revision, files.source, files.folder) == ("some-model", None, "folder", sharded)
    assert files.config == CONFIG
    assert files.tensors is not None
    assert {name: header.shard for name, header in files.tensors.items()} == weight_map()
    assert files.shards == tuple(sorted(SHARDS))
    assert files.weight_bytes == 5 * 24
    assert files.extras == {"generation_config.json": {"eos_token_id": 2}}
    assert "README.md" in files.file_names
    assert files.findings == ()


def test_single_file_needs_no_index(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", CONFIG)
    write_shard(tmp_path / "model.safetensors", ("a", "b"))
    files = read(tmp_path)
    assert files.tensors is not None and set(files.tensors) == {"a", "b"}
    assert files.shards == ("model.safetensors",)
    assert files.findings == ()


def test_missing_shard_is_refused_with_names_and_counts(sharded: Path) -> None:
    (sharded / "model-00002-of-00002.safetensors").unlink()
    error = refusal(sharded)
    assert "1 of 2 shards are missing: model-00002-of-00002.safetensors" in error.message
    assert "3 of 5 tensors" in error.message
    assert error.where.endswith("model.safetensors.index.json")


def test_dangling_link_is_a_missing_shard(sharded: Path) -> None:
    shard = sharded / "model-00002-of-00002.safetensors"
    shard.unlink()
    shard.symlink_to(sharded / "gone.safetensors")
    assert "1 of 2 shards are missing" in refusal(sharded).message


def test_linked_shards_are_followed(sharded: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("links")
    for path in sharded.iterdir():
        (other / path.name).symlink_to(path)
    assert read(other).tensors == read(sharded).tensors


def test_hard_links_are_noted(sharded: Path) -> None:
    os.link(sharded / "model-00001-of-00002.safetensors", sharded.parent / f"{sharded.name}-copy")
    assert codes(read(sharded)) == ["hard-linked-shards"]


def test_stale_index_after_renaming_is_refused_and_explained(sharded: Path) -> None:
    for number in (1, 2):
        (sharded / f"model-0000{number}-of-00002.safetensors").rename(sharded / f"q-{number}.safetensors")
    error = refusal(sharded)
    assert "2 of 2 shards are missing" in error.message
    assert "q-1.safetensors" in error.hint and "stale" in error.hint


def test_tensor_that_its_shard_does_not_hold(sharded: Path) -> None:
    write_index(sharded, {**weight_map(), "layers.2.weight": "model-00001-of-00002.safetensors"})
    error = refusal(sharded)
    assert "layers.2.weight is assigned to model-00001-of-00002.safetensors, which does not hold it" in error.message


def test_tensor_in_another_shard_than_assigned(sharded: Path) -> None:
    write_index(sharded, {**weight_map(), "norm.weight": "model-00001-of-00002.safetensors"})
    error = refusal(sharded)
    assert "norm.weight" in error.message
    assert "model-00002-of-00002.safetensors holds it" in error.hint


def test_index_decides_between_two_copies(sharded: Path) -> None:
    """A stored tensor that the index assigns elsewhere is listed and not used."""
    first = "model-00001-of-00002.safetensors"
    write_shard(sharded / first, (*SHARDS[first], "norm.weight", "stray.weight"), value=7.0)
    files = read(sharded)
    assert files.tensors is not None
    assert files.tensors["norm.weight"].shard == "model-00002-of-00002.safetensors"
    assert "stray.weight" not in files.tensors
    (finding,) = files.findings
    assert finding.code == "tensors-outside-index"
    assert f"norm.weight in {first}" in finding.message and f"stray.weight in {first}" in finding.message


def test_two_splits_with_one_index(sharded: Path) -> None:
    for number, name in enumerate(sorted(weight_map()), 1):
        write_shard(sharded / f"model-0000{number}-of-00005.safetensors", (name,))
    files = read(sharded)
    assert files.shards == tuple(sorted(SHARDS))
    (finding,) = files.findings
    assert (finding.code, finding.severity) == ("unused-weight-files", "warning")
    assert "5 .safetensors files" in finding.message and "00001-of-00005" in finding.message


def test_two_splits_without_index_are_refused(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").unlink()
    write_shard(sharded / "model-00001-of-00001.safetensors", tuple(weight_map()))
    assert "several shard splits" in refusal(sharded).message


def test_split_without_index_is_joined(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").unlink()
    files = read(sharded)
    assert files.tensors is not None and set(files.tensors) == set(weight_map())
    assert codes(files) == ["no-index"]
    (sharded / "model-00001-of-00002.safetensors").unlink()
    assert "1 of 2 shards are missing: number 1" in refusal(sharded).message


def test_vendor_layout_beside_the_shards_is_left_alone(sharded: Path) -> None:
    write_shard(sharded / "consolidated.safetensors", ("tok_embeddings.weight",))
    (sharded / "model.safetensors.index.json").unlink()
    files = read(sharded)
    assert files.tensors is not None and "tok_embeddings.weight" not in files.tensors
    assert "unused-weight-files" in codes(files)


def test_the_same_tensor_in_two_files_without_index(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", CONFIG)
    write_shard(tmp_path / "part-a.safetensors", ("x", "y"))
    write_shard(tmp_path / "part-b.safetensors", ("y", "z"))
    assert "tensor y is stored in part-a.safetensors and in part-b.safetensors" in refusal(tmp_path).message


def test_shards_in_a_subfolder(sharded: Path) -> None:
    (sharded / "weights").mkdir()
    write_shard(sharded / "weights" / "extra.safetensors", ("extra.weight",))
    write_index(sharded, {**weight_map(), "extra.weight": "weights/extra.safetensors"})
    files = read(sharded)
    assert files.tensors is not None
    assert files.tensors["extra.weight"].shard == "weights/extra.safetensors"


@pytest.mark.parametrize("shard", ["../other.safetensors", "/etc/x.safetensors", "a/../../x.safetensors", "..\\x", ""])
def test_shard_names_that_lead_out_are_refused(sharded: Path, shard: str) -> None:
    write_shard(sharded.parent / "other.safetensors", ("a",))
    write_index(sharded, {**weight_map(), "a": shard})
    assert "leads out of the model's folder" in refusal(sharded).message


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ({"weight_map": {"a": 3}}, "tensor a: its shard must be a file name"),
        ({"weight_map": {"a": "pytorch_model.bin"}}, "is not a .safetensors file"),
        ({"weight_map": []}, "no `weight_map`"),
        ({"weight_map": {}}, "no `weight_map`"),
        ({}, "no `weight_map`"),
    ],
)
def test_unusable_index(sharded: Path, index: object, words: str) -> None:
    write_json(sharded / "model.safetensors.index.json", index)
    assert words in refusal(sharded).message


def test_index_that_names_a_tensor_twice(sharded: Path) -> None:
    text = '{"weight_map": {\n"a": "x.safetensors",\n"a": "y.safetensors"}}'
    (sharded / "model.safetensors.index.json").write_text(text)
    error = refusal(sharded)
    assert "weight_map.a is set twice" in error.message
    assert error.where.endswith("model.safetensors.index.json:3:1")


def test_total_size_that_does_not_add_up_is_noted(sharded: Path) -> None:
    write_index(sharded, weight_map(), total_size=99)
    (finding,) = read(sharded).findings
    assert finding.code == "index-total-size"
    assert "99" in finding.message and "120" in finding.message


def test_truncated_shard_and_pointer_are_refused_by_name(sharded: Path) -> None:
    shard = sharded / "model-00002-of-00002.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-10])
    error = refusal(sharded)
    assert "is truncated" in error.message and error.where == str(shard)
    shard.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1234\n")
    assert "Git LFS pointer for a file of 1,234 bytes" in refusal(sharded).message


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model-q4.gguf", "consolidated.00.pth"])
def test_other_weight_formats_are_named(tmp_path: Path, name: str) -> None:
    write_json(tmp_path / "config.json", CONFIG)
    (tmp_path / name).write_bytes(b"\0")
    error = refusal(tmp_path)
    assert f"weights only as {name}" in error.message
    assert "safetensors" in error.hint


def test_folder_without_weights(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", CONFIG)
    (tmp_path / "training_args.bin").write_bytes(b"\0")
    files = read(tmp_path)
    assert files.tensors is None and files.shards == ()
    assert codes(files) == ["no-weights"]


def test_broken_config_names_the_line(sharded: Path) -> None:
    (sharded / "config.json").write_text('{\n  "model_type": "some",\n}')
    error = refusal(sharded)
    assert error.where == f"{sharded / 'config.json'}:3:1"
    assert "not valid JSON" in error.message


def test_broken_extra_file_is_a_finding(sharded: Path) -> None:
    (sharded / "generation_config.json").write_text('{\n  "do_sample": true.\n}')
    files = read(sharded)
    assert files.extras == {}
    (finding,) = files.findings
    assert (finding.code, finding.severity) == ("unreadable-file", "warning")
    assert finding.where == "generation_config.json:2:20"


def test_odd_config_is_read_with_findings(sharded: Path) -> None:
    (sharded / "config.json").write_text('\ufeff{"model_type": "some",\n "limit": Infinity, "limit": NaN}', "utf-8")
    odd = ("json-byte-order-mark", "json-non-finite-number", "json-duplicate-key", "json-non-finite-number")
    assert tuple(codes(read(sharded))) == odd


@pytest.mark.parametrize(
    ("present", "words", "hint"),
    [
        ("README.md", "has no config.json", "holds config.json"),
        ("params.json", "vendor's own format", "Hugging Face version"),
        ("model.gguf", "has no config.json", "is GGUF"),
    ],
)
def test_folder_without_config(tmp_path: Path, present: str, words: str, hint: str) -> None:
    (tmp_path / present).write_text("{}")
    error = refusal(tmp_path)
    assert words in error.message and hint in error.hint


def test_bare_config(tmp_path: Path) -> None:
    path = tmp_path / "k3.json"
    write_json(path, CONFIG)
    files = read_config_file(path, model_id="k3")
    assert (files.source, files.config, files.config_name) == ("config", CONFIG, "k3.json")
    assert files.tensors is None and files.extras == {} and files.findings == ()


def test_file_that_is_no_config(tmp_path: Path) -> None:
    write_shard(tmp_path / "model.safetensors", ("a",))
    with pytest.raises(InputError, match="neither a model folder nor a config"):
        read_config_file(tmp_path / "model.safetensors", model_id="m")
    write_json(tmp_path / "params.json", {"dim": 16})
    with pytest.raises(InputError, match="vendor's own format"):
        read_config_file(tmp_path / "params.json", model_id="m")
