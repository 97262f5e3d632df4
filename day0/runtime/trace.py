"""Named intermediate tensors in execution order, kept on request; `batch.trace` is None when nobody asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from day0.errors import InputError

if TYPE_CHECKING:
    import torch

Observer = Callable[[str, "torch.Tensor"], "torch.Tensor | None"]
"""Told every wanted tensor as it is computed; gives what is kept of it, None for nothing."""


@dataclass(slots=True)
class Trace:
    """Collects copies of tensors by name. `only` limits it to names that start with one of these prefixes.

    `observe` decides what is kept, so that a long trace need not lie in memory whole. `replaced` has tensors of
    another run by name: the forward goes on from these, while what it computed itself is what is kept.
    """

    only: tuple[str, ...] = ()
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    observe: Observer | None = None
    replaced: Mapping[str, torch.Tensor] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def wants(self, name: str) -> bool:
        return not self.only or name.startswith(self.only)

    def save(self, name: str, tensor: torch.Tensor) -> None:
        """Keep a copy of `tensor`; a name saved twice in one forward is a defect of the caller."""
        assert name not in self._seen, f"trace point {name} saved twice"
        self._seen.add(name)
        if self.wants(name):
            kept = tensor if self.observe is None else self.observe(name, tensor.detach())
            if kept is not None:
                self.tensors[name] = kept.detach().clone()

    def passed(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Save `tensor` and give what the forward goes on from: itself, or the other run's in its place."""
        self.save(name, tensor)
        other = self.replacement(name, tensor)
        return tensor if other is None else other

    def replacement(self, name: str, like: torch.Tensor) -> torch.Tensor | None:
        """The other run's tensor of this name on `like`'s device and in its dtype; InputError for another shape."""
        other = self.replaced.get(name)
        if other is None:
            return None
        if other.shape != like.shape:
            raise InputError(
                f"has shape {tuple(other.shape)}, this run computes {tuple(like.shape)}",
                where=name,
                hint="a run is fed from a whole trace of the same prompt and model",
            )
        return other.to(like.device, like.dtype)
