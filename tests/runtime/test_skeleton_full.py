"""Full-size skeletons: the headers of a release, told by a tiny twin with real data and by published sizes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from day0.errors import CannotSay, InputError
from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors
from day0.runtime.skeleton import tiny_config
from day0.runtime.skeleton_folder import MARKER
from day0.runtime.skeleton_full import write_full
from day0.source.resolve import resolve
from day0.source.sparse_shards import disk_bytes

PUBLISHED = {
    # recipe: bytes of the weights, tensors, shards
    "llama-3.1-8b": (16_060_522_496, 291, 4),
    "qwen3-0.6b": (1_192_099_840, 310, 1),
    "mixtral-8x7b": (93_405_585_408, 995, 19),
    "qwen3-30b-a3b": (61_064_245_248, 18_867, 13),
}


def on_disk(folder: Path) -> int:
    return sum(disk_bytes(path) for path in folder.iterdir())


@pytest.mark.parametrize("recipe", [*PUBLISHED, "kimi-k3"])
def test_a_shrunk_model_has_the_headers_of_its_twin_with_data(tiny, recipe: str, tmp_path: Path) -> None:
    files = resolve(f"recipe:{recipe}")
    write_full(replace(files, config=tiny_config(files)), tmp_path / "model", shards=3)
    ours, twin = resolve(str(tmp_path / "model")).tensors, resolve(str(tiny(recipe))).tensors
    assert ours is not None and twin is not None
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in ours.items()} == {
        name: (tensor.dtype, tensor.shape) for name, tensor in twin.items()
    }
    assert on_disk(tmp_path / "model") < 1 << 20


@pytest.mark.parametrize("recipe", PUBLISHED)
def test_real_sizes(recipe: str, tmp_path: Path) -> None:
    made = write_full(resolve(f"recipe:{recipe}"), tmp_path / "model")
    assert (made.weight_bytes, made.tensors, made.shards) == PUBLISHED[recipe]
    files = resolve(str(tmp_path / "model"))
    assert (files.weight_bytes, files.findings) == (made.weight_bytes, ())
    assert len(files.shards) == made.shards
    assert compare_tensors(read_profile(files), files).sound
    assert on_disk(tmp_path / "model") < 16 << 20


def test_the_config_and_what_lies_beside_it_are_the_models_own(tmp_path: Path) -> None:
    files = resolve("recipe:kimi-k3")
    small = replace(files, config=tiny_config(files))
    write_full(small, tmp_path / "model")
    found = resolve(str(tmp_path / "model"))
    assert found.config == small.config
    assert found.extras["preprocessor_config.json"] == files.extras["preprocessor_config.json"]
    assert len(found.shards) == 96, "as many as the recipe says the release has"


@pytest.mark.parametrize("recipe", ["llama-3.1-8b", "mixtral-8x7b"])
def test_control_tokens_have_the_ids_of_the_release(recipe: str, tmp_path: Path) -> None:
    files = resolve(f"recipe:{recipe}")
    profile = write_full(files, tmp_path / "model").profile
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (profile.bos_token_id, profile.eos_token_ids[0])
    text = "Any text, éven with 漢字\x00\n"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    assert not {tokenizer.bos_token_id, tokenizer.eos_token_id} & set(ids)


def test_an_unknown_family_cannot_be_written(tmp_path: Path) -> None:
    files = resolve("recipe:llama-3.1-8b")
    unknown = replace(files, config={**files.config, "model_type": "unheard_of"})
    with pytest.raises(CannotSay):
        write_full(unknown, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_only_a_skeleton_is_replaced_and_only_when_asked(tmp_path: Path) -> None:
    files, out = resolve("recipe:qwen3-0.6b"), tmp_path / "model"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    with pytest.raises(InputError, match="no skeleton"):
        write_full(files, out, force=True)
    assert [path.name for path in out.iterdir()] == ["mine.txt"]
    (out / "mine.txt").unlink()
    write_full(files, out)
    with pytest.raises(InputError, match="already"):
        write_full(files, out)
    write_full(files, out, shards=2, force=True)
    assert len(list(out.glob("*.safetensors"))) == 2
    assert (out / MARKER).is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["model"], "nothing else is left"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_full(resolve("recipe:qwen3-0.6b"), tmp_path / "file" / "model")


def test_no_torch_on_the_way(tmp_path: Path) -> None:
    code = (
        "import sys; from day0.cli.main import main;"
        f"status = main(['skeleton', 'recipe:qwen3-0.6b', {str(tmp_path / 'model')!r}, '--scale', 'full']);"
        "sys.exit(status or 'torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


@pytest.mark.slow
def test_kimi_k3_whole(tmp_path: Path) -> None:
    made = write_full(resolve("recipe:kimi-k3"), tmp_path / "model")
    assert (made.weight_bytes, made.tensors, made.shards) == (1_560_860_324_864, 497_220, 96)
    files = resolve(str(tmp_path / "model"))
    assert (files.weight_bytes, files.findings) == (made.weight_bytes, ())
    assert compare_tensors(read_profile(files), files).sound
    assert on_disk(tmp_path / "model") < 200 << 20
    # Started by a small process: a child of this large one would be counted with the memory it was forked from.
    launcher = (
        "import resource, subprocess, sys;"
        "subprocess.run([sys.executable, '-m', 'day0.cli.main', *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = [sys.executable, "-c", launcher, "inspect", str(tmp_path / "model"), "--json"]
    peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert peak * 1024 < 700e6
