"""How what a branch gives comes back to the residual stream: one rule per residual that is more than a sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from day0.inventory.use import Use, use
from day0.profile.residuals import (
    AffineResidual,
    GatedResidual,
    ParallelResidual,
    PlainResidual,
    ScaledResidual,
    WeighedResidual,
)


def plain_way_back(branch: str, spec: Any, hidden: int) -> Use:
    del spec
    return use("residual_add", branch, width=hidden)


def plain(branch: str, spec: PlainResidual | ParallelResidual, hidden: int) -> Use:
    if spec.branch_scale == 1.0:
        return use("residual_add", branch, width=hidden)
    return use("weighed_residual_add", branch, width=hidden, skip=1.0, branch=spec.branch_scale, normed=False)


def gated(branch: str, spec: GatedResidual, hidden: int) -> Use:
    return use("gated_residual_add", branch, width=hidden, temperature=spec.temperature, eps=spec.eps)


def weighed(branch: str, spec: WeighedResidual, hidden: int) -> Use:
    skip, taken = (spec.mixer_skip, spec.mixer_branch) if branch == "mixer" else (spec.ffn_skip, spec.ffn_branch)
    return use("weighed_residual_add", branch, width=hidden, skip=skip, branch=taken, normed=spec.normed)


def affine(branch: str, spec: AffineResidual, hidden: int) -> Use:
    del spec
    return use("affine_residual_add", branch, width=hidden)


WAYS_BACK: Mapping[type, Callable[[str, Any, int], Use]] = {
    PlainResidual: plain,
    ScaledResidual: plain_way_back,
    ParallelResidual: plain,
    GatedResidual: gated,
    WeighedResidual: weighed,
    AffineResidual: affine,
}
"""Called with the branch ("mixer" or "ffn"), the spec and the model's hidden size."""
