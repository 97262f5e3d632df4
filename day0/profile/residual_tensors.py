"""The tensors of residual streams: what each branch reads and writes by, and what joins the streams at the end."""

from __future__ import annotations

from collections.abc import Iterator

from day0.profile.draft import Draft
from day0.profile.hyper_connections import HyperConnections


def hyper_connection_site(path: str, spec: HyperConnections, hidden: int) -> Iterator[Draft]:
    """The weights that one branch computes from all streams."""
    yield from _mixing(path, spec.num_weights, spec.num_scales, spec, hidden)


def hyper_connection_head(path: str, spec: HyperConnections, hidden: int) -> Iterator[Draft]:
    """The weights that join the streams after the last layer, where they are not simply averaged."""
    if spec.learned_head:
        yield from _mixing(path, spec.streams, 1, spec, hidden)


def affine_site(path: str, hidden: int, *, branch: bool) -> Iterator[Draft]:
    """Scale and shift of the stream and, where a `branch` joins it, of what the branch gives."""
    for leaf in ("scale", "shift", *(("branch_scale", "branch_shift") if branch else ())):
        yield Draft(f"{path}.{leaf}", (hidden,), "residual_mixing")


def _mixing(path: str, weights: int, scales: int, spec: HyperConnections, hidden: int) -> Iterator[Draft]:
    for leaf, shape in (
        ("fn", (weights, spec.streams * hidden)),
        ("base", (weights,)),
        ("scale", (scales,)),
    ):
        yield Draft(f"{path}.{leaf}", shape, "residual_mixing", dtype="F32", keep_float32=True)
