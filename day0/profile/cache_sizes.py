"""What a sequence costs in memory, from the one formula for cache size: `LayerSpec.cache_planes` and `state_shapes`."""

from __future__ import annotations

from dataclasses import dataclass

from day0.errors import InputError
from day0.profile.profile import ArchitectureProfile, CachePlane, LayerSpec, StateShape

ELEMENT_BYTES = {
    "float32": 4,
    "fp32": 4,
    "bfloat16": 2,
    "bf16": 2,
    "float16": 2,
    "fp16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
}
"""Bytes of one cached element by dtype name."""


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """Bytes, unsharded. A token costs `kv_bytes_per_token` once every window is full; a sequence costs
    `window_bytes_per_sequence` for full windows and `state_bytes_per_sequence` whatever its length.

    `by_mixer` splits bytes per token and state bytes per sequence by mixer kind.
    """

    dtype: str
    kv_bytes_per_token: int
    index_bytes_per_token: int
    state_bytes_per_sequence: int
    window_bytes_per_sequence: int
    by_mixer: dict[str, dict[str, int]]


def element_bytes(dtype: str) -> int:
    if dtype not in ELEMENT_BYTES:
        raise InputError(f"cache dtype {dtype!r} is not known", hint=f"known: {', '.join(sorted(ELEMENT_BYTES))}")
    return ELEMENT_BYTES[dtype]


def plane_bytes(plane: CachePlane, dtype: str) -> int:
    """Bytes of one token in one plane."""
    return plane.elements * element_bytes(dtype)


def state_bytes(state: StateShape, model_dtype: str = "bf16") -> int:
    """Bytes of one sequence's state: float32 states stay so, the others follow the model's dtype."""
    return state.elements * element_bytes("float32" if state.dtype == "float32" else model_dtype)


def cache_sizes(profile: ArchitectureProfile, dtype: str = "bf16", model_dtype: str = "bf16") -> CacheSizes:
    """Sizes for a cache kept in `dtype` and convolution buffers in `model_dtype`."""
    by_mixer: dict[str, dict[str, int]] = {}
    window_bytes = 0
    for layer in profile.layers:
        entry = by_mixer.setdefault(
            layer.mixer.kind, {"layers": 0, "kv_bytes_per_token": 0, "state_bytes_per_sequence": 0}
        )
        entry["layers"] += 1
        entry["kv_bytes_per_token"] += sum(plane_bytes(p, dtype) for p in layer.cache_planes() if p.window is None)
        entry["state_bytes_per_sequence"] += sum(state_bytes(s, model_dtype) for s in layer.state_shapes())
        window_bytes += _window_bytes(layer, dtype)
    return CacheSizes(
        dtype=dtype,
        kv_bytes_per_token=sum(entry["kv_bytes_per_token"] for entry in by_mixer.values()),
        index_bytes_per_token=0,  # no mixer with an indexer is known yet
        state_bytes_per_sequence=sum(entry["state_bytes_per_sequence"] for entry in by_mixer.values()),
        window_bytes_per_sequence=window_bytes,
        by_mixer=by_mixer,
    )


def _window_bytes(layer: LayerSpec, dtype: str) -> int:
    return sum(p.window * plane_bytes(p, dtype) for p in layer.cache_planes() if p.window is not None)
