"""What a kernel of an operator is called with: the contract's tensors, the facts of a step, sizes and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from day0.inventory import Fact, OperatorNeed
from day0.operators import OPERATORS, VARIABLE_AXES, Operator, TensorContract

STEP_FACTS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "starts": (("bounds",), "first row of each sequence, and one past the last row"),
    "slots": (("sequences", "longest"), "cache rows of each sequence in order; what lies past its end is not read"),
    "compressed_slots": (("sequences", "longest"), "the same for the compressed cache"),
    "context": (("sequences",), "rows of each sequence that were cached before this step"),
    "state_slots": (("sequences",), "where each sequence keeps its state"),
    "visible": (("tokens", "merged"), "1 where a token may see a row"),
}
"""Tensors by which a step tells how its rows belong together, all int64: name, axes, meaning."""
BATCH_AXES: Mapping[str, str] = {
    "sequences": "sequences of the step",
    "bounds": "sequences + 1",
    "longest": "rows of the longest sequence that a table has place for",
}


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor; `optional` ones are None where the attribute of their name is off."""

    name: str
    axes: tuple[str, ...]
    dtype: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """A keyword: an output's size that no input shows, an attribute, or the dtype to make. `kind` annotates it."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Signature:
    """Tensors in order, then keywords, and what comes back."""

    operator: Operator
    tensors: tuple[Argument, ...]
    options: tuple[Option, ...]

    @property
    def outputs(self) -> tuple[TensorContract, ...]:
        return self.operator.outputs

    @property
    def all_tensors(self) -> tuple[Argument | TensorContract, ...]:
        return (*self.tensors, *self.operator.outputs)

    @property
    def axes(self) -> tuple[str, ...]:
        """Axes in order of first appearance, those of a step's facts included."""
        return tuple(dict.fromkeys(axis for tensor in self.all_tensors for axis in tensor.axes))

    @property
    def model_tensor(self) -> str | None:
        """The first tensor that has the model's dtype."""
        if self.operator.part == "quantisation":
            return None
        return next((tensor.name for tensor in self.tensors if tensor.dtype == "model"), None)


def signature(name: str, needs: Sequence[OperatorNeed]) -> Signature:
    """How a kernel for these needs is called."""
    operator = OPERATORS[name]
    switches = {tensor.name for tensor in operator.inputs} & {*operator.attributes}
    tensors = [Argument(t.name, t.axes, t.dtype, t.name in switches) for t in operator.inputs]
    tensors += [Argument(fact, STEP_FACTS[fact][0], "int64") for fact in step_facts(operator)]
    shown = {axis for tensor in operator.inputs for axis in tensor.axes}
    sizes = [axis for axis in operator.axes if axis not in shown]
    options = [Option(axis, "int") for axis in sizes]
    for attribute in operator.attributes:
        if attribute not in switches:
            options.append(Option(attribute, _kind([need.attributes.get(attribute) for need in needs])))
    if operator.part == "quantisation":
        options.append(Option("dtype", "torch.dtype"))
    return Signature(operator, tuple(tensors), tuple(options))


def step_facts(operator: Operator) -> tuple[str, ...]:
    """What a step has to say beyond the contract's tensors, by the axes that it reads."""
    read = [tensor for tensor in operator.inputs if "slots" in tensor.axes]
    written = any("slots" in tensor.axes for tensor in operator.outputs)
    if read and not written:
        compressed = ("compressed_slots",) if any(tensor.name == "compressed_cache" for tensor in read) else ()
        return ("starts", "slots", *compressed, "context")
    if any("states" in tensor.axes for tensor in operator.inputs):
        return ("starts", "state_slots")
    if "entries" in operator.axes or operator.name == "vision_attention":
        return ("starts",)
    return ("visible",) if operator.name == "cross_attention" else ()


def _kind(values: Sequence[Fact]) -> str:
    kinds = {type(value).__name__ for value in values if value is not None} or {"float"}
    named = ["float"] if kinds == {"int", "float"} else sorted(kinds)
    return " | ".join([*named, *(["None"] if None in values else [])])


def is_variable(axis: str) -> bool:
    """Whether a step decides the size of an axis."""
    return axis in VARIABLE_AXES or axis in BATCH_AXES
