"""Small configs of grouped-query decoders, and what tests of their lines look up in the profiles read from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from day0.profile.profile import ArchitectureProfile, GroupedQueryAttention, RoutedExperts
from day0.profile.read import read_profile
from day0.profile.tensor_spec import TensorSpec
from day0.profile.tensors import expected_tensors
from day0.source.model_files import ModelFiles

SMALL: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 100,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "vocab_size": 101,
    "max_position_embeddings": 64,
    "torch_dtype": "bfloat16",
}
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24}

Read = Callable[..., ArchitectureProfile]
"""`read(model_type, **keys)`: the profile of a small config; a value of None takes a key out."""


def small_reader(files_of: Callable[[dict[str, Any]], ModelFiles]) -> Read:
    def read(model_type: str, **keys: Any) -> ArchitectureProfile:
        config = SMALL | {"model_type": model_type} | keys
        return read_profile(files_of({key: value for key, value in config.items() if value is not None}))

    return read


def mixers(profile: ArchitectureProfile) -> list[GroupedQueryAttention]:
    found = [layer.mixer for layer in profile.layers if isinstance(layer.mixer, GroupedQueryAttention)]
    assert len(found) == profile.num_layers
    return found


def experts(profile: ArchitectureProfile, layer: int) -> RoutedExperts:
    found = profile.layers[layer].feed_forward
    assert isinstance(found, RoutedExperts)
    return found


def tensor(profile: ArchitectureProfile, path: str) -> TensorSpec:
    (found,) = [spec for spec in expected_tensors(profile) if spec.path == path]
    return found
