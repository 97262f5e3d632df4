"""Which definition runs a model, whose code it is, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from upstream_models import keep_code_in, make_remote_repository

from day0.errors import CannotSay, InputError
from day0.profile.read import read_profile
from day0.runtime.upstream.definition import completed, find_definition, told_as
from day0.source.resolve import resolve


def find(folder: Path, trust: bool = False):
    return find_definition(resolve(str(folder)), trust_remote_code=trust)


def test_transformers_own_definition_is_found(made) -> None:
    found = find(made("gemma3_text").folder)
    assert (type(found.config).__name__, found.remote) == ("Gemma3TextConfig", False)


def test_code_of_a_repository_is_not_run_unasked(tmp_path: Path) -> None:
    make_remote_repository(tmp_path / "sum")
    with pytest.raises(CannotSay, match="comes with code of its own, which is not run") as caught:
        find(tmp_path / "sum")
    assert "--trust-remote-code" in caught.value.hint
    assert not (tmp_path / "sum" / "was-run").exists()


def test_code_of_a_repository_runs_when_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_code_in(tmp_path / "modules", monkeypatch)
    make_remote_repository(tmp_path / "sum")
    found = find(tmp_path / "sum", trust=True)
    assert found.remote and type(found.config).__name__ == "SumConfig"
    assert (tmp_path / "sum" / "was-run").exists()


def test_a_repository_that_transformers_knows_needs_no_code_of_its_own(made, tmp_path: Path) -> None:
    config = json.loads((made("gpt2").folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "nowhere.Nothing"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert not find(tmp_path).remote


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "brand_new"}, "has no definition of model type 'brand_new'"),
        ({}, "has no definition of model type None"),
        ({"model_type": "vit"}, "no language model for ViTConfig"),
        ({"model_type": "gpt2", "n_embd": "wide"}, "does not read this configuration"),
    ],
)
def test_what_transformers_does_not_run_is_said(config: dict[str, object], says: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CannotSay, match=says):
        find(tmp_path)


def test_a_recipe_has_no_folder() -> None:
    with pytest.raises(CannotSay, match="from a folder"):
        find_definition(resolve("recipe:kimi-k3"), trust_remote_code=False)


def test_an_unknown_familys_facts_are_transformers_word(made) -> None:
    files = resolve(str(made("gpt2").folder))
    profile = read_profile(files)
    full = completed(profile, files, find(made("gpt2").folder))
    assert (profile.family, profile.max_position) == (None, None)
    assert (full.vocab_size, full.hidden_size, full.max_position, full.eos_token_ids) == (96, 32, 64, (2,))


def test_a_known_familys_profile_stays(made) -> None:
    files = resolve(str(made("gemma3_text").folder))
    profile = read_profile(files)
    assert completed(profile, files, find(made("gemma3_text").folder)) is profile


def test_faults_of_strangers_are_told_and_our_own_pass() -> None:
    said = pytest.raises(CannotSay, match="it does not run: ZeroDivisionError: by zero")
    with said, told_as("it does not run", "here"):
        raise ZeroDivisionError("by\n zero")
    with pytest.raises(InputError, match=r"^mine$"), told_as("it does not run", "here"):
        raise InputError("mine")
