from __future__ import annotations

import pytest

from day0.errors import InputError
from day0.profile.cache_sizes import cache_sizes


def test_kimi_k3(profile_of) -> None:
    sizes = cache_sizes(profile_of("kimi-k3"))
    assert sizes.kv_bytes_per_token == 24 * 576 * 2 == 27_648
    assert sizes.state_bytes_per_sequence == 69 * (96 * 128 * 128 * 4 + 3 * 12288 * 3 * 2) == 449_372_160
    assert (sizes.window_bytes_per_sequence, sizes.index_bytes_per_token) == (0, 0)
    assert sizes.by_mixer == {
        "kda": {"layers": 69, "kv_bytes_per_token": 0, "state_bytes_per_sequence": 449_372_160},
        "mla": {"layers": 24, "kv_bytes_per_token": 27_648, "state_bytes_per_sequence": 0},
    }


@pytest.mark.parametrize(
    ("recipe", "kv"),
    [
        ("llama-3.1-8b", 32 * 2 * 8 * 128 * 2),
        ("qwen3-0.6b", 28 * 2 * 8 * 128 * 2),
        ("mixtral-8x7b", 32 * 2 * 8 * 128 * 2),
        ("qwen3-30b-a3b", 48 * 2 * 4 * 128 * 2),
    ],
)
def test_grouped_query_models(profile_of, recipe: str, kv: int) -> None:
    sizes = cache_sizes(profile_of(recipe))
    assert (sizes.kv_bytes_per_token, sizes.state_bytes_per_sequence) == (kv, 0)


@pytest.mark.parametrize(("dtype", "factor"), [("bf16", 1), ("float16", 1), ("fp32", 2), ("float32", 2)])
def test_dtypes(profile_of, dtype: str, factor: int) -> None:
    assert cache_sizes(profile_of("kimi-k3"), dtype).kv_bytes_per_token == factor * 27_648
    assert 2 * cache_sizes(profile_of("kimi-k3"), "fp8").kv_bytes_per_token == 27_648


def test_recurrent_state_is_float32_whatever_the_model_is(profile_of) -> None:
    narrow, wide = (cache_sizes(profile_of("kimi-k3"), "bf16", dtype) for dtype in ("bf16", "fp32"))
    assert wide.state_bytes_per_sequence - narrow.state_bytes_per_sequence == 69 * 3 * 12288 * 3 * 2


def test_full_windows_cost_a_sequence_and_no_token(profile_of) -> None:
    sizes = cache_sizes(profile_of("mixtral-8x7b", sliding_window=4096))
    assert sizes.kv_bytes_per_token == 0
    assert sizes.window_bytes_per_sequence == 32 * 2 * 4096 * 8 * 128 * 2
    half = {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 14}
    mixed = cache_sizes(profile_of("qwen3-0.6b", **half))
    assert mixed.kv_bytes_per_token == 14 * 2 * 8 * 128 * 2
    assert mixed.window_bytes_per_sequence == 14 * 2 * 64 * 8 * 128 * 2


def test_an_unknown_dtype_is_refused(profile_of) -> None:
    with pytest.raises(InputError, match="'int1' is not known"):
        cache_sizes(profile_of("kimi-k3"), "int1")
