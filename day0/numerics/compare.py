"""Walks two traces in execution order and names the first tensor that deviates. Missing data never counts as equal."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from day0.numerics.metrics import Allowance, Difference, difference

NodeVerdict = Literal["same", "within tolerance", "deviates", "not checked"]
Verdict = Literal["equal", "deviates", "incomplete"]

LAYER_POINTS = (
    "mixer_mix_weights",
    "mixer_mix",
    "mixer_in",
    "mixer",
    "mixer_out",
    "ffn_mix_weights",
    "ffn_mix",
    "ffn_in",
    "ffn",
    "ffn_out",
    "output",
)
OUTER_POINTS = ("vision", "embed", "layers", "output_mix_weights", "output_mix", "norm", "logits")
_LAYER_NAME = re.compile(r"layers\.(\d+)\.(.+)")


@dataclass(frozen=True, slots=True)
class Node:
    """One tensor of the reference's execution order, compared.

    `error` is that of the row that the allowance is for, `position` the worst token.
    """

    tensor: str
    layer: int | None
    operator: str
    verdict: NodeVerdict
    kind: str
    error: float | None
    tolerance: float
    position: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate trace against a reference: `first` is the first node that deviates, in execution order."""

    verdict: Verdict
    first: Node | None
    nodes: tuple[Node, ...]
    missing_candidate: tuple[str, ...]
    missing_reference: tuple[str, ...]

    @property
    def num_checked(self) -> int:
        return sum(node.verdict != "not checked" for node in self.nodes)


def layer_and_operator(name: str) -> tuple[int | None, str]:
    """`layers.3.mixer.q` is (3, "mixer.q"); names outside the layers have no number."""
    match = _LAYER_NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else (None, name)


def execution_order(name: str) -> tuple[int, int, int, str]:
    """Sort key for names without recorded order: layer number, then the order of trace points, then name."""
    layer, operator = layer_and_operator(name)
    if layer is not None:
        head = operator.split(".")[0]
        point = LAYER_POINTS.index(head) if head in LAYER_POINTS else len(LAYER_POINTS)
        return OUTER_POINTS.index("layers"), layer, point, name
    head = "vision" if name.startswith("vision.") else name
    outer = OUTER_POINTS.index(head) if head in OUTER_POINTS else len(OUTER_POINTS)
    return outer, 0, 0, name


def compare_traces(
    candidate: Mapping[str, Tensor], reference: Mapping[str, Tensor], allowed: Callable[[str], Allowance]
) -> Comparison:
    """Compare by name; `allowed(name)` bounds the relative error of its rows (see `metrics.Difference`)."""
    names = sorted(reference, key=execution_order)
    nodes = tuple(_compare_node(name, candidate.get(name), reference[name], allowed(name)) for name in names)
    first = next((node for node in nodes if node.verdict == "deviates"), None)
    unchecked = [node for node in nodes if node.verdict == "not checked"]
    if first is not None:
        verdict: Verdict = "deviates"
    elif unchecked or not nodes:
        verdict = "incomplete"
    else:
        verdict = "equal"
    missing = tuple(name for name in names if name not in candidate)
    return Comparison(verdict, first, nodes, missing, tuple(sorted(set(candidate) - set(reference))))


def _compare_node(name: str, candidate: Tensor | None, reference: Tensor, allowed: Allowance) -> Node:
    layer, operator = layer_and_operator(name)
    node = Node(name, layer, operator, "not checked", "missing", None, allowed.limit, message="not in the candidate")
    if candidate is None:
        return node
    found = difference(candidate, reference)
    error = allowed.error_of(found)
    return replace(
        node,
        verdict=_node_verdict(found, error, allowed.limit),
        kind="deviation" if found.kind == "precision" and not error <= allowed.limit else found.kind,
        error=None if math.isnan(error) else error,
        position=found.position,
        message=found.message,
    )


def _node_verdict(found: Difference, error: float, limit: float) -> NodeVerdict:
    if found.kind == "equal":
        return "same"
    if found.kind in ("empty", "constant"):
        return "not checked"
    return "within tolerance" if found.kind == "precision" and error <= limit else "deviates"
