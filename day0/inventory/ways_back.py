"""How what a branch gives comes back to the residual stream: one rule per residual that is more than a sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from day0.inventory.use import Use, use
from day0.profile.residuals import AffineResidual, WeighedResidual


def plain_way_back(branch: str, spec: Any, hidden: int) -> Use:
    del spec
    return use("residual_add", branch, width=hidden)


def weighed(branch: str, spec: WeighedResidual, hidden: int) -> Use:
    skip, taken = (spec.mixer_skip, spec.mixer_branch) if branch == "mixer" else (spec.ffn_skip, spec.ffn_branch)
    return use("weighed_residual_add", branch, width=hidden, skip=skip, branch=taken, normed=spec.normed)


def affine(branch: str, spec: AffineResidual, hidden: int) -> Use:
    del spec
    return use("affine_residual_add", branch, width=hidden)


WAYS_BACK: Mapping[type, Callable[[str, Any, int], Use]] = {
    WeighedResidual: weighed,
    AffineResidual: affine,
}
"""Called with the branch ("mixer" or "ffn"), the spec and the model's hidden size."""
