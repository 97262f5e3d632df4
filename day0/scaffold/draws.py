"""How each input of a differential test is drawn, as the expression that stands in the generated file."""

from __future__ import annotations

from collections.abc import Mapping

from day0.inventory import Fact
from day0.scaffold.signature import STEP_FACTS, Argument, Signature

SEQUENCES = 2
STATES = 3
_PREFILL_ROWS = 7
_VARIABLE = {"wanted": 3, "states": STATES, "candidates": 3, "patches": 11, "merged": 5, "frames": 9}
_UNIT = ("kda_chunk", "kda_recurrent", "gated_delta_chunk", "gated_delta_recurrent")
_STEPS: Mapping[str, str] = {
    "starts": "draw.starts()",
    "slots": "draw.table()",
    "compressed_slots": "draw.table()",
    "context": "draw.context()",
    "state_slots": "torch.tensor([2, 0])",
}
_BY_NAME: Mapping[str, str] = {
    "g": "-draw.positive({shape})",
    "slope": "draw.positive({shape})",
    "beta": "draw.share({shape})",
}


def variable_sizes(spec: Signature, phase: str, sizes: Mapping[str, int], facts: Mapping[str, Fact]) -> dict[str, int]:
    """Sizes of the axes that a step decides: two sequences of unequal length, or of one token each."""
    tokens = SEQUENCES if phase == "decode" else _PREFILL_ROWS
    found = {**_VARIABLE}
    if "stride" in sizes:
        tokens, found["entries"] = 3 * sizes["stride"] + 1, 3
    longest = int(facts.get("ratio") or 1) * max(2, sizes.get("chosen", 0)) + 2 * _PREFILL_ROWS
    found |= {"tokens": tokens, "longest": longest, "slots": SEQUENCES * longest + 3}
    wanted = {*spec.axes}
    if {*STEP_FACTS} & {tensor.name for tensor in spec.tensors}:
        # What the sequences are told by, whether or not a tensor has the axis.
        wanted |= {"longest"} | ({"tokens"} if "patches" not in wanted else set())
    return {axis: size for axis, size in found.items() if axis in wanted}


def expression(spec: Signature, tensor: Argument) -> str:
    """The Python expression that draws one input, with `size` and `draw` at hand."""
    shape = ", ".join(f'size["{axis}"]' for axis in tensor.axes)
    drawn = _drawn(spec.operator.name, tensor, shape)
    if tensor.optional:
        return f'{drawn} if case["attributes"]["{tensor.name}"] else None'
    return drawn


def _drawn(operator: str, tensor: Argument, shape: str) -> str:
    if tensor.name == "visible":
        return f"draw.visible({shape})"
    if tensor.name in _STEPS and (tensor.name != "slots" or operator != "paged_cache_write"):
        return _STEPS[tensor.name]
    if tensor.dtype == "int64":
        return _whole_numbers(operator, tensor, shape)
    match tensor.dtype:
        case "uint8":
            # A scale is an exponent, kept where bfloat16 can hold what comes of it.
            return f"draw.integers(120, 135, {shape}).to(torch.uint8)" if tensor.name == "scale" else _bytes(shape)
        case "int8":
            return f"draw.integers(-128, 128, {shape}).to(torch.int8)"
        case "int32":
            return f"draw.integers(-(2**31), 2**31, {shape}).to(torch.int32)"
        case "float8_e4m3fn":
            return f"draw.normal(torch.float32, {shape}).to(torch.float8_e4m3fn)"
    dtype = "dtype" if tensor.dtype == "model" else f"torch.{tensor.dtype}"
    if tensor.name in _BY_NAME and dtype == "torch.float32":
        return _BY_NAME[tensor.name].format(shape=shape)
    if tensor.name == "weights" and dtype == "torch.float32":
        return f"draw.share({shape})"
    if operator in _UNIT and tensor.name in ("q", "k"):
        return f"draw.unit({shape})"
    return f"draw.normal({dtype}, {shape})"


def _bytes(shape: str) -> str:
    return f"draw.integers(0, 256, {shape}).to(torch.uint8)"


def _whole_numbers(operator: str, tensor: Argument, shape: str) -> str:
    match tensor.name, tensor.axes:
        case "positions", _:
            return f"draw.positions({shape})"
        case "ids", (_, "top_k"):
            return f'draw.distinct(size["experts"], {shape})'
        case "ids", (_, "chosen"):
            return f"draw.chosen({shape})"
        case "slots", _:
            return 'draw.distinct(size["slots"], 1, size["tokens"])[0]'
        case "rows", _:
            return 'draw.distinct(size["tokens"], 1, size["merged"])[0].sort().values'
        case "table", _:
            return f'draw.distinct(size["experts"], {shape})'
        case "token_ids", _:
            return f'draw.integers(0, size["table_rows"], {shape})'
        case "order", _:
            return f'draw.integers(0, size["row_groups"], {shape})'
    return f'draw.integers(0, size["vocab"], {shape})'
