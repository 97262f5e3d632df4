"""Do two traces mean the same tensors: the same prompt, the same positions, the same layout, the same place."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from day0.errors import InputError
from day0.numerics.joining import GROWING, UNSEEN
from day0.numerics.reading import Recording
from day0.numerics.recording import Entry
from day0.numerics.statistics import sampled

CLOSE = 0.05
"""Two tensors that are this close, relative to their norm, are taken to be the same one."""


@dataclass(frozen=True, slots=True)
class Aligned:
    """The candidate's tensor as the reference's is laid out, and what had to be done to it ("" for nothing)."""

    tensor: Tensor
    note: str = ""


def check_prompts(reference: Recording, candidate: Recording) -> str:
    """What is said where one side does not give its prompt; InputError where the two are of other prompts."""
    one, two = reference.prompt_ids, candidate.prompt_ids
    shown, seen = ([image["sha256"] for image in side.facts.get("images") or ()] for side in (reference, candidate))
    if shown and seen and shown != seen:
        raise InputError("other images", where=candidate.where, hint="both traces must be of the same files, in order")
    if one is None or two is None:
        side = reference if one is None else candidate
        return f"{side.where} does not say which tokens it is of"
    if one == two:
        return ""
    if one[1:] == two or two[1:] == one:
        longer = reference if len(one) > len(two) else candidate
        message = f"its prompt has one token more in front ({longer.prompt_ids[:1] if longer.prompt_ids else ''})"
        raise InputError(message, where=longer.where, hint="a start token that one side adds: trace token ids instead")
    at = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    raise InputError(
        f"another prompt: {len(two)} tokens for {len(one)}, the first that differs is {at}",
        where=candidate.where,
        hint="both traces must be of the same token ids",
    )


def aligned(candidate: Tensor, reference: Tensor) -> Aligned:
    """Bring a candidate of the same numbers in another layout into the reference's.

    Leading axes of length 1 are dropped, heads split or joined, two axes exchanged, where the number of elements
    allows it; exchanged axes only where that makes the two close, so that a transposed result stays a mistake.
    """
    if candidate.shape == reference.shape:
        return Aligned(candidate)
    squeezed = candidate
    while squeezed.dim() > reference.dim() and squeezed.shape[0] == 1:
        squeezed = squeezed[0]
    if squeezed.shape == reference.shape:
        return Aligned(squeezed, "a leading axis of one dropped")
    if squeezed.numel() != reference.numel() or not squeezed.dim() or not reference.dim():
        return Aligned(candidate)
    if squeezed.shape[0] == reference.shape[0]:
        return Aligned(squeezed.reshape(reference.shape), "heads split or joined")
    for first in range(squeezed.dim()):
        for second in range(first + 1, squeezed.dim()):
            turned = squeezed.transpose(first, second)
            if turned.shape[0] != reference.shape[0] or turned.numel() != reference.numel():
                continue
            same = turned.reshape(reference.shape)
            if relative(same, reference) < CLOSE:
                return Aligned(same, f"axes {first} and {second} exchanged")
    return Aligned(candidate)


def relative(one: Tensor, two: Tensor) -> float:
    """||one - two|| / ||two|| in float64."""
    wanted = two.double()
    return float((one.double() - wanted).norm() / wanted.norm().clamp_min(1e-300))


def meant_instead(candidate: Tensor, name: str, others: dict[str, Tensor]) -> str | None:
    """The name of another reference tensor that the candidate is: before or after a norm, a neighbouring layer's."""
    for other, tensor in others.items():
        alike = tensor.shape == candidate.shape and tensor.is_floating_point()
        if other != name and alike and relative(candidate, tensor) < CLOSE / 10:
            return other
    return None


def like_reference(entry: Entry, wanted: Tensor, other: Entry, found: Tensor) -> tuple[Tensor, Tensor, str]:
    """Both tensors in one layout, and sampled alike where one side kept only some channels."""
    if entry.operator in GROWING and found.shape == wanted.shape and found.is_floating_point():
        unseen = found == UNSEEN
        found, wanted = found.masked_fill(unseen, 0.0), wanted.masked_fill(unseen, 0.0)
    if entry.kept == "whole":
        fit = aligned(found, wanted) if other.kept == "whole" else None
        if fit is not None:
            return wanted, fit.tensor, fit.note
    if entry.channels is not None and other.kept == "whole":
        return wanted, sampled(found, entry.channels), "channels sampled"
    if other.channels is not None and entry.kept == "whole":
        return sampled(wanted, other.channels), found, "channels sampled"
    return wanted, found, ""
