from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from day0.errors import EnvironmentFault, InputError
from day0.plan.settings import EngineSettings
from day0.profile.cache_sizes import cache_sizes
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.runtime.engine import memory
from day0.runtime.engine.memory import choose_device, choose_dtype, shape_cache
from day0.source.resolve import resolve

CPU = torch.device("cpu")
F32, BF16 = torch.float32, torch.bfloat16


@pytest.fixture(scope="module")
def hybrid(tiny_kimi_k3: Path) -> ArchitectureProfile:
    return read_profile(resolve(str(tiny_kimi_k3)))


@pytest.fixture(scope="module")
def plain(tiny_llama: Path) -> ArchitectureProfile:
    return read_profile(resolve(str(tiny_llama)))


def shape(profile: ArchitectureProfile, **settings):
    return shape_cache(profile, EngineSettings(**settings), CPU, F32, F32)


def per_token(profile: ArchitectureProfile) -> int:
    return cache_sizes(profile, "fp32").kv_bytes_per_token


def test_a_state_slot_per_seat_only_where_there_is_state(hybrid, plain) -> None:
    assert shape(hybrid, max_num_seqs=5).num_slots == 5
    assert shape(plain, max_num_seqs=5).num_slots == 0


@pytest.mark.parametrize("tokens", [16, 100, 511, 512])
def test_pages_are_what_the_budget_holds(plain, tokens: int) -> None:
    found = shape(plain, kv_cache_bytes=tokens * per_token(plain))
    assert found.num_pages == tokens // 16
    assert found.max_model_len == min(512, 16 * (tokens // 16)), "cut to what the cache can hold"


def test_no_more_pages_than_every_seat_can_use(plain) -> None:
    assert shape(plain, max_num_seqs=3, max_model_len=33, kv_cache_bytes=1 << 30).num_pages == 3 * 3


def test_a_length_that_was_asked_for_must_fit(plain) -> None:
    with pytest.raises(InputError, match="room for 96 tokens, max_model_len asks for 100"):
        shape(plain, max_model_len=100, kv_cache_bytes=100 * per_token(plain))
    with pytest.raises(InputError, match="room for 0 tokens"):
        shape(plain, kv_cache_bytes=10)


def test_a_length_beyond_the_models_own_is_refused(plain) -> None:
    with pytest.raises(InputError, match="beyond the model's own limit of 512") as caught:
        shape(plain, max_model_len=513)
    assert caught.value.where == "max_position_embeddings"


def test_a_model_without_a_limit_gets_one(plain) -> None:
    endless = replace(plain, max_position=None, max_position_field=None)
    assert shape(endless, kv_cache_bytes=1 << 30).max_model_len == memory.FALLBACK_CONTEXT


def test_states_are_paid_before_pages(hybrid, monkeypatch) -> None:
    state = cache_sizes(hybrid, "fp32", "fp32").state_bytes_per_sequence
    monkeypatch.setattr(memory, "free_bytes", lambda device: 4 * state + 100 * per_token(hybrid) * 16)
    assert shape(hybrid, max_num_seqs=4, mem_fraction=1.0).num_pages == 100
    with pytest.raises(InputError, match="room for 0 tokens"):
        shape(hybrid, max_num_seqs=100, mem_fraction=1.0)


def test_the_host_is_not_filled_up(plain, monkeypatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 50)
    found = shape(replace(plain, max_position=1 << 40), max_num_seqs=1)
    assert found.num_pages * 16 * per_token(plain) <= memory.CPU_CACHE_LIMIT


def test_dtypes(plain) -> None:
    assert choose_dtype("auto", plain, CPU) == F32
    assert choose_dtype("bfloat16", plain, CPU) == BF16
    assert choose_dtype("auto", plain, torch.device("cuda")) == BF16, "the checkpoint's own where it is fast"
    with pytest.raises(InputError, match="dtype 'fp4' is not known") as caught:
        choose_dtype("fp4", plain, CPU)
    assert "float32" in caught.value.hint


def test_devices() -> None:
    assert choose_device("cpu") == CPU
    assert choose_device("auto").type in ("cpu", "cuda", "mps", "xpu")
    with pytest.raises(InputError, match="holds no numbers"):
        choose_device("meta")
    for name in ("cuda:99", "warp-drive"):
        with pytest.raises(EnvironmentFault, match=f"device '{name}' cannot be used"):
            choose_device(name)
