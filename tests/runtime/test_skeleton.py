from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from closeness import relative_error, worst_error
from safetensors import SafetensorError
from safetensors.torch import load_file

from day0.errors import CannotSay, EnvironmentFault, InputError
from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors, expected_tensors
from day0.runtime.engine.engine import Engine
from day0.runtime.skeleton import MARKER, tiny_config, write_tiny
from day0.runtime.skeleton_folder import skeleton_folder
from day0.runtime.skeleton_tokenizer import SPECIAL_TOKENS, VOCABULARY
from day0.source.resolve import resolve

RECIPES = ("llama-3.1-8b", "qwen3-0.6b", "mixtral-8x7b", "qwen3-30b-a3b", "kimi-k3")
IDS = [(53 * place + 5) % 256 for place in range(40)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_checkpoint_that_its_own_config_explains(tiny, recipe: str) -> None:
    files = resolve(str(tiny(recipe)))
    profile = read_profile(files)
    comparison = compare_tensors(profile, files)
    assert comparison.sound
    assert (comparison.findings, files.findings) == ((), ())
    assert [finding for finding in profile.findings if finding.severity != "note"] == []
    assert profile.unused_config_keys == ()
    assert files.weight_bytes < 20 << 20


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_kind_of_layer_of_the_full_model_is_there(tiny, recipe: str) -> None:
    full, small = read_profile(resolve(f"recipe:{recipe}")), read_profile(resolve(str(tiny(recipe))))
    kinds = [
        {(layer.mixer.kind, layer.feed_forward.kind, layer.residual.kind) for layer in p.layers} for p in (full, small)
    ]
    assert kinds[0] <= kinds[1]
    assert (full.vision is None) == (small.vision is None)
    assert full.tie_word_embeddings == small.tie_word_embeddings
    packed = [{spec.group for spec in expected_tensors(profile) if spec.dtype == "U8"} for profile in (full, small)]
    assert packed[0] == packed[1]


@pytest.mark.parametrize("recipe", ["llama-3.1-8b", "kimi-k3"])
def test_the_seed_decides_every_byte(tiny, recipe: str, tmp_path: Path) -> None:
    files = resolve(f"recipe:{recipe}")
    write_tiny(files, tmp_path / "again")
    write_tiny(files, tmp_path / "other", seed=1)
    first, again, other = (contents(folder) for folder in (tiny(recipe), tmp_path / "again", tmp_path / "other"))
    assert first == again
    differ = {name for name in first if first[name] != other[name]}
    assert differ == {MARKER, *(name for name in first if name.endswith(".safetensors"))}


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 1000])
def test_any_number_of_files(tiny_llama: Path, tmp_path: Path, shards: int) -> None:
    write_tiny(resolve("recipe:llama-3.1-8b"), tmp_path / "model", shards=shards)
    names = sorted(path.name for path in (tmp_path / "model").glob("*.safetensors"))
    count = len(names)
    assert count == shards or shards == 1000
    assert names == [f"model-{number:05d}-of-{count:06d}.safetensors" for number in range(1, count + 1)]
    index = json.loads((tmp_path / "model" / "model.safetensors.index.json").read_text())
    found: dict[str, torch.Tensor] = {}
    for name in names:
        part = load_file(tmp_path / "model" / name)
        assert part, "no file is empty"
        assert {index["weight_map"][tensor] for tensor in part} == {name}
        found |= part
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in found.values())
    wanted: dict[str, torch.Tensor] = {}
    for path in tiny_llama.glob("*.safetensors"):
        wanted |= load_file(path)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("do not lose me")
    for force in (False, True):
        with pytest.raises(InputError, match="is no skeleton"):
            write_tiny(resolve("recipe:llama-3.1-8b"), tmp_path, force=force)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_file_in_its_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("do not lose me")
    with pytest.raises(InputError, match="is no skeleton"):
        write_tiny(resolve("recipe:llama-3.1-8b"), tmp_path / "model", force=True)


def test_a_skeleton_is_replaced_only_when_forced(tmp_path: Path) -> None:
    out, files = tmp_path / "model", resolve("recipe:qwen3-0.6b")
    out.mkdir()  # empty: free to use
    write_tiny(files, out)
    with pytest.raises(InputError, match="holds a skeleton already"):
        write_tiny(files, out, seed=1)
    before = contents(out)
    write_tiny(files, out, seed=1, force=True)
    assert contents(out) != before
    assert [path.name for path in tmp_path.iterdir()] == ["model"], "nothing half-written stays"


def test_a_failure_leaves_the_old_one_and_no_rubbish(tmp_path: Path, monkeypatch) -> None:
    out, files = tmp_path / "model", resolve("recipe:qwen3-0.6b")
    write_tiny(files, out)
    before = contents(out)
    monkeypatch.setattr("day0.runtime.skeleton.save_file", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_tiny(files, out, seed=1, force=True)
    assert contents(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_another_wrote_meanwhile_is_left_alone(tmp_path: Path) -> None:
    out, files = tmp_path / "model", resolve("recipe:qwen3-0.6b")
    with pytest.raises(InputError, match="holds a skeleton already"), skeleton_folder(out, force=False) as folder:
        (folder / "config.json").write_text("{}")
        write_tiny(files, out)
        first = contents(out)
    assert contents(out) == first
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_full_disk_is_told_as_such(tmp_path: Path, monkeypatch) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("day0.runtime.skeleton.save_file", no_room)
    with pytest.raises(EnvironmentFault, match="No space left"):
        write_tiny(resolve("recipe:llama-3.1-8b"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_family_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "novel"}')
    with pytest.raises(InputError, match="no family table"):
        write_tiny(resolve(str(tmp_path / "config.json")), tmp_path / "model")


@pytest.mark.parametrize("named", [True, 0, [[]], {"a": 1}])
def test_architectures_that_are_no_names_are_refused(tmp_path: Path, named: object) -> None:
    config = {**resolve("recipe:llama-3.1-8b").config, "architectures": named}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="must be a list of strings"):
        write_tiny(resolve(str(tmp_path / "config.json")), tmp_path / "out")


def test_a_packing_that_cannot_be_filled_is_refused(tmp_path: Path) -> None:
    section = {"quant_method": "awq", "bits": 8, "group_size": 32}
    config = tiny_config(resolve("recipe:llama-3.1-8b")) | {"quantization_config": section}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CannotSay, match="attention: awq_int8"):
        write_tiny(resolve(str(tmp_path / "config.json")), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_real_config_makes_one_too(tmp_path: Path) -> None:
    config = tiny_config(resolve("recipe:llama-3.1-8b")) | {"attention_bias": True, "tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    profile = write_tiny(resolve(str(tmp_path / "config.json")), tmp_path / "model")
    assert profile.layers[0].mixer.qkv_bias
    assert read_profile(resolve(str(tmp_path / "model"))).layers == profile.layers


@pytest.mark.parametrize("recipe", RECIPES[:4])
def test_transformers_loads_it_and_computes_the_same(tiny, recipe: str, make_engine) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny(recipe), dtype=torch.float32)
    with torch.no_grad():
        wanted = model.eval()(torch.tensor([IDS])).logits[0]
    assert worst_error(make_engine(tiny(recipe)).forward(IDS), wanted) < 1e-5


def test_tokenizer_and_template_load_in_transformers(tiny_llama: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_llama)
    text = "grüß dich,\n 木"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    assert tokenizer.eos_token_id == SPECIAL_TOKENS["eos_token_id"]
    assert max(tokenizer.get_vocab().values()) < VOCABULARY
    chat = [{"role": "user", "content": "hello"}]
    rendered = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert rendered == "<|open|>user<|close|>hello<|end|><|open|>assistant<|close|>"


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_part_is_inert(tiny, recipe: str, make_engine) -> None:
    """Silencing any tensor of one layer of each kind moves the logits, so that no mistake can hide behind it."""
    engine: Engine = make_engine(tiny(recipe))
    wanted = engine.forward(IDS[:12])
    assert 0.3 < float(wanted.std()) < 30, "logits of a size that a real model has"
    kinds = [(layer.mixer.kind, layer.feed_forward.kind) for layer in engine.profile.layers]
    repeated = tuple(f"layers.{index}." for index, kind in enumerate(kinds) if kind in kinds[:index])
    # Stored, but the first read of the stream has nothing to choose from.
    unused = ("layers.0.mixer_res",)
    for name, parameter in engine.model.named_parameters():
        if name.startswith((*repeated, *unused)):
            continue
        kept = parameter.clone()
        parameter.zero_()
        moved = relative_error(engine.forward(IDS[:12]), wanted)
        parameter.copy_(kept)
        assert moved > 1e-3, f"{name} is inert"
