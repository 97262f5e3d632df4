"""The operator vocabulary: what each operator is called, what it takes and gives, and how exact it must be.

An operator's plain float32 reference (runtime/ops) is its definition; this room is its contract, without torch.
Names, words for axes and tolerances are defined here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

from day0.operators.audio import AUDIO
from day0.operators.contract import (
    ATTRIBUTES,
    AXES,
    VARIABLE_AXES,
    Operator,
    Phase,
    TensorContract,
    output_tolerance,
)
from day0.operators.convolved import CONVOLVED
from day0.operators.decoder import DECODER
from day0.operators.experts import EXPERTS
from day0.operators.grouped_query import GROUPED_QUERY
from day0.operators.linear_attention import LINEAR_ATTENTION
from day0.operators.quantisation import QUANTISATION
from day0.operators.sparse import SPARSE
from day0.operators.state_space import STATE_SPACE
from day0.operators.tolerance import (
    CHAIN,
    EXACT,
    MATMUL,
    POINTWISE,
    RECURRENCE,
    REDUCTION,
    Agreement,
    Tolerance,
    root_mean_square,
)
from day0.operators.vision import VISION

__all__ = [
    "ATTRIBUTES",
    "AXES",
    "CHAIN",
    "EXACT",
    "MATMUL",
    "OPERATORS",
    "POINTWISE",
    "RECURRENCE",
    "REDUCTION",
    "VARIABLE_AXES",
    "Agreement",
    "Operator",
    "Phase",
    "TensorContract",
    "Tolerance",
    "output_tolerance",
    "root_mean_square",
]

OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for operator in (
        *DECODER,
        *QUANTISATION,
        *GROUPED_QUERY,
        *SPARSE,
        *LINEAR_ATTENTION,
        *STATE_SPACE,
        *CONVOLVED,
        *EXPERTS,
        *VISION,
        *AUDIO,
    )
}
"""The vocabulary by name."""
