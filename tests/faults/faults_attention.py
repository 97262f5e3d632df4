"""Faults of plain decoders: norms, rotation, attention over pages, dense feed-forward, both ends."""

from __future__ import annotations

from typing import Any

import torch
from fault_switches import batch, configured, edited, exchanged, operator, positions, weights, within, wrapped, zeroed
from hunting import Fault
from torch import Tensor

from day0.runtime.ops import norm, paged_attention, rope

DENSE, OSS, QWEN = "llama-3.1-8b", "gpt-oss-120b", "qwen3-30b-a3b"


def loose_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return norm.rms_norm(x, weight, 1e-2)


def centred_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return norm.rms_norm(x, weight + 1, eps)


def other_layout(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    return rope.rope(x, cos, sin, "interleaved" if layout == "neox" else "neox")


def coarse_angles(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    return rope.rope(x, cos.bfloat16().float(), sin.bfloat16().float(), layout)


def unrotated(x: Tensor, *rest: Any) -> Tensor:
    return x


def keys_unrotated(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    """Queries and keys are turned in one call, keys behind the four heads of queries."""
    return torch.cat((rope.rope(x[:, :4], cos, sin, layout), x[:, 4:]), dim=1)


def turned_back(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    return rope.rope(x, cos, -sin, layout)


def grown(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    return rope.rope(x, cos * 0.8, sin * 0.8, layout)


def slot_off(q: Tensor, k: Tensor, v: Tensor, slots: Tensor, *rest: Any) -> Tensor:
    return paged_attention.paged_gqa_attention(q, k, v, slots.roll(1, dims=1), *rest)


def page_off(q: Tensor, k: Tensor, v: Tensor, slots: Tensor, *rest: Any) -> Tensor:
    return paged_attention.paged_gqa_attention(q, k, v, slots.roll(16, dims=1), *rest)


def wrapped_slots(q: Tensor, k: Tensor, v: Tensor, slots: Tensor, *rest: Any) -> Tensor:
    least = int(slots.min())
    return paged_attention.paged_gqa_attention(q, k, v, least + (slots - least) % 8, *rest)


def sees_the_next(q: Tensor, k: Tensor, v: Tensor, slots: Tensor, context: Tensor, *rest: Any) -> Tensor:
    return paged_attention.paged_gqa_attention(q, k, v, slots, context + 1, *rest)


def own_token_hidden(q: Tensor, k: Tensor, v: Tensor, slots: Tensor, context: Tensor, *rest: Any) -> Tensor:
    hidden = context - 1 if q.shape[1] == 1 else context
    return paged_attention.paged_gqa_attention(q, k, v, slots, hidden, *rest)


def other_heads(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
    return paged_attention.paged_gqa_attention(q, k.flip(1), v.flip(1), *rest)


def interleaved_heads(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
    """Query heads meet key heads 0 1 0 1 in place of 0 0 1 1."""
    groups = q.shape[2] // k.shape[1]
    turned = q.unflatten(2, (groups, -1)).transpose(2, 3).flatten(2, 3)
    mixed = paged_attention.paged_gqa_attention(turned, k, v, *rest)
    return mixed.unflatten(2, (-1, groups)).transpose(2, 3).flatten(2, 3)


def unscaled(q: Tensor, k: Tensor, v: Tensor, slots: Tensor, context: Tensor, scale: float, window: Any) -> Tensor:
    return paged_attention.paged_gqa_attention(q, k, v, slots, context, 1.0, window)


def without_sinks(q: Tensor, k: Tensor, v: Tensor, slots: Tensor, context: Tensor, *rest: Any) -> Tensor:
    scale, window, chunked, _, softcap = rest
    return paged_attention.paged_gqa_attention_variant(q, k, v, slots, context, scale, window, chunked, None, softcap)


def window_short(q: Tensor, k: Tensor, v: Tensor, slots: Tensor, context: Tensor, *rest: Any) -> Tensor:
    scale, window, *more = rest
    narrow = None if window is None else window - 1
    return paged_attention.paged_gqa_attention_variant(q, k, v, slots, context, scale, narrow, *more)


def no_window(q: Tensor, k: Tensor, v: Tensor, slots: Tensor, context: Tensor, *rest: Any) -> Tensor:
    return paged_attention.paged_gqa_attention_variant(q, k, v, slots, context, rest[0], None, *rest[2:])


def other_heads_normed(q: Tensor, k: Tensor, q_weight: Tensor, k_weight: Tensor, *rest: Any) -> Any:
    return norm.qk_norm(q, k, k_weight, q_weight, *rest)


def keys_centred(q: Tensor, k: Tensor, q_weight: Tensor, k_weight: Tensor, *rest: Any) -> Any:
    return norm.qk_norm(q, k, q_weight, k_weight + 1, *rest)


def embed_one_off(ids: Tensor, weight: Tensor) -> Tensor:
    return weight[(ids + 1) % len(weight)]


def theta(config: dict[str, Any]) -> None:
    config["rope_theta"] = 10000.0


def unscaled_angles(config: dict[str, Any]) -> None:
    del config["rope_scaling"]


def all_slide(config: dict[str, Any]) -> None:
    config["layer_types"] = ["sliding_attention"] * len(config["layer_types"])


def row_late(places: Any, chunks: Any) -> Any:
    return places + 1


def decode_stuck(places: Any, chunks: Any) -> Any:
    return places - 1 if chunks[0].length == 1 else places


def from_zero(places: Any, chunks: Any) -> Any:
    """Positions that start anew with every chunk of a prompt."""
    return places - places[0]


def no_residual(sound: Any) -> Any:
    def write(stream: Any, branch: Tensor, normed: Tensor) -> None:
        stream.sum = branch

    return write


PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
_GQA = "paged_gqa_attention"
_SINKS = "paged_gqa_attention_variant"

FAULTS: tuple[Fault, ...] = (
    Fault("norm-epsilon", "every norm with epsilon 0.01", DENSE, layer=0, point="mixer_in", kind="scale",
          **operator("rms_norm", loose_norm)),
    Fault("norm-centred-at-1", "norm weights read as stored less one", DENSE, layer=0, point="mixer_in", kind="scale",
          source="num-norm-shift-twice", **operator("rms_norm", centred_norm)),
    Fault("norm-sign", "the norm's result negated", DENSE, layer=0, point="mixer_in", kind="sign",
          **operator("rms_norm", lambda x, w, e: -norm.rms_norm(x, w, e))),
    Fault("norm-skipped", "the last norm does nothing", DENSE, layer=None, point="norm", kind="missing term",
          **edited(within("norm", "rms_norm", lambda x, w, e: x), "operator")),
    Fault("rope-layout", "rotary pairs laid out the other way", DENSE, layer=0, point="mixer.q", kind="rotary layout",
          **operator("rope", other_layout)),
    Fault("rope-left-out", "nothing is rotated", DENSE, layer=0, point="mixer.q", kind="rotary layout",
          **operator("rope", unrotated)),
    Fault("rope-keys-left-out", "keys are not rotated", DENSE, layer=0, point="mixer.k", kind="rotary layout",
          **operator("rope", keys_unrotated)),
    Fault("rope-direction", "rotated backwards", DENSE, layer=0, point="mixer.q", kind="rotary layout",
          **operator("rope", turned_back)),
    Fault("rope-theta", "another base of the rotation", DENSE, layer=0, point="mixer.q", kind="rotary layout",
          **configured(theta)),
    Fault("rope-scaling-lost", "the scaling of the rotation is not read", DENSE, layer=0, point="mixer.q",
          kind="rotary layout", source="config-rope-set-after-init", **configured(unscaled_angles)),
    Fault("rope-bf16-table", "cosines and sines kept in bfloat16", DENSE, layer=0, point="mixer.q",
          kind="precision only", source="rope-bf16-table", **operator("rope", coarse_angles)),
    Fault("rope-magnitude", "rotation that shrinks by a forgotten factor", DENSE, layer=0, point="mixer.q",
          kind="scale", **operator("rope", grown)),
    Fault("position-one-late", "positions count from one", DENSE, layer=0, point="mixer.q", kind="rotary layout",
          **edited(positions(row_late), "engine")),
    Fault("position-decode-stuck", "decoding repeats the last position", DENSE, layer=0, point="mixer.q",
          kind="rotary layout", step=1, **edited(positions(decode_stuck), "engine")),
    Fault("position-chunk-restarts", "positions start anew in each chunk", DENSE, layer=0, point="mixer.q",
          kind="rotary layout", chunk=7, source="mask-chunk-offset-one", **edited(positions(from_zero), "engine")),
    Fault("gather-slot-off", "keys and values read one slot off", DENSE, layer=0, point="mixer.attention",
          kind="other", **operator(_GQA, slot_off)),
    Fault("gather-page-off", "keys and values read one page off", DENSE, layer=0, point="mixer.attention",
          kind="other", **operator(_GQA, page_off)),
    Fault("gather-wraps", "slot numbers wrap around", DENSE, layer=0, point="mixer.attention", kind="other",
          source="kv-int32-silent-wrong", **operator(_GQA, wrapped_slots)),
    Fault("mask-one-ahead", "tokens see the next one", DENSE, layer=0, point="mixer.attention", kind="other",
          **operator(_GQA, sees_the_next)),
    Fault("mask-decode-own-hidden", "decoding does not see its own token", DENSE, layer=0, point="mixer.attention",
          kind="other", step=1, **operator(_GQA, own_token_hidden)),
    Fault("write-slot-off", "keys and values of a step are written to each other's slots", DENSE, layer=0,
          point="mixer.attention", kind="other", **edited(batch(write_slots=lambda slots: slots.roll(1)), "engine")),
    Fault("heads-interleaved", "query heads meet key heads in turn", DENSE, layer=0, point="mixer.attention",
          kind="other", source="gdn-kv-head-broadcast-order", **operator(_GQA, interleaved_heads)),
    Fault("heads-reversed", "key heads in the reverse order", DENSE, layer=0, point="mixer.attention", kind="other",
          **operator(_GQA, other_heads)),
    Fault("attention-unscaled", "scores without their factor", DENSE, layer=0, point="mixer.attention", kind="other",
          **operator(_GQA, unscaled)),
    Fault("weight-transposed", "a square matrix stored the other way round", DENSE, layer=1, point="mixer.q",
          kind="other", source="load-fused-double-transpose",
          **edited(weights(lambda w: w.mT.contiguous(), "layers.1.mixer.q_proj.weight"))),
    Fault("gate-and-up-exchanged", "gate and up matrices in each other's place", DENSE, layer=1, point="ffn_out",
          kind="other",
          **edited(exchanged(("layers.1.ffn.gate_proj.weight", "layers.1.ffn.up_proj.weight")))),
    Fault("layers-exchanged", "attention of two layers in each other's place", DENSE, layer=1, point="mixer.q",
          kind="other",
          **edited(exchanged(*((f"layers.1.mixer.{n}.weight", f"layers.2.mixer.{n}.weight") for n in PROJECTIONS)))),
    Fault("output-scaled", "an output matrix one per cent too large", DENSE, layer=2, point="mixer_out", kind="scale",
          **edited(weights(lambda w: w * 1.01, "layers.2.mixer.o_proj.weight"))),
    Fault("residual-dropped", "a layer gives its branch without the stream", DENSE, layer=1, point="output",
          kind="missing term", source="pp-residual-not-sent",
          **edited(wrapped(lambda e: e.model.layers[1].ffn_res, "write", no_residual), "engine")),
    Fault("embedding-row-off", "each token looks up the next one's row", DENSE, layer=None, point="embed",
          kind="other", **operator("embedding_lookup", embed_one_off)),
    Fault("embedding-channels", "channels of the embedding moved by one", DENSE, layer=None, point="embed",
          kind="permutation", **edited(weights(lambda w: w.roll(1, dims=1), "embed.weight"))),
    Fault("head-is-embedding", "the head is taken for tied", DENSE, layer=None, point="logits", kind="other",
          source="load-tie-outer-default-true",
          **edited(lambda e: e.model.lm_head.weight.data.copy_(e.model.embed.weight), "weights")),
    Fault("qk-norms-exchanged", "norms of queries and keys in each other's place", QWEN, layer=0, point="mixer.q",
          kind="other", **operator("qk_norm", other_heads_normed)),
    Fault("key-norm-centred", "norms of keys read as stored less one", QWEN, layer=0, point="mixer.k", kind="scale",
          **operator("qk_norm", keys_centred)),
    Fault("sinks-dropped", "attention sinks left out", OSS, layer=0, point="mixer.attention", kind="scale",
          source="attn-unified-kernel-swa-sink", **operator(_SINKS, without_sinks)),
    Fault("window-off-by-one", "a window one token short", OSS, layer=0, point="mixer.attention", kind="other",
          **operator(_SINKS, window_short)),
    Fault("window-ignored", "windows are not applied", OSS, layer=0, point="mixer.attention", kind="other",
          source="config-sliding-window-gated", **operator(_SINKS, no_window)),
    Fault("window-in-full-layer", "the full layer slides too", OSS, layer=1, point="mixer.attention", kind="other",
          **configured(all_slide)),
    Fault("value-bias-dropped", "biases of values not loaded", OSS, layer=1, point="mixer.v", kind="missing term",
          **edited(zeroed("layers.1.mixer.v_proj.bias"))),
    Fault("output-bias-dropped", "bias of the output matrix not loaded", OSS, layer=2, point="mixer_out",
          kind="missing term", **edited(zeroed("layers.2.mixer.o_proj.bias"))),
)  # fmt: skip
