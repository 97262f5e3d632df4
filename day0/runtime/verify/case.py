"""What an operator is tried at, and sizes that many operators share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

PLAIN = "plain"
"""The weight format of unpacked weights, whose name is that of their dtype."""

Fact = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Cases:
    """Trials of one operator: `sizes` crossed with `attributes`. `constraints` say what the runtime has no code for.

    `spans` are the axes along which everything between the sizes tried counts as covered: each must occur at its
    smallest and at its largest, together with every combination of words and flags.
    """

    spans: tuple[str, ...]
    sizes: Sequence[Mapping[str, int]]
    attributes: Sequence[Mapping[str, Fact]] = ({},)
    constraints: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def rows(axes: str, *rows: Sequence[int]) -> tuple[dict[str, int], ...]:
    names = axes.split()
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


WIDTHS = rows("tokens width", (1, 1), (63, 100), (3, 65536))
HEADS = rows("tokens heads head_dim", (1, 1, 2), (63, 5, 100), (3, 128, 256))
EPS = ({"eps": 1e-6},)
ROUTING = tuple(
    {"renormalize": renormalize, "correction_bias": bias, "scaling_factor": 2.5}
    for renormalize in (False, True)
    for bias in (False, True)
)
GROUPED_CHOICES = rows(
    "tokens experts top_k num_groups topk_groups",
    (1, 1, 1, 1, 1),
    (63, 100, 7, 1, 1),
    (63, 96, 6, 8, 4),
    (63, 99, 5, 9, 3),
    (5, 1024, 32, 16, 16),
)
