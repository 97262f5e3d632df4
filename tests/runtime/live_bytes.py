"""How many bytes of tensors are alive at most while something runs, counted at every operator."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts the storages that operators give while it is entered; `peak` is the most that were alive at once.

    What was there before does not count, nor meta tensors, nor what an operator takes and gives back inside.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        before = {id(leaf.untyped_storage()) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        for leaf in tree_leaves(given):
            if isinstance(leaf, torch.Tensor) and not leaf.is_meta:
                self._count(leaf.untyped_storage(), before)
        return given

    def _count(self, storage: torch.UntypedStorage, before: set[int]) -> None:
        key = id(storage)
        if key in self._seen or key in before:
            return
        self._seen.add(key)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size
