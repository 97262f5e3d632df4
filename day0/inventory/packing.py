"""What packed weights need: each matrix turned back into numbers, by the operator of its format."""

from __future__ import annotations

from collections.abc import Iterator

from day0.inventory.use import Fact, Use, use
from day0.operators import OPERATORS
from day0.profile.packing import matrix_size
from day0.profile.profile import ArchitectureProfile, LayerSpec
from day0.profile.quantization import WeightFormat
from day0.profile.tensors import packed_matrices

_WORD_BITS = 32


def packed_weights(profile: ArchitectureProfile, layer: LayerSpec | None) -> Iterator[Use]:
    """One use for each packed matrix of a layer, of all its experts together; None: those outside of layers."""
    inside = "" if layer is None else f"layers.{layer.index}."
    for spec, packing in packed_matrices(profile, layer):
        place = spec.path.removeprefix(inside).removesuffix(".weight")
        yield use(packing.operator, place, **_facts(packing, *matrix_size(spec)))


def _facts(packing: WeightFormat, rows: int, columns: int) -> dict[str, Fact]:
    """What the operator's contract asks of one matrix [rows, columns]."""
    group = packing.group_size or columns
    values = _WORD_BITS // (packing.bits or _WORD_BITS)
    facts: dict[str, Fact] = {
        "rows": rows,
        "columns": columns,
        "row_bytes": columns // 2,
        "row_words": -(-columns // values),
        "row_groups": -(-columns // group),
        "row_pairs": -(-rows // 2),
        "row_blocks": -(-rows // packing.block_rows),
        "column_words": -(-rows // values),
        "column_blocks": -(-columns // group),
        "whole": 1,
        "group_size": group,
        "bits": packing.bits,
        "block_rows": packing.block_rows,
        "block_columns": group,
    }
    contract = OPERATORS[packing.operator]
    wanted = {*contract.model_axes, *contract.attributes}
    return {name: fact for name, fact in facts.items() if name in wanted}
