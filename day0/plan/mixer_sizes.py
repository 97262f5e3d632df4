"""What each kind of mixer means to a planner: the heads it is cut by, its tensors in a step, its arithmetic.

One case per spec; a kind without one is not sized, and a plan of it cannot say whether it fits.
"""

from __future__ import annotations

from dataclasses import dataclass

from day0.profile.grouped_query import CrossAttention, GroupedQueryAttention
from day0.profile.latent_attention import LatentAttention
from day0.profile.mixers import KimiDeltaAttention, Mixer, NoMixer
from day0.profile.mixers_convolved import (
    CompressedConvolutionalAttention,
    ParallelMixers,
    RelativeConvolvedAttention,
)
from day0.profile.mixers_linear import (
    GatedDeltaNet,
    LightningAttention,
    LinearMap,
    Mamba,
    Mamba2,
    ShortConvolution,
)
from day0.profile.mixers_sparse import (
    BlockSparseAttention,
    CompressedSparseAttention,
    HeavilyCompressedAttention,
    SharedKeyValueAttention,
    SparseLatentAttention,
)

SIZED_MIXERS = (
    GroupedQueryAttention,
    CrossAttention,
    LatentAttention,
    SparseLatentAttention,
    SharedKeyValueAttention,
    HeavilyCompressedAttention,
    CompressedSparseAttention,
    BlockSparseAttention,
    KimiDeltaAttention,
    GatedDeltaNet,
    LightningAttention,
    Mamba,
    Mamba2,
    ShortConvolution,
    LinearMap,
    CompressedConvolutionalAttention,
    RelativeConvolvedAttention,
    ParallelMixers,
    NoMixer,
)
"""The mixers that the functions of this file cover."""


@dataclass(frozen=True, slots=True)
class HeadCut:
    """Equal parts that a mixer is cut between: `must_divide` by the ranks; `may_repeat` are kept by several ranks each
    where there are more ranks than parts (key/value heads, groups of a state space)."""

    name: str
    parts: int
    may_repeat: bool = False


def head_cuts(mixer: Mixer) -> tuple[HeadCut, ...]:
    """All that must be shared out evenly when the mixer is cut; nothing for one that every rank holds whole."""
    match mixer:
        case (
            GroupedQueryAttention()
            | CrossAttention()
            | CompressedConvolutionalAttention()
            | RelativeConvolvedAttention()
        ):
            kv_heads = HeadCut("key/value heads", mixer.num_kv_heads, may_repeat=True)
            return HeadCut(f"{mixer.kind} heads", mixer.num_heads), kv_heads
        case (
            LatentAttention()
            | SparseLatentAttention()
            | SharedKeyValueAttention()
            | HeavilyCompressedAttention()
            | CompressedSparseAttention()
            | KimiDeltaAttention()
            | LightningAttention()
        ):
            heads = mixer.attention.num_heads if isinstance(mixer, _WRAPPED) else mixer.num_heads
            return (HeadCut(f"{mixer.kind} heads", heads),)
        case GatedDeltaNet():
            key_heads = HeadCut(f"{mixer.kind} key heads", mixer.num_key_heads)
            return HeadCut(f"{mixer.kind} value heads", mixer.num_value_heads), key_heads
        case Mamba2():
            groups = HeadCut("state-space groups", mixer.num_groups, may_repeat=True)
            return HeadCut(f"{mixer.kind} heads", mixer.num_heads), groups
        case Mamba() | ShortConvolution():
            return (HeadCut(f"{mixer.kind} channels", mixer.width),)
        case BlockSparseAttention():
            return head_cuts(mixer.attention)
        case ParallelMixers():
            return head_cuts(mixer.attention) + head_cuts(mixer.state_space)
        case _:
            return ()


_WRAPPED = (SparseLatentAttention, HeavilyCompressedAttention, CompressedSparseAttention)


def latent_part(mixer: Mixer) -> LatentAttention | None:
    """The latent attention inside a mixer, chosen tokens or all."""
    if isinstance(mixer, SparseLatentAttention):
        return mixer.attention
    return mixer if isinstance(mixer, LatentAttention) else None


def attention_heads(mixer: Mixer) -> int:
    """Heads whose scores over the past exist at once; 0 for what keeps a state instead."""
    match mixer:
        case ParallelMixers():
            return mixer.attention.num_heads
        case (
            SparseLatentAttention()
            | HeavilyCompressedAttention()
            | CompressedSparseAttention()
            | BlockSparseAttention()
        ):
            return mixer.attention.num_heads
        case (
            GroupedQueryAttention()
            | CrossAttention()
            | LatentAttention()
            | SharedKeyValueAttention()
            | CompressedConvolutionalAttention()
            | RelativeConvolvedAttention()
        ):
            return mixer.num_heads
        case _:
            return 0


def mixer_elements(mixer: Mixer, hidden: int, cut: int) -> int:
    """Elements per token inside a mixer on one of `cut` ranks: projections, what is read of them, and the output."""
    if isinstance(mixer, NoMixer):
        return 0
    return _inner_elements(mixer, cut) + hidden


def _inner_elements(mixer: Mixer, cut: int) -> int:
    match mixer:
        case GroupedQueryAttention():
            heads, kv_heads = -(-mixer.num_heads // cut), -(-mixer.num_kv_heads // cut)
            gate = heads * mixer.value_dim if mixer.output_gate else 0
            return (mixer.head_dim + mixer.value_dim) * (heads + kv_heads) + gate
        case CrossAttention():
            return 2 * -(-mixer.num_heads // cut) * mixer.head_dim
        case CompressedConvolutionalAttention() | RelativeConvolvedAttention():
            # queries, keys and values before and after their convolution, and the output
            return mixer.head_dim * (3 * -(-mixer.num_heads // cut) + 4 * -(-mixer.num_kv_heads // cut))
        case LatentAttention():
            return _latent_elements(mixer, cut)
        case SparseLatentAttention():
            index = mixer.indexer.head_dim * (mixer.indexer.num_heads + 1) if mixer.indexer else 0
            return _latent_elements(mixer.attention, cut) + index
        case SharedKeyValueAttention():
            return _shared_elements(mixer, cut)
        case HeavilyCompressedAttention():
            return _shared_elements(mixer.attention, cut) + 2 * mixer.attention.head_dim
        case CompressedSparseAttention():
            index = mixer.indexer.head_dim * (mixer.indexer.num_heads + 4)
            return _shared_elements(mixer.attention, cut) + 4 * mixer.attention.head_dim + index
        case BlockSparseAttention():
            index = mixer.indexer.head_dim * (-(-mixer.indexer.num_heads // cut) + 1)
            return _inner_elements(mixer.attention, cut) + index
        case KimiDeltaAttention():
            # q, k, v before and after the convolution, float32 decay (two elements' worth), gate and output
            return -(-mixer.num_heads // cut) * mixer.head_dim * (3 + 3 + 2 + 1 + 1)
        case GatedDeltaNet():
            # q, k, v before and after the convolution, gate z and output
            return 2 * -(-mixer.conv_width // cut) + 2 * -(-mixer.value_width // cut)
        case LightningAttention():
            return 5 * -(-mixer.width // cut)
        case Mamba():
            # x and z, x convolved, a float32 step size per channel, output
            return -(-mixer.width // cut) * (3 + 2 + 1) + mixer.step_rank + 2 * mixer.state_size
        case Mamba2():
            return -(-(mixer.projection_width + mixer.conv_width + mixer.width) // cut)
        case ShortConvolution():
            return 5 * -(-mixer.width // cut)
        case ParallelMixers():
            return _inner_elements(mixer.attention, cut) + _inner_elements(mixer.state_space, cut)
        case _:
            return 0


def _latent_elements(mixer: LatentAttention, cut: int) -> int:
    # query and expanded key at full width, expanded value, output; the low-rank inputs are not cut
    per_head = 2 * mixer.qk_head_dim + 2 * mixer.v_head_dim + (mixer.v_head_dim if mixer.output_gate else 0)
    low_rank = (mixer.q_lora_rank or 0) + mixer.kv_lora_rank + mixer.qk_rope_head_dim
    return -(-mixer.num_heads // cut) * per_head + low_rank


def _shared_elements(mixer: SharedKeyValueAttention, cut: int) -> int:
    groups = -(-mixer.o_groups // cut)
    return (
        2 * -(-mixer.num_heads // cut) * mixer.head_dim
        + mixer.head_dim
        + mixer.q_lora_rank
        + groups * (mixer.o_lora_rank)
    )


def mixer_flops(mixer: Mixer, context: int, cut: int) -> float:
    """Operations of one token on one rank besides its matrices: scores and weighted sum, or the state's update."""
    match mixer:
        case GroupedQueryAttention():
            return 2.0 * -(-mixer.num_heads // cut) * (mixer.head_dim + mixer.value_dim) * _reach(mixer.window, context)
        case CompressedConvolutionalAttention() | RelativeConvolvedAttention():
            return 4.0 * -(-mixer.num_heads // cut) * mixer.head_dim * _reach(mixer.window, context)
        case LatentAttention():
            return _latent_flops(mixer, _reach(mixer.window, context), cut)
        case SparseLatentAttention():
            scan = (
                2.0 * mixer.indexer.num_heads * mixer.indexer.head_dim * context / mixer.indexer.pool
                if (mixer.indexer)
                else 0.0
            )
            return _latent_flops(mixer.attention, min(context, mixer.top_k), cut) + scan
        case SharedKeyValueAttention():
            return _shared_flops(mixer, _reach(mixer.window, context), cut)
        case HeavilyCompressedAttention():
            entries = _reach(mixer.attention.window, context) + context // mixer.ratio
            return _shared_flops(mixer.attention, entries, cut)
        case CompressedSparseAttention():
            compressed = context // mixer.ratio
            entries = _reach(mixer.attention.window, context) + min(compressed, mixer.indexer.top_k)
            scan = 2.0 * mixer.indexer.num_heads * mixer.indexer.head_dim * compressed
            return _shared_flops(mixer.attention, entries, cut) + scan
        case BlockSparseAttention():
            scan = 2.0 * -(-mixer.indexer.num_heads // cut) * mixer.indexer.head_dim * context
            return mixer_flops(mixer.attention, min(context, mixer.indexer.reach), cut) + scan
        case KimiDeltaAttention() | LightningAttention():
            return 8.0 * -(-mixer.num_heads // cut) * mixer.head_dim**2
        case GatedDeltaNet():
            return 8.0 * -(-mixer.num_value_heads // cut) * mixer.key_head_dim * mixer.value_head_dim
        case Mamba() | Mamba2():
            return 6.0 * -(-mixer.width // cut) * mixer.state_size
        case ShortConvolution():
            return 2.0 * -(-mixer.width // cut) * mixer.conv_kernel
        case ParallelMixers():
            return mixer_flops(mixer.attention, context, cut) + mixer_flops(mixer.state_space, context, cut)
        case _:
            return 0.0


def _reach(window: int | None, context: int) -> int:
    return context if window is None else min(context, window)


def _latent_flops(mixer: LatentAttention, reach: int, cut: int) -> float:
    return 2.0 * -(-mixer.num_heads // cut) * (2 * mixer.kv_lora_rank + mixer.qk_rope_head_dim) * reach


def _shared_flops(mixer: SharedKeyValueAttention, entries: int, cut: int) -> float:
    return 4.0 * -(-mixer.num_heads // cut) * mixer.head_dim * entries
