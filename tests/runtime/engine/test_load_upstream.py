"""When a model runs on transformers, and what its engine says of memory and of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from upstream_models import keep_code_in, make_model, make_remote_repository

from day0.errors import CannotSay, EnvironmentFault, InputError
from day0.plan.settings import EngineSettings
from day0.profile.read import read_profile
from day0.runtime.engine.load import load_engine
from day0.runtime.engine.load_upstream import settle_profile, upstream_definition
from day0.source.resolve import resolve


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt2")
    make_model("gpt2", folder)
    return folder


def load(folder: Path, **settings: Any):
    files = resolve(str(folder))
    return load_engine(files, read_profile(files), EngineSettings(device="cpu", **settings))


def chosen(folder: Path, runtime: str) -> bool:
    """Whether transformers is to run it."""
    files = resolve(str(folder))
    return upstream_definition(files, read_profile(files), EngineSettings(runtime=runtime)) is not None


def test_transformers_runs_what_our_blocks_cannot_and_what_it_is_asked_to(gpt2: Path, tiny_llama: Path) -> None:
    assert chosen(gpt2, "auto") and chosen(gpt2, "upstream") and not chosen(gpt2, "native")
    assert not chosen(tiny_llama, "auto") and chosen(tiny_llama, "upstream")
    with pytest.raises(CannotSay, match="does not have the parts of model_type 'gpt2'"):
        load(gpt2, runtime="native")
    with pytest.raises(InputError, match="no runtime 'best'"):
        EngineSettings(runtime="best")


def test_both_reasons_are_said_where_nothing_runs_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_code_in(tmp_path / "modules", monkeypatch)
    make_remote_repository(tmp_path / "sum")
    with pytest.raises(
        CannotSay, match=r"does not have the parts .*; model type 'running_sum' comes with code"
    ) as caught:
        load(tmp_path / "sum")
    assert "--trust-remote-code" in caught.value.hint
    assert load(tmp_path / "sum", trust_remote_code=True).limits[0].startswith("SumForCausalLM is code of the model's")


def test_a_native_model_gives_the_same_numbers_on_transformers(tiny_llama: Path) -> None:
    ours, theirs = load(tiny_llama), load(tiny_llama, runtime="upstream")
    ids = list(range(5, 30))
    found, wanted = theirs.forward(ids), ours.forward(ids)
    assert float((found - wanted).norm() / wanted.norm()) < 1e-5
    assert ours.limits == () and len(theirs.limits) >= 3


def test_memory_is_what_tokens_were_measured_to_cost(gpt2: Path) -> None:
    engine = load(gpt2, max_num_seqs=2, page_size=16)
    assert engine.memory.num_pages == 2 * 64 // 16  # every seat at the full context, and no more
    assert engine.memory.kv_bytes == 2 * 64 * 512
    small = load(gpt2, max_num_seqs=2, kv_cache_bytes=3 * 16 * 512)
    assert (small.memory.num_pages, small.max_model_len) == (3, 48)
    with pytest.raises(InputError, match="room for 48 tokens, max_model_len asks for 64"):
        load(gpt2, max_num_seqs=2, kv_cache_bytes=3 * 16 * 512, max_model_len=64)
    with pytest.raises(InputError, match="max_model_len 65 is beyond the model's own limit of 64"):
        load(gpt2, max_model_len=65)


def test_the_profile_is_settled_before_anything_loads(gpt2: Path, tiny_llama: Path) -> None:
    for folder, runtime in ((gpt2, "upstream"), (tiny_llama, "native")):
        files = resolve(str(folder))
        profile, named = settle_profile(files, read_profile(files), EngineSettings())
        assert named == runtime and profile.vocab_size > 0
    config = json.loads((gpt2 / "config.json").read_text())
    assert (
        settle_profile(resolve(str(gpt2)), read_profile(resolve(str(gpt2))), EngineSettings())[0].max_position
        == (config["n_positions"])
    )


def test_what_does_not_fit_is_refused_before_it_is_read(gpt2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("day0.runtime.engine.load_upstream.free_bytes", lambda device: 1000)
    with pytest.raises(EnvironmentFault, match=r"the weights need 0\.0 GiB as torch\.float32"):
        load(gpt2)


@pytest.mark.parametrize("place", ["disk", "host"])
def test_weights_that_come_and_go_are_refused_and_not_held_all_the_same(gpt2: Path, place: str) -> None:
    with pytest.raises(CannotSay, match="holds every weight"):
        load(gpt2, offload=place)
