"""What of a stored tensor goes into which parameter: joined projections taken apart, matrices turned our way round."""

from __future__ import annotations

from collections.abc import Iterator, Set

import torch

from day0.errors import CannotSay, InputError
from day0.profile.tensor_spec import TensorSpec

MAPPED_AT_ONCE = 256 << 20
"""Bytes read of a file before it is closed and opened anew: pages of a mapping count as ours until it is closed."""


def parameter_paths(spec: TensorSpec) -> tuple[str, ...]:
    """The parameters that a stored tensor fills."""
    leaf = spec.path.rpartition(".")[2]
    return tuple(f"{stem}.{leaf}" for stem, _ in spec.parts) if spec.parts else (spec.path,)


def pieces(spec: TensorSpec, stored: torch.Tensor, where: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Each parameter's path with what of `stored` it holds, [.., out, in] as modules do.

    Raises InputError where a tensor that has to be taken apart or turned is not of the expected shape, CannotSay where
    a scale serves rows of two modules.
    """
    whole = all(rows == 0 for _, rows in spec.parts)
    if spec.input_first or not whole:
        if tuple(stored.shape) != spec.shape:
            raise InputError(f"has shape {list(stored.shape)}, the config asks for {list(spec.shape)}", where=where)
        stored = stored.mT if spec.input_first else stored
    if whole:
        for path in parameter_paths(spec):
            yield path, stored
        return
    if any(rows < 0 for _, rows in spec.parts):
        raise CannotSay("a block of its scales lies across two projections that are stored as one", where=where)
    axis = spec.output_axis + (1 if spec.stacked else 0)  # experts stand before it
    yield from zip(parameter_paths(spec), _split(spec, stored, axis), strict=True)


def _split(spec: TensorSpec, stored: torch.Tensor, axis: int) -> Iterator[torch.Tensor]:
    if spec.by_turns:
        turns = stored.unflatten(axis, (spec.by_turns, -1))
        for piece in turns.split([rows // spec.by_turns for _, rows in spec.parts], dim=axis + 1):
            yield piece.flatten(axis, axis + 1)
    else:
        yield from stored.split([rows for _, rows in spec.parts], dim=axis)


def wanted_here(specs: tuple[TensorSpec, ...], parameters: Set[str]) -> tuple[TensorSpec, ...]:
    """Without the tensors of parts that are stored beside the decoder and not run: predictors of later tokens, towers
    that the runtime has not, and of packed matrices what is not needed to turn them back."""
    beside = ("mtp.", "vision.", "audio.")
    return tuple(
        spec
        for spec in specs
        if not ((spec.format or spec.path.startswith(beside)) and parameters.isdisjoint(parameter_paths(spec)))
    )
