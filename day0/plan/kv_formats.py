"""How engines lay out an entry of the cache: scales beside narrow numbers, keys of indexers, padding to whole pages."""

from __future__ import annotations

from day0.plan.mixer_sizes import latent_part
from day0.profile.cache_sizes import element_bytes, plane_bytes
from day0.profile.mixers_sparse import (
    CompressedSparseAttention,
    HeavilyCompressedAttention,
    SharedKeyValueAttention,
    SparseLatentAttention,
)
from day0.profile.profile import CachePlane, Mixer

_INDEX_GROUP = 128
_LATENT_GROUP = 128
_SHARED_GROUP = 64
_SCALE = 4


def kernel_entry(mixer: Mixer, plane: CachePlane, kv_dtype: str) -> int:
    """Bytes of one entry as vLLM and SGLang store it.

    An indexer's key is float8 with a float32 scale per 128 channels, whatever the cache's dtype (128 + 4 bytes).
    A float8 latent that is read sparsely has a float32 scale per 128 channels and its rotated part in two bytes
    (512 + 16 + 128 = 656, FlashMLA's layout); one that is read whole is bare float8. DeepSeek-V4's entries are float8
    whatever is asked (vLLM refuses anything else, SGLang's "auto" means it), with a one-byte scale per 64 channels,
    padded to eight, and the rotated part in two bytes (448 + 128 + 8 = 584).
    """
    if plane.index:
        width = plane.elements
        return width + _SCALE * -(-width // _INDEX_GROUP)
    shared = shared_part(mixer)
    if shared is not None:
        turned = min(shared.rope.dim, plane.elements)
        still = plane.elements - turned
        return still + 2 * turned + -(-(still // _SHARED_GROUP) // 8) * 8
    if element_bytes(kv_dtype) > 1:
        return plane_bytes(plane, kv_dtype)
    if isinstance(mixer, SparseLatentAttention):
        latent = mixer.attention
        scales = _SCALE * -(-latent.kv_lora_rank // _LATENT_GROUP)
        return latent.kv_lora_rank + scales + 2 * latent.qk_rope_head_dim
    return plane_bytes(plane, kv_dtype)


def shared_part(mixer: Mixer) -> SharedKeyValueAttention | None:
    """The one-vector attention inside a mixer of DeepSeek-V4's kinds."""
    match mixer:
        case SharedKeyValueAttention():
            return mixer
        case HeavilyCompressedAttention() | CompressedSparseAttention():
            return mixer.attention
        case _:
            return None


def pending_planes(mixer: Mixer) -> tuple[CachePlane, ...]:
    """What compressors keep of tokens whose entry is not finished, as engines do: a window of projections and scores.

    Two float32 vectors a token, twice as wide where entries overlap; `window` is the tokens an entry is made of.
    """
    match mixer:
        case HeavilyCompressedAttention():
            return (_pending(mixer.attention.head_dim, mixer.ratio, 1),)
        case CompressedSparseAttention():
            dims = (mixer.attention.head_dim, mixer.indexer.head_dim)
            return tuple(_pending(dim, mixer.ratio, 2) for dim in dims)
        case _:
            return ()


def _pending(head_dim: int, ratio: int, overlap: int) -> CachePlane:
    return CachePlane("pending", (2 * overlap * head_dim,), window=overlap * ratio)


def is_latent(mixer: Mixer) -> bool:
    """Whether an engine's latent kernels serve the mixer (their blocks are longer)."""
    return latent_part(mixer) is not None or shared_part(mixer) is not None
