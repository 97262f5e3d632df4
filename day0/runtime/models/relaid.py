"""Copies of matrices in the layout that the chosen kernels multiply from, beside the parameters they were made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from day0.runtime.models.decoder import Decoder
from day0.runtime.models.ends import Head
from day0.runtime.models.linear import Linear


def relay_matrices(decoder: Decoder, budget: int) -> None:
    """Lay out the head's matrix and those of linear maps as their kernels want them, in `budget` bytes at most.

    The head comes first, for it is the largest, then layer by layer what still fits. Parameters stay as they are, for
    all who read them. Nothing happens where the chosen kernels read plain rows.
    """
    for owner, operator, matrix in _matrices(decoder):
        layout = decoder.ops.layouts.get(operator)
        if layout is None or matrix.dtype != decoder.dtype or matrix.nbytes > budget:
            continue
        served = layout.served(matrix)
        if served:
            owner.relaid, owner.relaid_for = layout.copy(matrix), served
            budget -= matrix.nbytes


def relaid_bytes(decoder: Decoder) -> int:
    """Bytes of all copies."""
    copies = (owner.relaid for owner in _owners(decoder))
    return sum(copy.numel() * copy.element_size() for copy in copies if copy is not None)


@contextmanager
def without_copies(decoder: Decoder) -> Iterator[None]:
    """Parameters themselves are multiplied from inside the block, so that a change of theirs shows."""
    kept = [(owner, owner.relaid) for owner in _owners(decoder)]
    try:
        for owner, _ in kept:
            owner.relaid = None
        yield
    finally:
        for owner, copy in kept:
            owner.relaid = copy


def _owners(decoder: Decoder) -> list[Head | Linear]:
    return [owner for owner, _, _ in _matrices(decoder)]


def _matrices(decoder: Decoder) -> Iterator[tuple[Head | Linear, str, torch.Tensor]]:
    """Who multiplies, the operator, and the matrix as plain rows; packed ones are turned back whenever they run."""
    own, head = decoder.lm_head, decoder.head
    if isinstance(head, Head):  # else it is on another rank
        operator = "lm_head" if own is None or own.bias is None else "biased_lm_head"
        if not isinstance(own, Linear):
            yield head, operator, decoder.embed.weight[: decoder.profile.vocab_size]
        elif type(own) is Linear:
            yield head, operator, own.weight
    for module in decoder.layers.modules():
        if type(module) is Linear and module.is_called:
            yield module, "linear", module.weight
