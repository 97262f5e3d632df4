"""What a sequence costs in memory, from the one formula for cache size: `LayerSpec.cache_planes` and `state_shapes`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, lcm

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
    """Bytes of one entry of one plane."""
    return plane.elements * element_bytes(dtype)


def token_bytes(plane: CachePlane, dtype: str) -> Fraction:
    """What one more token adds to one plane: its share of an entry, nothing where a full window only moves on."""
    return Fraction(0) if plane.window is not None else Fraction(plane_bytes(plane, dtype), plane.stride)


def paged_token_bytes(layers: Sequence[LayerSpec], dtype: str) -> Fraction:
    """What a token takes where every plane is paged for all tokens: windows and indexer's keys like the rest."""
    planes = (plane for layer in layers for plane in layer.cache_planes())
    return sum((Fraction(plane_bytes(plane, dtype), plane.stride) for plane in planes), Fraction(0))


def page_tokens(layers: Sequence[LayerSpec], least: int) -> int:
    """Tokens of a page: `least`, rounded up until no entry of any plane lies on two pages."""
    step = lcm(*(plane.stride for layer in layers for plane in layer.cache_planes()))
    return -(-least // step) * step


def state_bytes(state: StateShape, model_dtype: str = "bf16") -> int:
    """Bytes of one sequence's state: float32 states stay so, the others follow the model's dtype."""
    return state.elements * element_bytes("float32" if state.dtype == "float32" else model_dtype)


def cache_sizes(profile: ArchitectureProfile, dtype: str = "bf16", model_dtype: str = "bf16") -> CacheSizes:
    """Sizes for a cache kept in `dtype` and convolution buffers in `model_dtype`.

    Layers that compress may add a fraction of a byte per token; sums are rounded up once, at the end.
    """
    layers_of: dict[str, list[LayerSpec]] = {}
    for layer in profile.layers:
        layers_of.setdefault(layer.mixer.kind, []).append(layer)
    by_mixer = {
        kind: {
            "layers": len(layers),
            "kv_bytes_per_token": ceil(_per_token(layers, dtype, index=False)),
            "state_bytes_per_sequence": sum(
                state_bytes(s, model_dtype) for layer in layers for s in layer.state_shapes()
            ),
        }
        for kind, layers in layers_of.items()
    }
    return CacheSizes(
        dtype=dtype,
        kv_bytes_per_token=ceil(_per_token(profile.layers, dtype, index=False)),
        index_bytes_per_token=ceil(_per_token(profile.layers, dtype, index=True)),
        state_bytes_per_sequence=sum(entry["state_bytes_per_sequence"] for entry in by_mixer.values()),
        window_bytes_per_sequence=sum(_window_bytes(layer, dtype) for layer in profile.layers),
        by_mixer=by_mixer,
    )


def _per_token(layers: Sequence[LayerSpec], dtype: str, *, index: bool) -> Fraction:
    """What one more token adds to the layers' planes: an indexer's keys, or everything else."""
    planes = (plane for layer in layers for plane in layer.cache_planes() if plane.index == index)
    return sum((token_bytes(plane, dtype) for plane in planes), Fraction(0))


def _window_bytes(layer: LayerSpec, dtype: str) -> int:
    return sum(p.window * plane_bytes(p, dtype) for p in layer.cache_planes() if p.window is not None)
