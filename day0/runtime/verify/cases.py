"""What each operator is measured on: inputs at given sizes, how it is called, and what float64 says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from day0.plan.settings import EngineSettings
from day0.profile.packing_formats import mxfp4
from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.sampler import Sampler
from day0.runtime.engine.sequence import Sequence
from day0.runtime.ops import activation
from day0.runtime.ops.registry import KERNELS, REFERENCE, Kernel
from day0.runtime.ops.rope import rope_frequencies, rope_table
from day0.runtime.ops.routed_experts import ExpertMatrices, StackedExperts
from day0.runtime.quant.decoder import Decoder
from day0.runtime.verify import exact
from day0.runtime.verify.cases_compressed import COMPRESSED
from day0.runtime.verify.cases_grouped import GROUPED, table_of_axes
from day0.runtime.verify.cases_recurrent import RECURRENT
from day0.runtime.verify.cases_sparse import SPARSE
from day0.runtime.verify.cases_vision import VISION
from day0.runtime.verify.draw import Draw, Facts, Prepared


def _embedding_lookup(draw: Draw, f: Facts) -> Prepared:
    weight, weight64 = draw.normal(f["vocab"], f["width"])
    ids = draw.integers(f["vocab"], f["tokens"])
    return (torch.from_numpy(ids), weight), (weight64[ids],)


def _embedding_scatter(draw: Draw, f: Facts) -> Prepared:
    (x, x64), (images, images64) = draw.normal(f["tokens"], f["width"]), draw.normal(f["merged"], f["width"])
    rows = np.sort(draw.choice(f["tokens"], f["merged"]))
    expected = x64.copy()
    expected[rows] = images64
    return (x, torch.from_numpy(rows), images), (expected,)


def _embedding_scatter_add(draw: Draw, f: Facts) -> Prepared:
    (x, x64), (images, images64) = draw.normal(f["tokens"], f["width"]), draw.normal(f["merged"], f["width"])
    rows = draw.choice(f["tokens"], f["merged"])
    expected = x64.copy()
    expected[rows] += images64
    return (x, torch.from_numpy(rows), images), (expected,)


def _linear(draw: Draw, f: Facts) -> Prepared:
    x, x64 = draw.normal(f["tokens"], f["in_features"])
    weight, weight64 = draw.normal(f["out_features"], f["in_features"], scale=f["in_features"] ** -0.5)
    bias, bias64 = draw.normal(f["out_features"]) if f["bias"] else (None, 0.0)
    return (x, weight, bias), (x64 @ weight64.T + bias64,)


def _product(rows: str, columns: str, width: str) -> Callable[[Draw, Facts], Prepared]:
    """x [rows, width] times weight [columns, width] transposed."""

    def prepare(draw: Draw, f: Facts) -> Prepared:
        x, x64 = draw.normal(f[rows], f[width])
        weight, weight64 = draw.normal(f[columns], f[width], scale=f[width] ** -0.5)
        return (x, weight), (x64 @ weight64.T,)

    return prepare


def _head_linear(draw: Draw, f: Facts) -> Prepared:
    x, x64 = draw.normal(f["tokens"], f["heads"], f["in_features"])
    weight, weight64 = draw.normal(f["heads"], f["out_features"], f["in_features"], scale=f["in_features"] ** -0.5)
    outputs = [x64[:, head] @ weight64[head].T for head in range(f["heads"])]
    return (x, weight), (np.stack(outputs, axis=1),)


def _mxfp4_dequantize(draw: Draw, f: Facts) -> Prepared:
    packed = draw.integers(256, f["rows"], f["row_bytes"]).astype(np.uint8)
    scale = (120 + draw.integers(15, f["rows"], f["row_groups"])).astype(np.uint8)
    out = torch.full((f["rows"], f["columns"]), float("nan"), dtype=draw.dtype)
    return (torch.from_numpy(packed), torch.from_numpy(scale), out), (exact.mxfp4(packed, scale),)


def _rms_norm(draw: Draw, f: Facts) -> Prepared:
    (x, x64), (weight, weight64) = draw.normal(f["tokens"], f["width"]), draw.normal(f["width"])
    return (x, weight, f["eps"]), (exact.rms_norm(x64, weight64, f["eps"]),)


def _l2_norm(draw: Draw, f: Facts) -> Prepared:
    x, x64 = draw.normal(f["tokens"], f["heads"], f["head_dim"])
    return (x, 1e-6), (exact.l2_norm(x64, 1e-6),)


def _gated_rms_norm(draw: Draw, f: Facts) -> Prepared:
    shape = (f["tokens"], f["heads"], f["head_dim"])
    (x, x64), (gate, gate64), (weight, weight64) = draw.wide(*shape), draw.normal(*shape), draw.normal(f["head_dim"])
    factor = {"sigmoid": exact.sigmoid, "silu": exact.silu}[f["activation"]](gate64)
    return (x, weight, gate, f["eps"], f["activation"]), (exact.rms_norm(x64, weight64, f["eps"]) * factor,)


def _pointwise(function: Callable[..., Any], *scalars: str) -> Callable[[Draw, Facts], Prepared]:
    """An operator of two tensors [tokens, width] and the named attributes."""

    def prepare(draw: Draw, f: Facts) -> Prepared:
        (a, a64), (b, b64) = (draw.normal(f["tokens"], f["width"], scale=2.0) for _ in range(2))
        values = [f[name] for name in scalars]
        return (a, b, *values), (function(a64, b64, *values),)

    return prepare


def _alone(function: Callable[..., Any]) -> Callable[[Draw, Facts], Prepared]:
    """An operator of one tensor [tokens, width]."""

    def prepare(draw: Draw, f: Facts) -> Prepared:
        x, x64 = draw.normal(f["tokens"], f["width"], scale=2.0)
        return (x,), (function(x64),)

    return prepare


def _gelu(draw: Draw, f: Facts) -> Prepared:
    x, x64 = draw.normal(f["tokens"], f["width"], scale=2.0)
    return (x, f["approximate"]), (exact.gelu(x64, f["approximate"]),)


def _attention_residual_mix(draw: Draw, f: Facts) -> Prepared:
    candidates, candidates64 = draw.normal(f["candidates"], f["tokens"], f["width"])
    (weight, weight64), (query, query64) = draw.normal(f["width"]), draw.normal(f["width"], scale=f["width"] ** -0.5)
    expected = exact.attention_residual_mix(candidates64, weight64, query64, f["eps"])
    return (list(candidates), weight, query, f["eps"]), expected


_ROPE_PARAMETERS: Mapping[str, Mapping[str, float]] = {
    "none": {},
    "linear": {"factor": 4.0},
    "llama3": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192.0,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 4096.0},
}  # fmt: skip


def _rope_table(draw: Draw, f: Facts) -> Prepared:
    positions = draw.integers(64, f["tokens"])
    parameters = _ROPE_PARAMETERS[f["scaling"]]
    frequencies, magnitude = exact.rope_frequencies(f["theta"], f["rope_pairs"], f["scaling"], parameters)
    angles = positions[:, None] * frequencies
    arguments = (torch.from_numpy(positions), f["theta"], 2 * f["rope_pairs"], f["scaling"], parameters)
    return arguments, (np.cos(angles) * magnitude, np.sin(angles) * magnitude)


def _rope(draw: Draw, f: Facts) -> Prepared:
    x, x64 = draw.normal(f["tokens"], f["heads"], f["head_dim"])
    angles = draw.rng.uniform(-3.0, 3.0, (f["tokens"], f["rope_pairs"]))
    (cos, cos64), (sin, sin64) = (draw.rounded(turn(angles), torch.float32) for turn in (np.cos, np.sin))
    return (x, cos, sin, f["layout"]), (exact.rope(x64, cos64, sin64, f["layout"]),)


def _paged_cache_write(draw: Draw, f: Facts) -> Prepared:
    (x, x64), (cache, cache64) = draw.normal(f["tokens"], f["width"]), draw.normal(f["slots"], f["width"])
    slots = draw.choice(f["slots"], f["tokens"])
    cache64[slots] = x64
    return (x, torch.from_numpy(slots), cache), (cache64,)


def _paged_gqa_attention(draw: Draw, f: Facts) -> Prepared:
    """Two sequences of `tokens` new tokens each, whose rows lie scattered over the cache."""
    contexts, length, heads, dim = (0, f["slots"] // 2 - f["tokens"]), f["tokens"], f["heads"], f["head_dim"]
    q, q64 = draw.normal(2, length, heads, dim)
    (k, k64), (v, v64) = (draw.normal(f["slots"], f["kv_heads"], dim) for _ in range(2))
    slots = draw.choice(f["slots"], f["slots"]).reshape(2, -1)
    expected = [
        exact.causal_attention(q64[n], k64[slots[n]], v64[slots[n]], contexts[n], f["scale"], f["window"])
        for n in range(2)
    ]
    arguments = (q, k, v, torch.from_numpy(slots), torch.tensor(contexts), f["scale"], f["window"])
    return arguments, (np.stack(expected),)


def _paged_mla_attention(draw: Draw, f: Facts) -> Prepared:
    contexts, length, latent = (0, f["slots"] // 2 - f["tokens"]), f["tokens"], f["latent_dim"]
    q_latent, q_latent64 = draw.normal(2, length, f["heads"], latent)
    q_rope, q_rope64 = draw.normal(2, length, f["heads"], f["rope_dim"])
    cache, cache64 = draw.normal(f["slots"], f["cached_dim"])
    slots = draw.choice(f["slots"], f["slots"]).reshape(2, -1)
    queries = np.concatenate((q_latent64, q_rope64), axis=-1)
    keys = cache64[slots][:, :, None]
    expected = [
        exact.causal_attention(queries[n], keys[n], keys[n][..., :latent], contexts[n], f["scale"], None)
        for n in range(2)
    ]
    arguments = (q_latent, q_rope, cache, torch.from_numpy(slots), torch.tensor(contexts), f["scale"])
    return arguments, (np.stack(expected),)


def _kda_gate(draw: Draw, f: Facts) -> Prepared:
    z, z64 = draw.normal(f["tokens"], f["heads"], f["head_dim"])
    (a_log, a_log64), (dt_bias, dt_bias64) = draw.wide(f["heads"]), draw.wide(f["heads"], f["head_dim"])
    b, b64 = draw.normal(f["tokens"], f["heads"])
    expected = exact.kda_gate(z64, a_log64, dt_bias64, b64, f["lower_bound"])
    return (z, a_log, dt_bias, b, f["lower_bound"]), expected


def _delta_rule(draw: Draw, f: Facts) -> Prepared:
    """Two sequences that continue from a state; unit keys and queries, decays as the bounded gate gives them."""
    keys, values = (2, f["tokens"], f["heads"], f["head_dim"]), (2, f["tokens"], f["heads"], f["value_dim"])
    (q, q64), (k, k64) = (
        draw.rounded(exact.l2_norm(draw.rng.standard_normal(keys), 1e-6), torch.float32) for _ in "qk"
    )
    v, v64 = draw.wide(*values)
    g, g64 = draw.rounded(draw.rng.uniform(-5.0, 0.0, keys), torch.float32)
    beta, beta64 = draw.rounded(draw.rng.uniform(0.0, 1.0, keys[:3]), torch.float32)
    state, state64 = draw.wide(2, f["heads"], f["head_dim"], f["value_dim"])
    outputs = [exact.delta_rule(q64[n], k64[n], v64[n], g64[n], beta64[n], state64[n], f["scale"]) for n in range(2)]
    return (q, k, v, g, beta, state, f["scale"]), tuple(np.stack(part) for part in zip(*outputs, strict=True))


def _router(scores: Callable[[Any], Any]) -> Callable[[Draw, Facts], Prepared]:
    def prepare(draw: Draw, f: Facts) -> Prepared:
        logits, logits64 = draw.wide(f["tokens"], f["experts"])
        bias, bias64 = draw.wide(f["experts"], scale=0.1) if f["correction_bias"] else (None, 0.0)
        found = scores(logits64)
        groups = (f["num_groups"], f["topk_groups"])
        expected = exact.route(found, found + bias64, f["top_k"], f["renormalize"], f["scaling_factor"], groups)
        arguments = (logits, f["top_k"], f["renormalize"], f["scaling_factor"], bias)
        return (*arguments, *groups), expected

    return prepare


_GATES: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "silu": (activation.silu_and_mul, lambda gate, up: exact.silu(gate) * up),
    "situ": (
        lambda gate, up: activation.situ_and_mul(gate, up, 4.0, 25.0),
        lambda gate, up: exact.situ(gate, up, 4.0, 25.0),
    ),
    "gelu_tanh": (
        lambda gate, up: activation.gelu_and_mul(gate, up, "tanh"),
        lambda gate, up: exact.gelu(gate, "tanh") * up,
    ),
}


def _routed_experts(draw: Draw, f: Facts) -> Prepared:
    experts, top_k, inner, outer = f["experts"], f["top_k"], f["expert_width"], f["expert_in"]
    x, x64 = draw.normal(f["tokens"], outer)
    ids = np.stack([draw.choice(experts, top_k) for _ in range(f["tokens"])])
    weights, weights64 = draw.rounded(draw.rng.uniform(0.1, 1.0, ids.shape) / top_k, torch.float32)
    make = _packed_matrix if f["weight_format"] == "mxfp4" else _plain_matrix
    shapes = ((inner, outer), (inner, outer), (outer, inner))
    tensors, arrays = zip(
        *(zip(*(make(draw, *shape) for shape in shapes), strict=True) for _ in range(experts)), strict=True
    )
    kernel, definition = _GATES[f["activation"]]

    def matrices(chosen: list[int]) -> list[ExpertMatrices]:
        return [ExpertMatrices(expert, *tensors[expert]) for expert in chosen]

    arguments: tuple[Any, ...] = (x, weights, torch.from_numpy(ids), experts, matrices, kernel)
    if make is _plain_matrix:
        arguments += (StackedExperts(*(torch.stack(part) for part in zip(*tensors, strict=True))),)
    return arguments, (exact.routed_experts(x64, weights64, ids, arrays, definition),)


def _plain_matrix(draw: Draw, rows: int, columns: int) -> tuple[torch.Tensor, Any]:
    return draw.normal(rows, columns, scale=columns**-0.5)


def _packed_matrix(draw: Draw, rows: int, columns: int) -> tuple[torch.Tensor, Any]:
    packed = draw.integers(256, rows, columns // 2).astype(np.uint8)
    scale = np.full((rows, columns // 32), 127 - int(np.log2(columns) / 2) - 2, dtype=np.uint8)
    out = torch.empty(rows, columns, dtype=draw.dtype)
    _decode(torch.from_numpy(packed), torch.from_numpy(scale), out)
    return out, exact.mxfp4(packed, scale)


def _table(positions: torch.Tensor, theta: float, dim: int, scaling: str, parameters: Any) -> Any:
    return rope_table(positions, *rope_frequencies(theta, dim, scaling, parameters))


def _write(x: torch.Tensor, slots: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    cache[slots] = x
    return cache


def _decode(packed: torch.Tensor, scale: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return Decoder(out.device).decode(mxfp4(), {"packed": packed, "scale": scale}, out)


def _sampling(draw: Draw, f: Facts) -> Prepared:
    """What is not left to chance: rows in turn are greedy, greedy with penalties, and drawn from the best one alone."""
    logits, logits64 = draw.wide(f["wanted"], f["vocab"])
    greedy = SamplingParams()
    penalised = SamplingParams(presence_penalty=1.5, frequency_penalty=0.5, repetition_penalty=1.3)
    kinds = (greedy, penalised, SamplingParams(temperature=0.7, top_k=1))
    sequences, chosen = [], []
    for row, values in enumerate(logits64):
        prompt, generated = (draw.integers(f["vocab"], 5).tolist() for _ in range(2))
        params = kinds[row % 3]
        sequence = Sequence.of(Request(str(row), tuple(prompt), params), EngineSettings().page_size)
        sequence.token_ids += generated
        sequences.append(sequence)
        adjusted = exact.penalise(values, prompt, generated, 1.5, 0.5, 1.3) if params is penalised else values
        chosen.append(int(np.argmax(adjusted)))
    return (logits, sequences), (np.array(chosen),)


PREPARE: Mapping[str, Callable[[Draw, Facts], Prepared]] = {
    "embedding_lookup": _embedding_lookup,
    "embedding_scatter": _embedding_scatter,
    "embedding_scatter_add": _embedding_scatter_add,
    "linear": _linear,
    "head_linear": _head_linear,
    "lm_head": _product("wanted", "vocab", "width"),
    "mxfp4_dequantize": _mxfp4_dequantize,
    "rms_norm": _rms_norm,
    "l2_norm": _l2_norm,
    "gated_rms_norm": _gated_rms_norm,
    "residual_add": _pointwise(np.add),
    "attention_residual_mix": _attention_residual_mix,
    "rope_table": _rope_table,
    "rope": _rope,
    "paged_cache_write": _paged_cache_write,
    "paged_gqa_attention": _paged_gqa_attention,
    "paged_mla_attention": _paged_mla_attention,
    "sigmoid_gate": _pointwise(lambda x, gate: x * exact.sigmoid(gate)),
    "kda_gate": _kda_gate,
    "kda_chunk": _delta_rule,
    "kda_recurrent": _delta_rule,
    "silu_and_mul": _pointwise(lambda gate, up: exact.silu(gate) * up),
    "gelu_and_mul": _pointwise(lambda gate, up, approximate: exact.gelu(gate, approximate) * up, "approximate"),
    "situ_and_mul": _pointwise(exact.situ, "beta", "linear_beta"),
    "gelu": _gelu,
    "moe_router_topk_softmax": _router(exact.softmax),
    "moe_router_topk_sigmoid_bias": _router(exact.sigmoid),
    "routed_experts": _routed_experts,
    "sampling": _sampling,
    "vision_patch_embed": _product("patches", "width", "patch_values"),
    "silu": _alone(exact.silu),
    "quick_gelu": _alone(lambda x: x * exact.sigmoid(1.702 * x)),
    "multiply": _pointwise(np.multiply),
    **GROUPED,
    **RECURRENT,
    **SPARSE,
    **COMPRESSED,
    **VISION,
}
"""How inputs and expected outputs of each operator are made."""


def _sample(logits: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor:
    return torch.tensor([sampled.token_id for sampled in Sampler(0).sample(logits, sequences)])


INLINE: Mapping[str, Callable[..., Any]] = {
    "residual_add": torch.add,
    "rope_table": _table,
    "multi_axis_rope_table": table_of_axes,
    "paged_cache_write": _write,
    "mxfp4_dequantize": _decode,
    "sampling": _sample,
}
"""Operators that the runtime has elsewhere than in its kernel table."""


def laid_out(kernel: Kernel) -> Callable[..., Any]:
    """The kernel with its weight in the layout it has for it."""
    assert kernel.layout is not None
    layout = kernel.layout
    return lambda x, weight, *more: kernel.function(x, layout.copy(weight), *more)


def providers(name: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """(provider, function) of everything that runs the operator on a CPU, in any dtype."""
    for kernel in KERNELS.get(name, ()):
        if all(kernel.unmet(torch.device("cpu"), dtype) for dtype in (torch.float32, torch.bfloat16)):
            continue
        yield kernel.provider, kernel.function if kernel.layout is None else laid_out(kernel)
    if name in INLINE:
        yield REFERENCE, INLINE[name]
