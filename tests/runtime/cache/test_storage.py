from pathlib import Path

import pytest
import torch

from day0.profile.cache_sizes import cache_sizes, page_tokens
from day0.profile.profile import (
    ActivationSpec,
    ArchitectureProfile,
    DenseFeedForward,
    HeavilyCompressedAttention,
    LayerSpec,
    PlainResidual,
    RopeSpec,
    SharedKeyValueAttention,
)
from day0.profile.read import read_profile
from day0.runtime.cache.storage import CacheStorage, page_bytes, slot_bytes
from day0.source.resolve import resolve

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def profile(tiny_kimi_k3: Path) -> ArchitectureProfile:
    return read_profile(resolve(str(tiny_kimi_k3)))


@pytest.fixture
def storage(profile: ArchitectureProfile) -> CacheStorage:
    return CacheStorage(profile.layers, 5, 4, 3, torch.float32, torch.bfloat16, CPU)


def test_planes_and_states_are_what_the_layers_say(storage: CacheStorage) -> None:
    assert storage.plane(3, "latent").shape == (20, 32 + 8)
    assert storage.state(0, "recurrent").shape == (3, 12, 16, 16)
    assert storage.state(0, "conv").shape == (3, 3, 192, 3)
    assert storage.state(0, "recurrent").dtype == torch.float32
    assert storage.state(0, "conv").dtype == torch.bfloat16
    with pytest.raises(KeyError):
        storage.plane(0, "latent")  # a linear layer keeps nothing per token


def pooling_layer(stride: int) -> LayerSpec:
    rope = RopeSpec(theta=10000.0, dim=4, layout="interleaved")
    attention = SharedKeyValueAttention(2, 8, 4, 1, 4, rope, 1.0, 16, 1e-6)
    mixer = HeavilyCompressedAttention(attention, stride)
    return LayerSpec(0, mixer, DenseFeedForward(8, ActivationSpec("silu")), PlainResidual())


def test_tokens_that_share_an_entry_share_its_room_and_wait_in_a_tail() -> None:
    layers = (pooling_layer(6),)
    storage = CacheStorage(layers, 5, 12, 3, torch.float32, torch.bfloat16, CPU)
    assert storage.strides == (6,)
    assert storage.plane(0, "shared_kv").shape == (60, 8)
    assert storage.plane(0, "compressed_kv").shape == (10, 8)
    assert storage.state(0, "compressed_kv_tail").shape == (3, 5, 16)
    assert page_bytes(layers, 12, torch.float32) * 5 == storage.kv_bytes
    assert slot_bytes(layers, torch.bfloat16) * 3 == storage.state_bytes
    for name in ("shared_kv", "compressed_kv"):
        storage.plane(0, name).zero_()
    storage.poison_pages([3])
    rows = storage.plane(0, "compressed_kv").isnan().all(dim=1).nonzero()[:, 0]
    assert rows.tolist() == [6, 7], "the two entries of page 3"


def test_no_entry_lies_on_two_pages() -> None:
    assert page_tokens((pooling_layer(6),), 16) == 18
    assert page_tokens((pooling_layer(4),), 16) == 16
    assert page_tokens((pooling_layer(4), pooling_layer(6)), 1) == 12
    assert page_tokens((), 5) == 5
    with pytest.raises(AssertionError, match="pages of 16 tokens cut entries of 6"):
        CacheStorage((pooling_layer(6),), 5, 16, 3, torch.float32, torch.bfloat16, CPU)


def test_a_new_cache_is_not_written(storage: CacheStorage) -> None:
    # Nobody reads a slot before it is written; here such a read would be NaN.
    assert storage.plane(3, "latent").isnan().all()
    assert storage.state(0, "recurrent").isnan().all()


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_bytes_are_those_of_the_profile(profile: ArchitectureProfile, dtype: str) -> None:
    torch_dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    sizes = cache_sizes(profile, dtype, dtype)
    held = CacheStorage(profile.layers, 5, 4, 3, torch_dtype, torch_dtype, CPU)
    assert held.kv_bytes == sizes.kv_bytes_per_token * 20 == 5 * page_bytes(profile.layers, 4, torch_dtype)
    assert held.state_bytes == sizes.state_bytes_per_sequence * 3 == 3 * slot_bytes(profile.layers, torch_dtype)


def test_poison_and_reset_touch_what_they_name_and_nothing_else(storage: CacheStorage) -> None:
    storage.plane(8, "latent").zero_()
    storage.state(5, "recurrent").zero_()
    storage.poison_pages([1, 4])
    bad = storage.plane(8, "latent").isnan().all(dim=1)
    assert bad.tolist() == [4 <= slot < 8 or slot >= 16 for slot in range(20)]
    storage.poison_state(2)
    assert storage.state(5, "recurrent").isnan().flatten(1).all(dim=1).tolist() == [False, False, True]
    storage.state(5, "recurrent")[1] = 7.0
    storage.reset_state(2)
    assert not storage.state(5, "recurrent")[2].any()
    assert not storage.state(5, "conv")[2].any()
    assert (storage.state(5, "recurrent")[1] == 7.0).all()


def test_poisoning_nothing_is_allowed(storage: CacheStorage) -> None:
    storage.plane(3, "latent").zero_()
    storage.poison_pages([])
    assert not storage.plane(3, "latent").isnan().any()
