"""Sixty wrong kernels: a file, what stands in it, what a mistaken author would have written; and their trials."""

# ruff: noqa: E501 (a table of code as it stands)

from __future__ import annotations

from typing import Any

Facts = dict[str, Any]

ATTENTION = {"tokens": 5, "slots": 90, "heads": 6, "kv_heads": 3, "head_dim": 20, "scale": 0.2}
VARIANT = {**ATTENTION, "value_dim": 12, "window": 7, "chunked": False, "sinks": True, "softcap": 3.0}
LATENT = {"tokens": 3, "slots": 90, "heads": 6, "latent_dim": 20, "rope_dim": 7, "cached_dim": 27, "scale": 0.2}
INDEXED = {"tokens": 5, "slots": 100, "heads": 6, "head_dim": 20, "chosen": 17, "scale": 0.125}
CONVOLVED = {"width": 600, "taps": 4, "past_taps": 3, "activation": "silu"}

TRIALS: dict[str, tuple[tuple[str, str, Facts], ...]] = {
    "norm": (
        ("rms_norm", "rms_norm", {"tokens": 45, "width": 100, "eps": 1e-6}),
        ("gated_rms_norm", "gated_rms_norm", {"tokens": 7, "heads": 3, "head_dim": 100, "eps": 1e-6, "activation": "silu"}),
    ),
    "gates": (
        ("silu_and_mul", "silu_and_mul", {"tokens": 33, "width": 100}),
        ("situ_and_mul", "situ_and_mul", {"tokens": 33, "width": 100, "beta": 4.0, "linear_beta": 5.0}),
    ),
    "residual": (
        ("attention_residual_mix", "attention_residual_mix",
         {"candidates": 5, "tokens": 7, "width": 100, "eps": 1e-5, "block_size": 1}),
    ),
    "causal_conv1d": (
        ("causal_conv1d_bias", "causal_conv1d_bias", {"tokens": 11, **CONVOLVED}),
        ("causal_conv1d", "causal_conv1d", {"tokens": 3, **CONVOLVED}),
    ),
    "delta_step": (
        ("kda_recurrent", "delta_steps", {"tokens": 5, "heads": 3, "head_dim": 20, "value_dim": 40, "scale": 0.1}),
        ("gated_delta_recurrent", "delta_steps",
         {"tokens": 5, "key_heads": 3, "value_heads": 6, "head_dim": 20, "value_dim": 40, "scale": 0.1}),
    ),
    "paged_attention": (
        ("paged_gqa_attention", "paged_gqa_attention", {**ATTENTION, "window": None}),
        ("paged_gqa_attention_variant", "paged_gqa_attention_variant", VARIANT),
        ("paged_gqa_attention_variant", "paged_gqa_attention_variant", {**VARIANT, "chunked": True, "softcap": None}),
    ),
    "latent_attention": (
        ("paged_mla_attention", "paged_mla_attention", LATENT),
        ("window_mla_attention", "window_mla_attention", {**LATENT, "window": 7, "sinks": True}),
        ("sparse_mla_attention", "sparse_mla_attention", {**LATENT, "chosen": 37, "sinks": True}),
    ),
    "index_scores": (
        ("lightning_indexer_topk", "lightning_indexer_topk", {**INDEXED, "ratio": 1, "keep_tail": False}),
        ("lightning_indexer_topk", "lightning_indexer_topk", {**INDEXED, "ratio": 4, "keep_tail": True, "chosen": 5}),
    ),
}  # fmt: skip
"""By module: operators, their functions in it, and sizes at which blocks are neither full nor alone."""

TRIALS["split_attention"] = (*TRIALS["paged_attention"], *TRIALS["latent_attention"])
TRIALS["select"] = TRIALS["index_scores"]

USED_BY: dict[str, tuple[str, ...]] = {
    "split_attention": ("paged_attention", "latent_attention"),
    "select": ("index_scores",),
}
"""Modules that must be loaded anew around a mutant of one that they import."""

MUTANTS: tuple[tuple[str, str, str, str], ...] = (
    # module, what is wrong, the text, its replacement
    ("norm", "last tile dropped", "_norm[triton.cdiv(rows, each),]", "_norm[max(1, rows // each),]"),
    ("norm", "last row masked", "(row < rows)[:, None]", "(row < rows - 1)[:, None]"),
    ("norm", "last column masked", "is_column = column < width", "is_column = column < width - 1"),
    ("norm", "mean over the block", "axis=1) / width + eps", "axis=1) / BLOCK + eps"),
    ("norm", "eps outside the root", "/ width + eps)[:, None]", "/ width)[:, None] + eps * 1e3"),
    ("norm", "weight not applied", "* factor[None, :]\n    else", "\n    else"),
    ("norm", "in-place input", "out = torch.empty(x.shape, dtype=dtype, device=x.device)", "out = x if x.dtype == dtype else torch.empty(x.shape, dtype=dtype, device=x.device)"),
    ("norm", "gate without its sigmoid", "share *= opened", "share = opened"),
    ("norm", "gate's other form", 'if GATE == "silu":', 'if GATE == "sigmoid":'),
    ("norm", "zeros", "found.to(out.dtype.element_ty)", "(found * 0).to(out.dtype.element_ty)"),
    ("gates", "last tile dropped", "_gate[triton.cdiv(out.numel(), BLOCK),]", "_gate[out.numel() // BLOCK,]"),
    ("gates", "mask off by one", "inside = at < count", "inside = at < count - 1"),
    ("gates", "branches exchanged", "return gate * share * up", "return gate * up / (1.0 + tl.exp(-up))"),
    ("gates", "sign of a bound lost", "tl.where(x < 0, -exact, exact)", "exact"),
    ("gates", "half a bound", "tl.exp(-2.0 * tl.abs(x) / bound)", "tl.exp(-tl.abs(x) / bound)"),
    ("gates", "up not bounded", "up = bounded(up, linear_beta)", "up = up"),
    ("gates", "bounds exchanged", "return bounded(gate, beta) * share * up", "return bounded(gate, linear_beta) * share * up"),
    ("gates", "in-place input", "out = torch.empty_like(gate)", "out = gate"),
    ("residual", "last candidate left out", "for number in tl.static_range(COUNT)", "for number in tl.static_range(COUNT - 1)"),
    ("residual", "not rescaled", "total = total * kept + share", "total = total + share"),
    ("residual", "duplicate index", "candidates[number] +", "candidates[0] +"),
    ("residual", "weights not normalised", "tl.exp(scores - best) / total", "tl.exp(scores - best)"),
    ("residual", "last token dropped", "_mix[tokens,]", "_mix[max(1, tokens - 1),]"),
    ("causal_conv1d", "last tile of channels dropped", "triton.cdiv(width, CHANNELS), triton", "max(1, width // CHANNELS), triton"),
    ("causal_conv1d", "last tile of tokens dropped", "triton.cdiv(length, tokens), seq", "max(1, length // tokens), seq"),
    ("causal_conv1d", "taps reversed", "weight + channel * TAPS + tap", "weight + channel * TAPS + PAST - tap"),
    ("causal_conv1d", "looks one token ahead", "at = t + tap - PAST\n", "at = tl.minimum(t + tap - PAST + 1, length - 1)\n"),
    ("causal_conv1d", "truncated history", "seen = tl.where(at < 0, before.to(x.dtype.element_ty).to(tl.float32), seen)", "seen = tl.where(at < 0, 0.0, seen)"),
    ("causal_conv1d", "stale state handed on", "kept = tl.where(at < 0, before.to(x.dtype.element_ty).to(tl.float32), seen)", "kept = tl.load(state + place, mask=inside, other=0.0).to(tl.float32)"),
    ("causal_conv1d", "state off by one", "at = length - PAST + place +", "at = length - PAST + place - 1 +"),
    ("causal_conv1d", "state in place", "moved = torch.empty(state.shape, dtype=state.dtype, device=x.device)", "moved = state"),
    ("delta_step", "last columns dropped", "_steps[triton.cdiv(values, columns), ", "_steps[max(1, values // columns), "),
    ("delta_step", "no decay", "state *= decay[:, None]", "state *= 1.0"),
    ("delta_step", "no decay per head", "state *= tl.exp(tl.load(g + t * g_token).to(tl.float32))", "state *= 1.0"),
    ("delta_step", "prediction left out", "written = strength * (value - predicted)", "written = strength * value"),
    ("delta_step", "answer before the write", "answer = (found + written * tl.sum(key * query, axis=0)) * scale", "answer = found * scale"),
    ("delta_step", "wrong head", "key_head = head // SHARING", "key_head = head % (HEADS // SHARING)"),
    ("delta_step", "last channel masked", "channels < KEYS, columns < VALUES", "channels < KEYS - 1, columns < VALUES"),
    ("delta_step", "stale state", "tl.store(target + row * target_row + cells, state, mask=is_cell)", "tl.store(target + row * target_row + cells, tl.load(source + row * source_row + cells, mask=is_cell), mask=is_cell)"),
    ("delta_step", "last token left out", "for t in range(length):", "for t in range(length - 1):"),
    ("delta_step", "state in place", "moved = torch.empty_like(state, memory_format=torch.contiguous_format)", "moved = state"),
    ("paged_attention", "sees one token ahead", "(places[None, :] <= place[:, None])", "(places[None, :] <= place[:, None] + 1)"),
    ("paged_attention", "itself masked", "(places[None, :] <= place[:, None])", "(places[None, :] < place[:, None])"),
    ("paged_attention", "window off by one", "tl.maximum(place - window + 1, 0)", "tl.maximum(place - window, 0)"),
    ("paged_attention", "chunks as windows", "place - place % window if CHUNKED else", "tl.maximum(place - window + 1, 0) if CHUNKED else"),
    ("paged_attention", "wrong head of a group", "key_head * GROUP + rows % GROUP", "(rows % GROUP) * tl.num_programs(1) + key_head"),
    ("paged_attention", "stale slots", "fetched = tl.load(slots + places + BLOCK_S, mask=places + BLOCK_S < high, other=0)", "fetched = at"),
    ("paged_attention", "not rescaled", "mixed * kept[:, None]", "mixed"),
    ("paged_attention", "softcap twice", "tl.exp(2.0 * scores / softcap)", "tl.exp(4.0 * scores / softcap)"),
    ("latent_attention", "rope left out", 'scores = tl.dot(lq, tl.trans(values), scores, input_precision="ieee")', 'scores = tl.dot(lq, tl.trans(values), input_precision="ieee")'),
    ("latent_attention", "sees one token less", "last = (tl.load(context + sequence) + t + 1)", "last = (tl.load(context + sequence) + tl.maximum(t, 1))"),
    ("latent_attention", "window off by one", "tl.maximum(last - window, 0)", "tl.maximum(last - window - 1, 0)"),
    ("latent_attention", "empty places count", 'scores = tl.where(there[None, :], scores, float("-inf"))', "scores = scores"),
    ("latent_attention", "slots of another sequence", "slots + (token // length) * slots_row + places", "slots + places"),
    ("split_attention", "last block left out", "blocks = tl.cdiv(last - first, BLOCK)", "blocks = tl.maximum((last - first) // BLOCK, 1)"),
    ("split_attention", "a sink for every part", "best = tl.where(split == 0, sink, best)\n        total = tl.where(split == 0, 1.0, total)", "best = sink\n        total = tl.where(is_row, 1.0, 1.0)"),
    ("split_attention", "parts not weighed", "weights = tl.exp2(logs - tl.max(logs, axis=0))", "weights = tl.exp2(logs * 0.0)"),
    ("split_attention", "sum not rescaled", "return weights, kept, higher, total * kept +", "return weights, kept, higher, total +"),
    ("index_scores", "no rectifier", "tl.maximum(products, 0.0)", "products"),
    ("index_scores", "sees one entry ahead", "last = tl.minimum((before + t + 1) // ratio, low + span)", "last = tl.minimum((before + t + 1) // ratio - 1, low + span)"),
    ("index_scores", "tail forgotten", "torch.where(totals % ratio > 0, totals // ratio, -1)", "torch.where(totals % ratio > 0, totals // ratio - 1, -1)"),
    ("index_scores", "one sequence's weights", "weights += sequence * w_sequence +", "weights +="),
    ("select", "ties to the last", "chosen = above | (level & (rank <= room))", "chosen = above | (level & (rank > tl.max(rank) - room))"),
    ("select", "one too few", "(rank <= room)", "(rank < room)"),
    ("select", "order of negatives", "tl.where(scores < 0.0, ~bits, bits | 0x80000000)", "bits | 0x80000000"),
    ("select", "ends not written", "mask=(ends >= last) & (ends < top_k)", "mask=(ends > last) & (ends < top_k)"),
)  # fmt: skip
