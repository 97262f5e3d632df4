"""The operator vocabulary: what each operator is called, what it takes and gives, and how exact it must be.

An operator's plain float32 reference (runtime/ops) is its definition; this file is its contract, without torch.
Names, words for axes and tolerances are defined here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["load", "prefill", "decode"]
Failure = Literal["shape", "dtype", "nonfinite", "value"]

AXES: Mapping[str, str] = {
    "tokens": "rows of the step, all sequences one after another without padding",
    "wanted": "rows whose logits are wanted",
    "slots": "places of the paged cache: pages x page size",
    "states": "slots of per-sequence state",
    "candidates": "tensors an attention residual chooses from",
    "patches": "image patches, all items one after another",
    "merged": "vectors left after neighbouring patches are joined",
    "vocab": "vocabulary entries",
    "width": "channels of the tensor at hand",
    "in_features": "channels read",
    "out_features": "channels written",
    "heads": "query heads",
    "kv_heads": "key/value heads",
    "head_dim": "channels of one head",
    "rope_pairs": "channel pairs of a head that are rotated",
    "rope_dim": "channels of the key slice that all heads share, rotated or not",
    "value_dim": "channels of one value head",
    "latent_dim": "channels of the compressed key/value latent",
    "cached_dim": "channels of a cached row: latent and shared key slice",
    "taps": "length of a convolution; it remembers the last taps - 1 inputs",
    "past_taps": "taps - 1",
    "experts": "routed experts",
    "top_k": "experts chosen per token",
    "expert_in": "channels a routed expert reads and writes",
    "expert_width": "inner channels of a routed expert",
    "rows": "rows of a packed matrix",
    "columns": "values in a row of a packed matrix",
    "row_bytes": "bytes of a packed row",
    "row_groups": "groups of a packed row that share a scale",
    "patch_values": "numbers in one patch: colours x side x side",
    "grid_rows": "rows of the learned position grid",
    "grid_columns": "columns of the learned position grid",
    "cell": "patches joined into one vector",
}

VARIABLE_AXES = frozenset(("tokens", "wanted", "slots", "states", "candidates", "patches", "merged"))
"""Axes whose size the step decides; all others are facts of the model."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How an output compares with its reference; `failure` is None when they agree, else the first thing wrong.

    `worst` is the largest difference over the reference's size. `ratio` is difference over allowance where that is
    most exceeded (at most 1 when they agree), and `index` is where.
    """

    failure: Failure | None
    message: str
    worst: float = math.nan
    ratio: float = math.nan
    index: tuple[int, ...] | None = None

    @property
    def equal(self) -> bool:
        return self.failure is None


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An element may differ by `share` * size + `rtol` * |reference|; size is the reference's root mean square.

    Judging by the reference's own size keeps the check sharp at every scale: an output of zeros always fails. Both
    numbers zero means equal exactly; a reference of zeros allows nothing but zeros.
    """

    rtol: float
    share: float

    def __post_init__(self) -> None:
        assert self.share > 0.0 or self.rtol == 0.0, "zeros of the reference need an absolute allowance"

    def atol(self, size: float) -> float:
        """The absolute part of the allowance for a reference of this root mean square."""
        return self.share * size

    def check(self, actual: Any, reference: Any, *, dtype: str | None = None) -> Agreement:
        """Shape, dtype, finiteness, then values of two torch or numpy arrays; the reference in float32 or wider.

        `dtype` is what the output must have, e.g. "bfloat16"; None leaves it unasked. Integers are compared as
        int64, so that differences do not wrap.
        """
        shape, wanted = tuple(actual.shape), tuple(reference.shape)
        if shape != wanted:
            return Agreement("shape", f"shape {list(shape)}, reference {list(wanted)}")
        name = str(actual.dtype).removeprefix("torch.")
        if dtype is not None and name != dtype:
            return Agreement("dtype", f"dtype {name}, wanted {dtype}")
        if math.prod(shape) == 0:
            return Agreement(None, "both empty", 0.0, 0.0)
        for label, array in (("output", actual), ("reference", reference)):
            # NaN compares false as well.
            outside = ~(abs(array) < math.inf)
            if bool(outside.any()):
                index = _unravel(int((outside * 1).reshape(-1).argmax()), shape)
                return Agreement("nonfinite", f"{label} is not finite at {list(index)}", index=index)
        return self._compare(actual, reference)

    def _compare(self, actual: Any, reference: Any) -> Agreement:
        difference = abs(actual - reference)
        size, largest = root_mean_square(reference), float(difference.max())
        worst = largest / size if size else (math.inf if largest else 0.0)
        atol = self.atol(size)
        # Without an absolute part there is nothing to divide by, and only equality will do.
        excess = difference / (abs(reference) * self.rtol + atol) if atol else difference
        index = _unravel(int(excess.reshape(-1).argmax()), tuple(reference.shape))
        ratio = float(excess[index]) if atol else (math.inf if largest else 0.0)
        text = f"worst error {worst:.2e} of the reference's size"
        if ratio <= 1.0:
            return Agreement(None, text, worst, ratio, index)
        return Agreement("value", f"{text}; {ratio:.3g} x the allowance at {list(index)}", worst, ratio, index)


def root_mean_square(array: Any) -> float:
    """Root mean square of a torch or numpy array, safe from overflow in the squares."""
    largest = float(abs(array).max())
    if largest == 0.0:
        return 0.0
    scaled = array / largest
    return largest * math.sqrt(float((scaled * scaled).mean()))


def _unravel(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        position, rest = divmod(position, size)
        index.append(rest)
    return tuple(reversed(index))


EXACT: Mapping[str, Tolerance] = {name: Tolerance(0.0, 0.0) for name in ("float32", "bfloat16", "float16", "int64")}
"""Copies, choices and decoded bits."""
POINTWISE: Mapping[str, Tolerance] = {
    "float32": Tolerance(rtol=2e-6, share=5e-6),
    "bfloat16": Tolerance(rtol=8e-3, share=2e-3),
    "float16": Tolerance(rtol=1e-3, share=2.5e-4),
}
"""A few roundings per element: two units in the last place, and some room where terms cancel."""
REDUCTION: Mapping[str, Tolerance] = {
    "float32": Tolerance(rtol=1e-5, share=5e-6),
    "bfloat16": Tolerance(rtol=8e-3, share=4e-3),
    "float16": Tolerance(rtol=1e-3, share=5e-4),
}
"""Sums kept in float32 and rounded once."""
MATMUL: Mapping[str, Tolerance] = {
    "float32": Tolerance(rtol=1e-5, share=1e-5),
    "bfloat16": Tolerance(rtol=1.6e-2, share=1.6e-2),
    "float16": Tolerance(rtol=2e-3, share=2e-3),
}
"""Products over up to 10^5 terms, in whatever order a library takes them."""
CHAIN: Mapping[str, Tolerance] = {
    "float32": Tolerance(rtol=1e-5, share=1e-5),
    "bfloat16": Tolerance(rtol=3.2e-2, share=3.2e-2),
    "float16": Tolerance(rtol=4e-3, share=4e-3),
}
"""A product of products, rounded to the model's dtype between them."""
RECURRENCE: Mapping[str, Tolerance] = {
    "float32": Tolerance(rtol=1e-4, share=5e-5),
    "bfloat16": Tolerance(rtol=3.2e-2, share=3.2e-2),
    "float16": Tolerance(rtol=4e-3, share=4e-3),
}
"""Errors that build up along a sequence or a coordinate."""


@dataclass(frozen=True, slots=True)
class TensorContract:
    """One tensor an operator takes or gives. `dtype` is "model" (the model's own), or the one it must have."""

    name: str
    axes: tuple[str, ...]
    dtype: str = "model"


@dataclass(frozen=True, slots=True)
class Operator:
    """What an operator is. `attributes` are its scalar parameters; `source` is where its definition comes from.

    `part` groups operators for readers. `tolerance` is per dtype of the output; integer outputs are exact.
    """

    name: str
    part: str
    meaning: str
    phases: tuple[Phase, ...]
    inputs: tuple[TensorContract, ...]
    outputs: tuple[TensorContract, ...]
    tolerance: Mapping[str, Tolerance]
    attributes: tuple[str, ...]
    source: str

    @property
    def axes(self) -> tuple[str, ...]:
        """Axis names in order of first appearance."""
        return tuple(dict.fromkeys(axis for tensor in (*self.inputs, *self.outputs) for axis in tensor.axes))

    @property
    def follows_model_dtype(self) -> bool:
        """Whether any tensor is in the model's dtype; else results do not depend on it."""
        return any(tensor.dtype == "model" for tensor in (*self.inputs, *self.outputs))

    @property
    def model_axes(self) -> tuple[str, ...]:
        """The axes that the model fixes: every need for this operator gives them as numbers."""
        return tuple(axis for axis in self.axes if axis not in VARIABLE_AXES)


def _operator(
    name: str,
    part: str,
    meaning: str,
    takes: str,
    gives: str,
    tolerance: Mapping[str, Tolerance],
    source: str,
    *,
    attributes: str = "",
    phases: tuple[Phase, ...] = ("prefill", "decode"),
) -> Operator:
    return Operator(
        name, part, meaning, phases, _tensors(takes), _tensors(gives), tolerance, tuple(attributes.split()), source
    )


def _tensors(text: str) -> tuple[TensorContract, ...]:
    """`"x[tokens width]; ids[tokens] int64"` as contracts."""
    contracts = []
    for item in text.split("; "):
        head, _, dtype = item.partition("]")
        name, _, axes = head.partition("[")
        contracts.append(TensorContract(name, tuple(axes.split()), dtype.strip() or "model"))
    return tuple(contracts)


_VISION: tuple[Phase, ...] = ("prefill",)
_LOADED: tuple[Phase, ...] = ("load", "prefill", "decode")

# fmt: off
OPERATORS: Mapping[str, Operator] = {operator.name: operator for operator in (
    _operator("embedding_lookup", "embedding", "rows of the table by token id",
              "ids[tokens] int64; weight[vocab width]", "y[tokens width]", EXACT, "definition"),
    _operator("embedding_scatter", "embedding", "image vectors put in place of the placeholder tokens' embeddings",
              "x[tokens width]; rows[merged] int64; images[merged width]", "y[tokens width]", EXACT, "definition",
              phases=_VISION),
    _operator("linear", "linear", "x times the transposed weight, plus bias where there is one",
              "x[tokens in_features]; weight[out_features in_features]; bias[out_features]",
              "y[tokens out_features]", MATMUL, "definition", attributes="bias"),
    _operator("head_linear", "linear", "a matrix per head; folds the key/value up-projection of MLA",
              "x[tokens heads in_features]; weight[heads out_features in_features]",
              "y[tokens heads out_features]", MATMUL, "DeepSeek-V2, arXiv 2405.04434"),
    _operator("lm_head", "linear", "logits of the wanted rows; a product in the model's dtype, kept as float32",
              "x[wanted width]; weight[vocab width]", "logits[wanted vocab]", MATMUL, "definition"),
    _operator("mxfp4_dequantize", "quantisation", "4-bit E2M1 values times an E8M0 scale per group of a row",
              "packed[rows row_bytes] uint8; scale[rows row_groups] uint8", "y[rows columns]", EXACT,
              "OCP Microscaling Formats (MX) 1.0", attributes="group_size", phases=_LOADED),
    _operator("rms_norm", "norm", "x over its root mean square, times a weight; statistics in float32",
              "x[tokens width]; weight[width]", "y[tokens width]", REDUCTION, "arXiv 1910.07467",
              attributes="eps"),
    _operator("qk_norm", "norm", "RMS norm of every query and key head, one weight for all heads of a kind",
              "q[tokens heads head_dim]; k[tokens kv_heads head_dim]; q_weight[head_dim]; k_weight[head_dim]",
              "q_out[tokens heads head_dim]; k_out[tokens kv_heads head_dim]", REDUCTION,
              "Qwen3, arXiv 2505.09388", attributes="eps"),
    _operator("l2_norm", "norm", "every head over its Euclidean length; eps is added to the sum of squares",
              "x[tokens heads head_dim]", "y[tokens heads head_dim] float32", REDUCTION, "definition"),
    _operator("gated_rms_norm", "norm", "RMS norm per head, then times the activated gate (norm first)",
              "x[tokens heads head_dim] float32; weight[head_dim]; gate[tokens heads head_dim]",
              "y[tokens heads head_dim] float32", REDUCTION, "Kimi Linear, arXiv 2510.26692",
              attributes="eps activation"),
    _operator("residual_add", "residual", "x plus the branch's output",
              "x[tokens width]; branch[tokens width]", "y[tokens width]", POINTWISE, "definition"),
    _operator("attention_residual_mix", "residual",
              "softmax over candidates of normed candidate . query, applied to the raw candidates",
              "candidates[candidates tokens width]; norm_weight[width]; query[width]",
              "y[tokens width]; weights[tokens candidates] float32",
              MATMUL, "Kimi K3", attributes="eps block_size"),
    _operator("rope_table", "attention", "cos and sin of position x frequency, angles in float32; frequencies by rule",
              "positions[tokens] int64", "cos[tokens rope_pairs] float32; sin[tokens rope_pairs] float32", MATMUL,
              "arXiv 2104.09864; YaRN, arXiv 2309.00071; Llama 3.1", attributes="theta scaling"),
    _operator("rope", "attention", "rotary position embedding over the first 2 x rope_pairs channels of each head",
              "x[tokens heads head_dim]; cos[tokens rope_pairs] float32; sin[tokens rope_pairs] float32",
              "y[tokens heads head_dim]", POINTWISE, "arXiv 2104.09864", attributes="layout"),
    _operator("paged_cache_write", "attention", "a row per token written to its slot of a cache plane",
              "x[tokens width]; slots[tokens] int64; cache[slots width]", "cache_out[slots width]", EXACT,
              "definition"),
    _operator("paged_gqa_attention", "attention",
              "causal softmax attention over cached keys and values; query heads share kv_heads in groups",
              "q[tokens heads head_dim]; k_cache[slots kv_heads head_dim]; v_cache[slots kv_heads head_dim]",
              "y[tokens heads head_dim]", MATMUL, "arXiv 2305.13245", attributes="scale window"),
    _operator("paged_mla_attention", "attention",
              "causal softmax attention of every head over the cached rows: latent first, shared key slice last",
              "q_latent[tokens heads latent_dim]; q_rope[tokens heads rope_dim]; "
              "latent_cache[slots cached_dim]",
              "y[tokens heads latent_dim]", MATMUL, "DeepSeek-V2, arXiv 2405.04434", attributes="scale"),
    _operator("sigmoid_gate", "attention", "x times sigmoid(gate)",
              "x[tokens width]; gate[tokens width]", "y[tokens width]", POINTWISE, "definition"),
    _operator("causal_conv1d", "linear attention",
              "depthwise causal convolution with activation; the last taps - 1 inputs are the state",
              "x[tokens width]; weight[width taps]; state[states width past_taps]",
              "y[tokens width]; state_out[states width past_taps]", REDUCTION, "Mamba, arXiv 2312.00752",
              attributes="activation"),
    _operator("kda_gate", "linear attention",
              "log decay per head and key channel (bounded sigmoid, or softplus), and write strength beta",
              "z[tokens heads head_dim]; a_log[heads] float32; dt_bias[heads head_dim] float32; b[tokens heads]",
              "g[tokens heads head_dim] float32; beta[tokens heads] float32", POINTWISE,
              "Kimi Linear, arXiv 2510.26692; Kimi K3",
              attributes="lower_bound"),
    _operator("kda_chunk", "linear attention", "delta rule with decay per key channel, in chunks of a sequence",
              "q[tokens heads head_dim] float32; k[tokens heads head_dim] float32; v[tokens heads value_dim] float32; "
              "g[tokens heads head_dim] float32; beta[tokens heads] float32; "
              "state[states heads head_dim value_dim] float32",
              "y[tokens heads value_dim] float32; state_out[states heads head_dim value_dim] float32", RECURRENCE,
              "Kimi Linear, arXiv 2510.26692", attributes="scale", phases=("prefill",)),
    _operator("kda_recurrent", "linear attention", "delta rule with decay per key channel, one token at a time",
              "q[tokens heads head_dim] float32; k[tokens heads head_dim] float32; v[tokens heads value_dim] float32; "
              "g[tokens heads head_dim] float32; beta[tokens heads] float32; "
              "state[states heads head_dim value_dim] float32",
              "y[tokens heads value_dim] float32; state_out[states heads head_dim value_dim] float32", RECURRENCE,
              "Kimi Linear, arXiv 2510.26692", attributes="scale", phases=("decode",)),
    _operator("silu_and_mul", "activation", "silu(gate) times up",
              "gate[tokens width]; up[tokens width]", "y[tokens width]", POINTWISE, "arXiv 2002.05202"),
    _operator("gelu_and_mul", "activation", "gelu(gate) times up, erf or tanh form",
              "gate[tokens width]; up[tokens width]", "y[tokens width]", POINTWISE, "arXiv 2002.05202",
              attributes="approximate"),
    _operator("situ_and_mul", "activation",
              "beta tanh(gate / beta) sigmoid(gate) times linear_beta tanh(up / linear_beta); float32 inside",
              "gate[tokens width]; up[tokens width]", "y[tokens width]", POINTWISE, "Kimi K3",
              attributes="beta linear_beta"),
    _operator("gelu", "activation", "Gaussian error linear unit, erf or tanh form",
              "x[tokens width]", "y[tokens width]", POINTWISE, "arXiv 1606.08415",
              attributes="approximate"),
    _operator("moe_router_topk_softmax", "experts", "softmax of the logits; the top_k largest and their weights",
              "logits[tokens experts] float32; bias[experts] float32",
              "weights[tokens top_k] float32; ids[tokens top_k] int64", REDUCTION,
              "Mixtral, arXiv 2401.04088",
              attributes="renormalize scaling_factor correction_bias num_groups topk_groups"),
    _operator("moe_router_topk_sigmoid_bias", "experts",
              "sigmoid scores; chosen by score + bias (in the best groups, if limited), weighed by score",
              "logits[tokens experts] float32; bias[experts] float32",
              "weights[tokens top_k] float32; ids[tokens top_k] int64", REDUCTION,
              "DeepSeek-V3, arXiv 2412.19437",
              attributes="renormalize scaling_factor correction_bias num_groups topk_groups"),
    _operator("routed_experts", "experts", "gated MLP of each chosen expert (grouped GEMM), weighted sum",
              "x[tokens expert_in]; weights[tokens top_k] float32; ids[tokens top_k] int64; "
              "gate[experts expert_width expert_in]; up[experts expert_width expert_in]; "
              "down[experts expert_in expert_width]",
              "y[tokens expert_in]", CHAIN, "Mixtral, arXiv 2401.04088", attributes="activation weight_format"),
    _operator("sampling", "sampling", "a token per row: the largest logit, or drawn after penalties and cuts",
              "logits[wanted vocab] float32", "ids[wanted] int64", EXACT, "definition"),
    _operator("vision_patch_embed", "vision", "linear map of every patch (convolution with stride = patch)",
              "x[patches patch_values]; weight[width patch_values]", "y[patches width]", MATMUL,
              "arXiv 2010.11929", phases=_VISION),
    _operator("vision_position_embed", "vision",
              "learned grid, resampled bilinearly to the item's size, and a sine/cosine code of the frame",
              "grid[grid_rows grid_columns width]", "y[patches width] float32", RECURRENCE, "MoonViT; Kimi K3",
              phases=_VISION),
    _operator("vision_rope_2d", "vision", "rotation of neighbouring channel pairs by column and row in turn",
              "q[patches heads head_dim]; k[patches heads head_dim]; angles[patches rope_pairs] float32",
              "q_out[patches heads head_dim]; k_out[patches heads head_dim]", POINTWISE,
              "MoonViT, arXiv 2504.07491",
              phases=_VISION),
    _operator("vision_attention", "vision", "softmax attention among all patches of an item, none between items",
              "q[patches heads head_dim]; k[patches heads head_dim]; v[patches heads head_dim]",
              "y[patches heads head_dim]", MATMUL,
              "MoonViT, arXiv 2504.07491", attributes="scale", phases=_VISION),
    _operator("patch_merge", "vision", "mean over frames, then each cell of patches as one long vector",
              "x[patches width]", "y[merged cell width]", REDUCTION, "Kimi K3", phases=_VISION),
)}  # fmt: skip
# fmt: on


def output_tolerance(operator: Operator, output: TensorContract, dtype: str) -> Tolerance:
    """What holds for one output when the model runs in `dtype` ("bfloat16"); integers are exact."""
    stored = dtype if output.dtype == "model" else output.dtype
    return Tolerance(0.0, 0.0) if stored == "int64" else operator.tolerance[stored]
