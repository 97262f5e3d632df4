"""Named intermediate tensors in execution order, kept on request; `batch.trace` is None when nobody asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class Trace:
    """Collects copies of tensors by name. `only` limits it to names that start with one of these prefixes."""

    only: tuple[str, ...] = ()
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    def wants(self, name: str) -> bool:
        return not self.only or name.startswith(self.only)

    def save(self, name: str, tensor: torch.Tensor) -> None:
        """Keep a copy of `tensor`; a name saved twice in one forward is a defect of the caller."""
        assert name not in self.tensors, f"trace point {name} saved twice"
        if self.wants(name):
            self.tensors[name] = tensor.detach().clone()
