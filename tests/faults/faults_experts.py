"""Faults of routing and experts, packed ones among them."""

from __future__ import annotations

from typing import Any

import torch
from fault_switches import edited, exchanged, operator, weights, within, zeroed
from hunting import Fault
from torch import Tensor

from day0.runtime.ops import router

QWEN, K3, OSS, V32, V4, NEXT, TIED = (
    "qwen3-30b-a3b", "kimi-k3", "gpt-oss-120b", "deepseek-v3.2", "deepseek-v4-pro", "qwen3-next-80b-a3b", "tied router"
)  # fmt: skip
SOFTMAX, SIGMOID = "moe_router_topk_softmax", "moe_router_topk_sigmoid_bias"


def softmax(change: Any) -> dict[str, Any]:
    return operator(SOFTMAX, lambda logits, *rest: change(*router.moe_router_topk_softmax(logits, *rest)))


def unnormalised(logits: Tensor, top_k: int, renormalize: bool, *rest: Any) -> Any:
    return router.moe_router_topk_softmax(logits, top_k, False, *rest)


def ties_to_the_highest(logits: Tensor, top_k: int, *rest: Any) -> Any:
    chosen, ids = router.moe_router_topk_softmax(logits.flip(-1), top_k, *rest)
    return chosen, logits.shape[-1] - 1 - ids


def biased_weights(logits: Tensor, top_k: int, renormalize: bool, scale: float, bias: Tensor, *groups: int) -> Any:
    _, ids = router.moe_router_topk_sigmoid_bias(logits, top_k, renormalize, scale, bias, *groups)
    chosen = (torch.sigmoid(logits.float()) + bias).gather(-1, ids)
    return (chosen / chosen.sum(-1, keepdim=True) if renormalize else chosen) * scale, ids


def unbiased(logits: Tensor, top_k: int, renormalize: bool, scale: float, bias: Tensor, *groups: int) -> Any:
    return router.moe_router_topk_sigmoid_bias(logits, top_k, renormalize, scale, 0 * bias, *groups)


def coarse_bias(logits: Tensor, top_k: int, renormalize: bool, scale: float, bias: Tensor, *groups: int) -> Any:
    rounded = (bias * 4).round() / 4
    return router.moe_router_topk_sigmoid_bias(logits, top_k, renormalize, scale, rounded, *groups)


def without_groups(logits: Tensor, top_k: int, renormalize: bool, scale: float, bias: Tensor, *groups: int) -> Any:
    return router.moe_router_topk_sigmoid_bias(logits, top_k, renormalize, scale, bias)


def next_group(logits: Tensor, top_k: int, renormalize: bool, scale: float, bias: Tensor, *groups: int) -> Any:
    chosen, ids = router.moe_router_topk_sigmoid_bias(logits, top_k, renormalize, scale, bias, *groups)
    return chosen, (ids + logits.shape[-1] // groups[0]) % logits.shape[-1]


def scaled_twice(logits: Tensor, top_k: int, renormalize: bool, scale: float, *rest: Any) -> Any:
    return router.moe_router_topk_sigmoid_bias(logits, top_k, renormalize, scale * scale, *rest)


def unscaled(logits: Tensor, top_k: int, renormalize: bool, scale: float, *rest: Any) -> Any:
    return router.moe_router_topk_sigmoid_bias(logits, top_k, renormalize, 1.0, *rest)


def softmax_scores(logits: Tensor, *rest: Any) -> Any:
    return router.moe_router_topk_softmax(logits, *rest)


def hash_of_the_next(logits: Tensor, ids: Tensor, table: Tensor, *rest: Any) -> Any:
    return router.moe_router_hash(logits, (ids + 1) % len(table), table, *rest)


def swapped_nibbles(packed: Tensor) -> Tensor:
    low = packed.view(torch.uint8)
    return ((low << 4) | (low >> 4)).view(packed.dtype)


def other_axis(scale: Tensor) -> Tensor:
    """Scales laid out group by group in place of row by row."""
    return scale.mT.reshape(scale.shape)


def wrong_stride(scale: Tensor) -> Tensor:
    """Rows of scales read as if each were one longer."""
    groups = scale.shape[-1]
    flat = scale.reshape(len(scale), -1)
    rows, columns = torch.arange(flat.shape[1]) // groups, torch.arange(flat.shape[1]) % groups
    return flat[:, (rows * (groups + 1) + columns) % flat.shape[1]].reshape(scale.shape)


def experts(layer: int, leaf: str) -> tuple[str, ...]:
    return tuple(f"layers.{layer}.ffn.experts.{part}.{leaf}" for part in ("gate", "up", "down"))


FAULTS: tuple[Fault, ...] = (
    Fault("router-not-renormalised", "weights of the chosen experts do not add up to one", QWEN, layer=0,
          point="ffn.topk_weights", kind="scale", **operator(SOFTMAX, unnormalised)),
    Fault("router-one-expert-off", "each choice means the next expert", QWEN, layer=0, point="ffn.topk_ids",
          kind="decision", **softmax(lambda w, ids: (w, (ids + 1) % 8))),
    Fault("router-duplicate", "the best expert is chosen every time", QWEN, layer=0, point="ffn.topk_ids",
          kind="decision", **softmax(lambda w, ids: (w, ids[:, :1].expand_as(ids)))),
    Fault("router-weights-reversed", "weights and experts in opposite orders", QWEN, layer=0,
          point="ffn.topk_weights", kind="permutation", **softmax(lambda w, ids: (w.flip(-1), ids))),
    Fault("router-tie-reversed", "equal scores go to the highest number", TIED, layer=2, point="ffn.topk_ids",
          kind="exact tie", **operator(SOFTMAX, ties_to_the_highest)),
    Fault("router-bias-in-weights", "the correction bias is in the weights too", K3, layer=1,
          point="ffn.topk_weights", kind="other", **operator(SIGMOID, biased_weights)),
    Fault("router-bias-dropped", "chosen without the correction bias", K3, layer=1, point="ffn.topk_ids",
          kind="decision", **operator(SIGMOID, unbiased)),
    Fault("router-bias-coarse", "the correction bias rounded until it no longer tells experts apart", K3, layer=1,
          point="ffn.topk_ids", kind="decision", source="moe-bias-bf16-collapse", **operator(SIGMOID, coarse_bias)),
    Fault("router-scoring", "softmax in place of sigmoid", K3, layer=1, point="ffn.topk_weights", kind="other",
          **operator(SIGMOID, softmax_scores)),
    Fault("router-groups-ignored", "experts of every group are eligible", V32, layer=3, point="ffn.topk_ids",
          kind="decision", source="moe-group-topk-bf16", **operator(SIGMOID, without_groups)),
    Fault("router-wrong-group", "experts of the next group are taken", V32, layer=3, point="ffn.topk_ids",
          kind="decision", **operator(SIGMOID, next_group)),
    Fault("router-scaled-twice", "the routed scaling factor applied twice", V32, layer=3, point="ffn.topk_weights",
          kind="scale", source="moe-scale-twice", **operator(SIGMOID, scaled_twice)),
    Fault("router-scale-missing", "the routed scaling factor left out", V32, layer=3, point="ffn.topk_weights",
          kind="scale", source="moe-scale-missing-in-one-path", **operator(SIGMOID, unscaled)),
    Fault("router-hash-next-token", "experts of the next token id", V4, layer=0, point="ffn.topk_ids",
          kind="decision", **operator("moe_router_hash", hash_of_the_next)),
    Fault("router-rows-exchanged", "two experts' router rows in each other's place", NEXT, layer=2,
          point="ffn.router_logits", kind="permutation",
          **edited(weights(lambda w: w.roll(1, dims=0), "layers.2.ffn.router.weight"))),
    Fault("activation-not-gated", "the up projection passes ungated", QWEN, layer=0, point="ffn.routed_sum",
          kind="other", **operator("silu_and_mul", lambda gate, up: gate)),
    Fault("activation-nan", "an activation gives NaN", QWEN, layer=0, point="ffn.routed_sum", kind="NaN origin",
          **operator("silu_and_mul", lambda gate, up: gate * up / 0.0 * 0.0)),
    Fault("shared-expert-dropped", "the shared expert's weights are zero", K3, layer=2, point="ffn.shared_out",
          kind="missing term", **edited(zeroed("layers.2.ffn.shared.down_proj.weight"))),
    Fault("shared-gate-dropped", "the shared expert without its gate", NEXT, layer=0, point="ffn.shared_out",
          kind="scale", **operator("token_sigmoid_gate", lambda x, gate: x)),
    Fault("experts-moved", "each expert has its neighbour's output matrix", NEXT, layer=1, point="ffn.routed_sum",
          kind="other", **edited(weights(lambda w: w.roll(1, dims=0), "layers.1.ffn.experts.down.weight"))),
    Fault("experts-gate-up-exchanged", "halves of the joined matrix the wrong way round", NEXT, layer=1,
          point="ffn.routed_sum", kind="other", source="fused-ckpt-second-scale-uninit",
          **edited(exchanged(("layers.1.ffn.experts.gate.weight", "layers.1.ffn.experts.up.weight")))),
    Fault("expert-biases-dropped", "biases of the experts' output not loaded", OSS, layer=1, point="ffn.routed_sum",
          kind="other", **edited(zeroed("layers.1.ffn.experts.down.bias"))),
    Fault("mxfp4-nibbles", "the two numbers of a byte exchanged", OSS, layer=1, point="ffn.routed_sum", kind="other",
          **edited(weights(swapped_nibbles, *experts(1, "packed")))),
    Fault("mxfp4-nibbles-latent", "the two numbers of a byte exchanged", K3, layer=4, point="ffn.routed_sum",
          kind="other", **edited(weights(swapped_nibbles, *experts(4, "packed")))),
    Fault("mxfp4-scale-bias", "exponents one too small", K3, layer=4, point="ffn.routed_sum", kind="scale",
          **edited(weights(lambda s: s - 1, experts(4, "scale")[2]))),
    Fault("mxfp4-scale-bias-everywhere", "exponents of all three matrices one too small", OSS, layer=0,
          point="ffn.routed_sum", kind="scale", **edited(weights(lambda s: s - 1, *experts(0, "scale")))),
    Fault("mxfp4-group-axis", "scales laid out along the other axis", OSS, layer=2, point="ffn.routed_sum",
          kind="other", **edited(weights(other_axis, *experts(2, "scale")))),
    Fault("mxfp4-scale-stride", "scales read with a padded row length", OSS, layer=0, point="ffn.routed_sum",
          kind="other", source="mxfp4-padded-scale-address", **edited(weights(wrong_stride, *experts(0, "scale")))),
    Fault("mxfp4-expert-slice", "packed numbers of the next expert under one's own scales", OSS, layer=2,
          point="ffn.routed_sum", kind="other",
          **edited(weights(lambda p: p.roll(1, dims=0), *experts(2, "packed")))),
    Fault("fp8-block-scales-exchanged", "blocks of an 8-bit matrix under each other's scale", V32, layer=1,
          point="mixer.q", kind="scale", source="fp8-dequant-block-derived",
          **edited(weights(lambda s: s.flip(0), "layers.1.mixer.q_b_proj.scale"))),
    Fault("fp8-scale-inverted", "an 8-bit matrix divided by its scale; the norm behind it mends the latent", V32,
          layer=2, point="mixer.k_rope", kind="scale",
          **edited(weights(lambda s: 1 / s, "layers.2.mixer.kv_a_proj.scale"))),
    Fault("latent-norm-skipped", "the norm behind the latent experts does nothing", K3, layer=1,
          point="ffn.latent_norm", kind="missing term",
          **edited(within("layers.1.ffn.latent_norm", "rms_norm", lambda x, w, e: x), "operator")),
)  # fmt: skip
