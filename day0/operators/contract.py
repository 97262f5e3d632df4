"""What an operator's contract says, and the words it is written in: axes, attributes, phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from day0.operators.tolerance import Tolerance

Phase = Literal["load", "prefill", "decode"]

AXES: Mapping[str, str] = {
    "tokens": "rows of the step, all sequences one after another without padding",
    "wanted": "rows whose logits are wanted",
    "slots": "places of the paged cache: pages x page size",
    "states": "slots of per-sequence state",
    "candidates": "tensors an attention residual chooses from",
    "single": "one number",
    "position_axes": "axes of a token's position: time, height, width",
    "patches": "image patches, all items one after another",
    "merged": "vectors left after neighbouring patches or frames are joined",
    "frames": "frames of sound, all items one after another",
    "distances": "distances between frames that see one another",
    "places": "places that have a learnt position",
    "aspect_ratios": "arrangements of an image's tiles, and none",
    "tile_values": "numbers that all tiles of an arrangement have",
    "vocab": "vocabulary entries",
    "width": "channels of the tensor at hand",
    "in_features": "channels read",
    "out_features": "channels written",
    "heads": "query heads",
    "index_heads": "heads of an indexer, each of which chooses for a group of query heads",
    "kv_heads": "key/value heads",
    "key_heads": "query and key heads of a linear attention, shared by groups of its value heads",
    "value_heads": "value heads of a linear attention",
    "head_dim": "channels of one head",
    "rope_pairs": "channel pairs of a head that are rotated",
    "rope_dim": "channels of the key slice that all heads share, rotated or not",
    "value_dim": "channels of one value head",
    "latent_dim": "channels of the compressed key/value latent",
    "cached_dim": "channels of a cached row: latent and shared key slice",
    "taps": "length of a convolution; it remembers the last taps - 1 inputs",
    "past_taps": "taps - 1",
    "state_size": "numbers a state space keeps per channel",
    "state_groups": "groups of heads that share what reads and writes their state",
    "chosen": "cached entries chosen for each token",
    "entries": "entries that a step's tokens complete",
    "stride": "tokens that share one entry",
    "pooled_width": "channels pooled: of one head, or twice as many where entries overlap",
    "streams": "residual streams",
    "flat_width": "channels of all streams",
    "mixing_weights": "weights by which streams are read, written and mixed",
    "scales": "kinds of such weights, each with a learnt scale",
    "table_rows": "token ids of a routing table",
    "experts": "routed experts",
    "choices": "what a router scores: experts, and what else it may choose or weigh",
    "shared_experts": "shared experts that the router weighs",
    "profiles": "stored profiles of a bias by distance",
    "extent": "distances that have a bias",
    "top_k": "experts chosen per token",
    "expert_in": "channels a routed expert reads and writes",
    "expert_width": "inner channels of a routed expert",
    "rows": "rows of a packed matrix",
    "columns": "values in a row of a packed matrix",
    "row_bytes": "bytes of a packed row",
    "row_words": "int32 words of a packed row",
    "row_groups": "groups of a packed row that share a scale",
    "row_pairs": "pairs of rows that share bytes",
    "row_blocks": "blocks of rows under one scale, the last one smaller",
    "column_words": "int32 words of a packed column",
    "column_blocks": "blocks of columns under one scale, the last one smaller",
    "whole": "1: one number for all of a matrix",
    "patch_values": "numbers in one patch: colours x side x side",
    "grid_rows": "rows of the learned position grid",
    "grid_columns": "columns of the learned position grid",
    "cell": "patches joined into one vector",
}

ATTRIBUTES: Mapping[str, str] = {
    "activation": "the nonlinearity inside",
    "alpha": "steepness of the gate",
    "apart": "whether each axis has its own half of a head",
    "approximate": "form of GELU: erf (exact) or tanh",
    "beta": "bound of the gate branch",
    "bias": "whether a bias is added",
    "bits": "bits of one packed integer",
    "block": "tokens in a block that is chosen as a whole",
    "block_columns": "columns under one scale",
    "block_rows": "rows under one scale",
    "block_size": "layers between two snapshots of the residual stream",
    "branch": "factor on what the branch gives",
    "chunk": "frames that are looked at together",
    "chunked": "whether the window starts anew at each of its multiples instead of sliding",
    "correction_bias": "whether a bias takes part in the choice of experts, not in their weights",
    "eps": "added under the root",
    "factor": "what x is multiplied by",
    "floor": "positions in one step of the temperature",
    "form": "head: each head by one weight; all: the heads together; per_head: a weight each; unit: no weight",
    "future": "frames after a chunk that it sees",
    "gate_first": "whether the gate is applied before the norm",
    "group_size": "values under one scale",
    "growth": "what a step of the temperature adds",
    "interleaved": "whether axes of a position get channel pairs in turn, or in blocks",
    "inverse": "whether the rotation turns back",
    "iterations": "steps that make a mixing matrix doubly stochastic, none where streams are not mixed",
    "keep_tail": "whether the tokens of an unfinished entry are always read",
    "layout": "which channels are a pair: neox (i, i + rope_pairs) or interleaved (2i, 2i + 1)",
    "learned": "whether weights are computed, instead of a mean",
    "limit": "bound of both branches before the gate",
    "linear_beta": "bound of the other branch, none for no bound",
    "local_blocks": "blocks, the token's own and those before it, that are always chosen",
    "lower_bound": "least log decay of the bounded gate, none for the softplus gate",
    "norm_groups": "equal groups of channels that are normalised apart",
    "normed": "whether the stream that goes on is the normalised one that the branch read",
    "num_groups": "groups the experts are divided into",
    "offset": "added to the position",
    "overlap": "whether an entry also takes in the tokens before its own",
    "past": "frames before a chunk that it sees",
    "pooled": "patches averaged into one vector",
    "ratio": "tokens per compressed entry",
    "renormalize": "whether the chosen weights are made to add up to 1",
    "resampling": "how a grid is brought to another size: bilinear, bilinear_corners or bicubic",
    "scale": "factor on the products of queries and keys",
    "scaling": "rule that stretches the frequencies: none, linear, dynamic, llama3, yarn, longrope, proportional",
    "scaling_factor": "factor on the routing weights",
    "scoring": "what makes scores of logits: softmax, sigmoid, sqrtsoftplus",
    "sections": "channel pairs that turn by each axis of a position",
    "sinks": "whether a learnt logit per head joins the softmax's denominator",
    "skip": "factor on what the residual stream had",
    "softcap": "bound of what passes through tanh",
    "step": "frames from one output to the next",
    "step_max": "upper bound of the step size, none for no bound",
    "step_min": "lower bound of the step size",
    "strength": "largest write strength of the delta rule: 1, or 2 where negative eigenvalues are allowed",
    "temperature": "divisor of the gate before its sigmoid",
    "theta": "base of the frequencies",
    "topk_groups": "groups that may be chosen from",
    "weight_format": "how the weights are stored: the name of a dtype or of a packing",
    "window": "last tokens that can be seen, none for all",
    "window_side": "patches a side of the squares that see one another, none for all of an item",
    "write_scale": "factor on the writing weights",
}
"""Every scalar parameter of an operator and its meaning."""

VARIABLE_AXES = frozenset(
    ("tokens", "wanted", "slots", "states", "candidates", "entries", "patches", "merged", "frames")
)
"""Axes whose size the step decides; all others are facts of the model."""


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


def contract(
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
    """An operator from compact text: `takes` and `gives` as `"x[tokens width]; ids[tokens] int64"`, and so on."""
    return Operator(
        name, part, meaning, phases, _tensors(takes), _tensors(gives), tolerance, tuple(attributes.split()), source
    )


def _tensors(text: str) -> tuple[TensorContract, ...]:
    contracts = []
    for item in text.split("; "):
        head, _, dtype = item.partition("]")
        name, _, axes = head.partition("[")
        contracts.append(TensorContract(name, tuple(axes.split()), dtype.strip() or "model"))
    return tuple(contracts)


def output_tolerance(operator: Operator, output: TensorContract, dtype: str) -> Tolerance:
    """What holds for one output when the model runs in `dtype` ("bfloat16"); integers are exact."""
    stored = dtype if output.dtype == "model" else output.dtype
    return Tolerance(0.0, 0.0) if stored == "int64" else operator.tolerance[stored]
