"""What every block is built with: the model's sizes, its kind of norm and the chosen operators."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from day0.profile.profile import NormKind
from day0.runtime.models.linear import Linear, RMSNorm
from day0.runtime.models.norms import NORMS, UnitNorm
from day0.runtime.ops.registry import Operators
from day0.runtime.parallel.ranks import ALONE, Ranks


class Elsewhere(nn.Module):
    """Stands for what another stage of the pipeline has."""


@dataclass(frozen=True, slots=True)
class Build:
    """One model's common facts, and the modules that follow from them.

    Specs and sizes are those of this rank, of the `ranks` that share the model; the hidden size is never cut.
    `norm_kind` is that of the norms over the hidden size and of those that the spec of a block leaves to the model.
    """

    hidden: int
    norm_eps: float
    ops: Operators
    norm_kind: NormKind = "rms"
    num_layers: int = 1
    ranks: Ranks = ALONE

    def linear(self, in_features: int, out_features: int, bias: bool = False) -> Linear:
        """x [tokens, in] -> [tokens, out]."""
        return Linear(in_features, out_features, self.ops, bias)

    def norm(self, width: int, eps: float | None = None) -> nn.Module:
        """A norm over the last axis of x [..., width], of the model's kind; its epsilon unless one is given."""
        return NORMS[self.norm_kind](width, self.norm_eps if eps is None else eps, self.ops)

    def rms_norm(self, width: int, eps: float | None = None) -> RMSNorm:
        """An RMS norm whose weight is stored as it is, whatever the model's kind."""
        return RMSNorm(width, self.norm_eps if eps is None else eps, self.ops)

    def unit_norm(self, eps: float | None = None) -> UnitNorm:
        """An RMS norm without a weight."""
        return UnitNorm(self.norm_eps if eps is None else eps, self.ops)
