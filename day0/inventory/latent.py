"""What latent attention needs, over all tokens, a window, or those that an indexer chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.inventory.rotary import rotary
from day0.inventory.use import Use, linear, use
from day0.profile.profile import (
    ArchitectureProfile,
    IndexerSpec,
    LatentAttention,
    SparseLatentAttention,
)


def latent(spec: LatentAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    yield from _inputs(spec, profile)
    heads, sizes = spec.num_heads, _sizes(spec)
    if spec.window is None and not spec.sinks:
        yield use("paged_mla_attention", "mixer.attention", heads=heads, scale=spec.scale, **sizes)
    else:
        yield use(
            "window_mla_attention",
            "mixer.attention",
            heads=heads,
            scale=spec.scale,
            window=spec.window,
            sinks=spec.sinks,
            **sizes,
        )
    yield from _outputs(spec, profile)


def sparse_latent(spec: SparseLatentAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    attention: LatentAttention = spec.attention
    yield from _inputs(attention, profile)
    if spec.indexer is not None:
        yield from _indexer(spec.indexer, attention.q_lora_rank or 0, profile)
    yield use(
        "sparse_mla_attention",
        "mixer.attention",
        heads=attention.num_heads,
        chosen=spec.top_k,
        scale=attention.scale,
        sinks=attention.sinks,
        **_sizes(attention),
    )
    yield from _outputs(attention, profile)


def _sizes(spec: LatentAttention) -> dict[str, int]:
    latent, rope = spec.kv_lora_rank, spec.qk_rope_head_dim
    return {"latent_dim": latent, "rope_dim": rope, "cached_dim": latent + rope}


def _inputs(spec: LatentAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    """Queries and the cached row, up to the keys' half of the folded up-projection."""
    hidden, heads, latent = profile.hidden_size, spec.num_heads, spec.kv_lora_rank
    rope_dim, eps = spec.qk_rope_head_dim, spec.latent_norm_eps
    yield from _queries(spec, hidden)
    yield linear("mixer.kv_a_proj", hidden, latent + rope_dim, bias=spec.bias)
    yield use("rms_norm", "mixer.kv_a_norm", width=latent, eps=eps)
    if spec.scaled_latents:
        yield use("constant_scale", "mixer.kv_a_norm.scale", width=latent, factor=(hidden / latent) ** 0.5)
    if spec.rope_key_norm:
        yield use("rms_norm", "mixer.k_rope_norm", width=rope_dim, eps=eps)
    if spec.rope is not None:
        yield from rotary(spec.rope, rope_dim, q=heads, k=1)
    if spec.temperature is not None:
        step = spec.temperature
        yield use(
            "query_temperature",
            "mixer.temperature",
            heads=heads,
            head_dim=spec.qk_head_dim,
            floor=step.floor,
            growth=step.scale,
            offset=step.offset,
        )
    yield use("paged_cache_write", "mixer.cache.latent", width=latent + rope_dim)
    yield use(
        "head_linear", "mixer.kv_b_proj.keys", heads=heads, in_features=spec.qk_nope_head_dim, out_features=latent
    )


def _queries(spec: LatentAttention, hidden: int) -> Iterator[Use]:
    heads, rank = spec.num_heads, spec.q_lora_rank
    gate = spec.output_gate
    width = heads * (spec.qk_head_dim + (spec.v_head_dim if gate is not None and gate.in_query else 0))
    if rank is None:
        yield linear("mixer.q_proj", hidden, width)
        return
    yield linear("mixer.q_a_proj", hidden, rank, bias=spec.bias)
    yield use("rms_norm", "mixer.q_a_norm", width=rank, eps=spec.latent_norm_eps)
    if spec.scaled_latents:
        yield use("constant_scale", "mixer.q_a_norm.scale", width=rank, factor=(hidden / rank) ** 0.5)
    yield linear("mixer.q_b_proj", 2 * rank if spec.raw_query_latent else rank, width)


def _indexer(spec: IndexerSpec, q_lora_rank: int, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden, heads, dim = profile.hidden_size, spec.num_heads, spec.head_dim
    yield linear("mixer.indexer.q_b_proj", q_lora_rank, heads * dim)
    yield linear("mixer.indexer.k_proj", hidden, dim)
    yield use("layer_norm", "mixer.indexer.k_norm", width=dim, eps=spec.norm_eps)
    yield linear("mixer.indexer.weights_proj", hidden, heads)
    if spec.rope is not None:
        pairs = spec.rope.dim // 2
        for kind, count in (("q", heads), ("k", 1)):
            place, layout = f"mixer.indexer.rope.{kind}", spec.rope.layout
            if spec.rope_last:
                yield use("rope_tail", place, heads=count, head_dim=dim, rope_pairs=pairs, layout=layout, inverse=False)
            else:
                yield use("rope", place, heads=count, head_dim=dim, rope_pairs=pairs, layout=layout)
    if spec.pool > 1:
        yield linear("mixer.indexer.pool_gate", hidden, dim)
        yield use("gated_pool", "mixer.indexer.pool", pooled_width=dim, head_dim=dim, stride=spec.pool, overlap=False)
    yield use("paged_cache_write", "mixer.cache.index", width=dim)
    yield indexer_choice(spec, spec.pool)


def indexer_choice(spec: IndexerSpec, ratio: int) -> Use:
    """Scores and choice over keys that stand for `ratio` tokens each."""
    return use(
        "lightning_indexer_topk",
        "mixer.indexer",
        heads=spec.num_heads,
        head_dim=spec.head_dim,
        chosen=spec.top_k // spec.pool,
        scale=spec.head_dim**-0.5 * spec.num_heads**-0.5,
        ratio=ratio,
        keep_tail=spec.pool_tail,
    )


def _outputs(spec: LatentAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    """From the attended latents to the model's width."""
    hidden, heads, gate = profile.hidden_size, spec.num_heads, spec.output_gate
    yield use(
        "head_linear",
        "mixer.kv_b_proj.values",
        heads=heads,
        in_features=spec.kv_lora_rank,
        out_features=spec.v_head_dim,
    )
    if gate is not None:
        # Latent attention has gates of one kind so far.
        assert gate.activation == "sigmoid"
        if not gate.in_query:
            yield linear("mixer.g_proj", hidden, heads if gate.per == "head" else spec.value_width)
        if gate.per == "head":
            yield use("head_sigmoid_gate", "mixer.gate", heads=heads, head_dim=spec.v_head_dim)
        else:
            yield use("sigmoid_gate", "mixer.gate", width=spec.value_width)
    yield linear("mixer.o_proj", spec.value_width, hidden, bias=spec.bias)


LATENT_RULES: Mapping[type, Callable[[Any, ArchitectureProfile], Iterator[Use]]] = {
    LatentAttention: latent,
    SparseLatentAttention: sparse_latent,
}
"""Called with the spec and the profile it is part of."""
