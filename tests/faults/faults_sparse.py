"""Faults of indexers, of compressed entries and of attention over what was chosen."""

from __future__ import annotations

from typing import Any

import torch
from fault_switches import edited, operator, weights, within, wrapped, zeroed
from hunting import Fault
from torch import Tensor

from day0.runtime.ops import block_sparse, gated_pool, latent_attention, lightning_indexer, norm, rope

GLM, V32, V4, M3 = "glm-5.2", "deepseek-v3.2", "deepseek-v4-pro", "minimax-m3"
TOP_K = "lightning_indexer_topk"


def other_layout(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    return rope.rope(x, cos, sin, "interleaved" if layout == "neox" else "neox")


def first_tokens(
    q: Tensor, shares: Tensor, cache: Tensor, slots: Tensor, context: Tensor, top_k: int, *rest: Any
) -> Any:
    places = torch.arange(min(top_k, slots.shape[1]))
    rows = context[:, None, None] + torch.arange(q.shape[1])[:, None]
    return torch.where(places <= rows, places, -1)


def last_tokens(
    q: Tensor, shares: Tensor, cache: Tensor, slots: Tensor, context: Tensor, top_k: int, *rest: Any
) -> Any:
    rows = context[:, None, None] + torch.arange(q.shape[1])[:, None]
    places = (rows - top_k + 1).clamp(min=0) + torch.arange(top_k)
    return torch.where(places <= rows, places, -1)


def stale_slots(q: Tensor, shares: Tensor, cache: Tensor, slots: Tensor, *rest: Any) -> Any:
    return lightning_indexer.lightning_indexer_topk(q, shares, cache, slots.roll(1, dims=1), *rest)


def one_fewer(q: Tensor, shares: Tensor, cache: Tensor, slots: Tensor, context: Tensor, top_k: int, *rest: Any) -> Any:
    ids = lightning_indexer.lightning_indexer_topk(q, shares, cache, slots, context, top_k - 1, *rest)
    return torch.cat((ids, torch.full_like(ids[..., :1], -1)), dim=-1)


def twice_the_first(*arguments: Any) -> Any:
    ids = lightning_indexer.lightning_indexer_topk(*arguments).clone()
    ids[..., 1] = ids[..., 0]
    return ids


def negative_weights(q: Tensor, shares: Tensor, *rest: Any) -> Any:
    return lightning_indexer.lightning_indexer_topk(q, -shares, *rest)


def one_ahead(*arguments: Any) -> Any:
    """Choices of places that are one too high."""
    ids = lightning_indexer.lightning_indexer_topk(*arguments)
    return torch.where(ids > 0, ids - 1, ids)


def stale_choice(sound: Any) -> Any:
    """A layer that reads an earlier one's choice finds that of the token before."""

    def choose(x: Tensor, queries: Any, context: Any) -> Any:
        return tuple(None if choice is None else choice.roll(1, dims=1) for choice in sound(x, queries, context))

    return choose


def reads_everything(q: Tensor, q_rope: Tensor, cache: Tensor, slots: Tensor, ids: Tensor, *rest: Any) -> Tensor:
    context = torch.tensor([slots.shape[1] - q.shape[1]])
    return latent_attention.paged_mla_attention(q, q_rope, cache, slots, context, rest[0])


def unscaled(q: Tensor, q_rope: Tensor, cache: Tensor, slots: Tensor, ids: Tensor, scale: float, *rest: Any) -> Tensor:
    return latent_attention.sparse_mla_attention(q, q_rope, cache, slots, ids, 1.0, *rest)


def halves_exchanged(q: Tensor, q_rope: Tensor, cache: Tensor, *rest: Any) -> Tensor:
    """The rotated slice of the cache read from its front."""
    wide = cache.shape[-1] - q_rope.shape[-1]
    mixed = torch.cat((cache[:, :wide], cache[:, : q_rope.shape[-1]]), dim=-1)
    return latent_attention.sparse_mla_attention(q, q_rope, mixed, *rest)


def without_overlap(x: Tensor, gate: Tensor, bias: Tensor, overlap: bool, first: Any = None) -> Tensor:
    everything = torch.ones(len(x), dtype=torch.bool)
    return gated_pool.gated_pool(x, gate, bias, overlap, everything if overlap else None)


def plain_mean(x: Tensor, gate: Tensor, bias: Tensor, *rest: Any) -> Tensor:
    return gated_pool.gated_pool(x, 0 * gate, 0 * bias, *rest)


def bias_turned(x: Tensor, gate: Tensor, bias: Tensor, *rest: Any) -> Tensor:
    return gated_pool.gated_pool(x, gate, bias.roll(1, dims=0), *rest)


def fewer_blocks(q: Tensor, cache: Tensor, slots: Tensor, context: Tensor, top_k: int, *rest: Any) -> Tensor:
    ids = block_sparse.block_indexer_topk(q, cache, slots, context, top_k - 1, *rest)
    return torch.cat((ids, torch.full_like(ids[..., :1], -1)), dim=-1)


def no_local_block(q: Tensor, cache: Tensor, slots: Tensor, context: Tensor, top_k: int, block: int, own: int) -> Any:
    ids = block_sparse.block_indexer_topk(q, cache, slots, context, top_k, block, own)
    return torch.where(ids > 0, ids - 1, ids)


def one_group(q: Tensor, cache: Tensor, *rest: Any) -> Tensor:
    """The first index head's blocks for all groups."""
    ids = block_sparse.block_indexer_topk(q, cache, *rest)
    return ids[:, :, :1].expand_as(ids).contiguous()


def unbounded(gate: Tensor, up: Tensor, alpha: float, limit: Any) -> Tensor:
    return gate * torch.sigmoid(alpha * gate) * (up + 1)


def without_one(gate: Tensor, up: Tensor, alpha: float, limit: float) -> Tensor:
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * up


FAULTS: tuple[Fault, ...] = (
    Fault("indexer-rope-layout", "the indexer alone rotates in the other layout", GLM, layer=0, point="mixer.index_q",
          kind="rotary layout", source="dsa-indexer-rope-interleaved",
          **edited(within("layers.0.mixer.indexer", "rope", other_layout), "operator")),
    Fault("indexer-rope-layout-everywhere", "every indexer rotates in the other layout", V32, layer=0,
          point="mixer.index_q", kind="rotary layout", source="dsa-topk-discriminator",
          **edited(lambda e: [within(f"layers.{i}.mixer.indexer", "rope", other_layout)(e) for i in range(4)],
                   "operator")),
    Fault("indexer-key-norm", "keys of the indexer not normed", V32, layer=1, point="mixer.index_k", kind="other",
          **edited(within("layers.1.mixer.indexer", "layer_norm", lambda x, w, b, e: x), "operator")),
    Fault("indexer-key-rms", "an RMS norm in place of a layer norm", V32, layer=2, point="mixer.index_k",
          kind="other", **edited(within("layers.2.mixer.indexer", "layer_norm",
                                        lambda x, w, b, e: norm.rms_norm(x, w, e)), "operator")),
    Fault("indexer-weights-lost", "weights of the indexer's heads not loaded", GLM, layer=1,
          point="mixer.index_weights", kind="missing term",
          **edited(zeroed("layers.1.mixer.indexer.weights_proj.weight"))),
    Fault("indexer-first-tokens", "the first tokens are chosen", GLM, layer=0, point="mixer.topk_ids",
          kind="decision", **operator(TOP_K, first_tokens)),
    Fault("indexer-window", "the last tokens are chosen", V32, layer=0, point="mixer.topk_ids", kind="decision",
          **operator(TOP_K, last_tokens)),
    Fault("indexer-slot-off", "keys of the indexer read one slot off", V32, layer=0, point="mixer.topk_ids",
          kind="decision", source="dsa-indexer-cache-layout", **operator(TOP_K, stale_slots)),
    Fault("indexer-one-fewer", "one token too few is chosen", GLM, layer=0, point="mixer.topk_ids", kind="decision",
          source="dsa-indexer-buffer-off-by-one", **operator(TOP_K, one_fewer)),
    Fault("indexer-duplicate", "a token chosen twice", GLM, layer=0, point="mixer.topk_ids", kind="decision",
          **operator(TOP_K, twice_the_first)),
    Fault("indexer-sign", "the worst tokens are chosen", V32, layer=0, point="mixer.topk_ids", kind="decision",
          **operator(TOP_K, negative_weights)),
    Fault("indexer-place-off", "chosen places one too low", GLM, layer=0, point="mixer.topk_ids", kind="decision",
          **operator(TOP_K, one_ahead)),
    Fault("indexer-shared-stale", "a layer reads the choice of the token before", GLM, layer=3, point="mixer.probs",
          kind="other", source="dsa-shared-first-stale",
          **edited(wrapped(lambda e: e.model.layers[3].mixer, "choose", stale_choice), "engine")),
    Fault("sparse-reads-everything", "attention ignores the choice", GLM, layer=0, point="mixer.attention",
          kind="other", **operator("sparse_mla_attention", reads_everything)),
    Fault("sparse-unscaled", "scores of sparse attention without their factor", V32, layer=0,
          point="mixer.attention", kind="other", **operator("sparse_mla_attention", unscaled)),
    Fault("sparse-cache-layout", "the rotated slice of the cache read from its front", V32, layer=0,
          point="mixer.attention", kind="other", **operator("sparse_mla_attention", halves_exchanged)),
    Fault("compressor-no-overlap", "compressed entries without the tokens before them", V4, layer=2,
          point="mixer.compressed_kv", kind="other", **operator("gated_pool", without_overlap)),
    Fault("compressor-mean", "compressed entries are plain means", V4, layer=1, point="mixer.compressed_kv",
          kind="other", source="dsv4-compressor-no-length", **operator("gated_pool", plain_mean)),
    Fault("compressor-places", "biases by place one place off", V4, layer=4, point="mixer.compressed_kv",
          kind="other", **edited(within("layers.4.mixer.compressor", "gated_pool", bias_turned), "operator")),
    Fault("compressed-indexer-first", "the first entries are chosen", V4, layer=2, point="mixer.topk_ids",
          kind="decision", **operator(TOP_K, lambda q, w, c, slots, context, k, scale, ratio: (
              lightning_indexer.lightning_indexer_topk(q, 0 * w, c, slots, context, k - 2, scale, ratio)))),
    Fault("blocks-one-fewer", "one block too few is read", M3, layer=1, point="mixer.topk_blocks", kind="decision",
          **operator("block_indexer_topk", fewer_blocks)),
    Fault("blocks-own-missing", "the token's own block is not among them", M3, layer=1, point="mixer.topk_blocks",
          kind="decision", **operator("block_indexer_topk", no_local_block)),
    Fault("blocks-of-one-head", "one head's blocks for every group", M3, layer=1, point="mixer.topk_blocks",
          kind="decision", **operator("block_indexer_topk", one_group)),
    Fault("gate-bound-missing", "the activation without its bounds", M3, layer=0, point="ffn_out", kind="other",
          **operator("swiglu_oai_and_mul", unbounded)),
    Fault("gate-without-one", "the up projection without the one that is added", M3, layer=0, point="ffn_out",
          kind="other", **operator("swiglu_oai_and_mul", without_one)),
    Fault("norm-not-centred-at-1", "norm weights stored less one read as they are", M3, layer=0, point="mixer_in",
          kind="scale", **operator("rms_norm_plus_one", norm.rms_norm)),
    Fault("indexer-queries-block-order", "rows of two indexer heads exchanged", M3, layer=2, point="mixer.index_q",
          kind="permutation",
          **edited(weights(lambda w: w.roll(len(w) // 2, dims=0), "layers.2.mixer.indexer.q_proj.weight"))),
)  # fmt: skip
