"""A package per operator that lacks: contract, reference, kernel stubs, differential test, shapes, whitelist entry."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from day0.coverage import Verdict
from day0.inventory import OperatorNeed
from day0.operators import ATTRIBUTES, AXES, Phase
from day0.scaffold.draws import expression, variable_sizes
from day0.scaffold.kernel_facts import kernel_facts
from day0.scaffold.references import References
from day0.scaffold.signature import BATCH_AXES, STEP_FACTS, Signature, signature
from day0.scaffold.sizes import small_need

FILES = (
    "__init__.py",
    "contract.md",
    "reference.py",
    "cases.py",
    "kernel_triton.py",
    "kernel_tilelang.py",
    "test_differential.py",
    "benchmark_shapes.json",
    "whitelist_entry.yaml",
)
PHASES: tuple[Phase, ...] = ("prefill", "decode", "load")
PREFILL_TOKENS = (512, 4096, 16384)
DECODE_BATCHES = (1, 16, 128)
_WORDS = {"verified": "measured", "unverified": "there, but not measured", "constraint": "refused", "gap": "missing"}


@dataclass(frozen=True, slots=True)
class Package:
    """The files of one operator by their path in its folder. `has_reference` is False for a signature alone."""

    operator: str
    has_reference: bool
    files: Mapping[str, str]


def packages(model: str, verdicts: Sequence[Verdict], device: str, marker: str | None) -> tuple[Package, ...]:
    """One package per operator among the verdicts, for all of its sizes; `marker` is the device's in the whitelist."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["literal"] = lambda value: json.dumps(value) if isinstance(value, str) else repr(value)
    environment.filters["torch_name"] = lambda dtype: f"torch.{dtype}"
    environment.filters["json"] = json.dumps
    library, made = References(), []
    for name in dict.fromkeys(verdict.need.name for verdict in verdicts):
        judged = [verdict for verdict in verdicts if verdict.need.name == name]
        context = _context(name, judged, library)
        context |= {"model": model, "device_name": device, "marker": marker}
        files = {file: environment.get_template(f"{file}.j2").render(context) for file in FILES}
        made.append(Package(name, name in library, files))
    return tuple(made)


def _context(name: str, judged: Sequence[Verdict], library: References) -> dict[str, Any]:
    needs = [verdict.need for verdict in judged]
    spec = signature(name, needs)
    phases = [phase for phase in PHASES if any(phase in need.phases for need in needs)]
    follows = spec.operator.follows_model_dtype
    return {
        **kernel_facts(spec, needs),
        "name": name,
        "operator": spec.operator,
        "verdicts": judged,
        "status_words": _WORDS,
        "meaning": textwrap.fill(f"{_sentence(spec.operator.meaning)} Source: {spec.operator.source}.", 116),
        "shape_lines": _shape_lines(spec),
        "source": library.source(name) if name in library else None,
        "phases": phases,
        "axis_words": {axis: {**AXES, **BATCH_AXES}[axis] for axis in spec.axes},
        "dtype_words": {t.name: "the model's" if t.dtype == "model" else t.dtype for t in spec.tensors},
        "step_facts": {tensor.name: STEP_FACTS[tensor.name] for tensor in _step_tensors(spec)},
        "attribute_words": {name: ATTRIBUTES[name] for name in spec.operator.attributes},
        "dtypes": [*dict.fromkeys((needs[0].dtype, "float32"))] if follows else ["float32"],
        "cases": _cases(spec, needs, phases),
        "draws": [(tensor.name, expression(spec, tensor)) for tensor in spec.tensors],
        "case_options": [(option.name, _option_value(spec, option.name)) for option in spec.options],
        "model_words": "`dtype` is the model's" if follows else "no tensor has the model's dtype",
        "benchmarks": _benchmarks(needs),
    }


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _step_tensors(spec: Signature) -> list[Any]:
    own = {tensor.name for tensor in spec.operator.inputs}
    return [tensor for tensor in spec.tensors if tensor.name not in own]


def _shape_lines(spec: Signature) -> list[str]:
    """Tensors with axes and dtypes, wrapped: "q [tokens, heads, head_dim]; ... -> y [...]"."""
    takes, gives = (
        "; ".join(f"{t.name} [{', '.join(t.axes)}]" + ("" if t.dtype == "model" else f" {t.dtype}") for t in tensors)
        for tensors in (spec.tensors, spec.outputs)
    )
    return textwrap.wrap(f"{takes} -> {gives}. Without a dtype: the model's.", 116)


def _cases(spec: Signature, needs: Sequence[OperatorNeed], phases: Sequence[Phase]) -> list[dict[str, Any]]:
    """A case per phase for the first two sets of sizes that differ once they are small."""
    cases: list[dict[str, Any]] = []
    for need in needs:
        sizes, attributes = small_need(need)
        for phase in phases[:2]:
            # An entry of several tokens is complete only now and then; one token at a time says nothing of it.
            if phase not in need.phases or ("entries" in spec.operator.axes and phase == "decode"):
                continue
            variable = variable_sizes(spec, phase, sizes, attributes)
            case = {"phase": phase, "sizes": sizes | variable, "attributes": attributes}
            if case not in cases:
                cases.append(case)
    return cases[:4]


def _option_value(spec: Signature, option: str) -> str:
    if option == "dtype":
        return "dtype"
    return f'case["sizes"]["{option}"]' if option in spec.operator.axes else f'case["attributes"]["{option}"]'


def _benchmarks(needs: Sequence[OperatorNeed]) -> list[dict[str, Any]]:
    """The model's own sizes: every need in each of its phases, at steps from short to long."""
    rows = []
    for need in needs:
        for phase in need.phases:
            rows.append(
                {
                    "phase": phase,
                    "layers": len(need.layers),
                    "used_for": [*need.used_for],
                    "dtype": need.dtype,
                    "shapes": {**need.shapes},
                    "attributes": {**need.attributes},
                    "tokens": {"prefill": [*PREFILL_TOKENS], "decode": [*DECODE_BATCHES]}.get(phase, []),
                }
            )
    return rows
