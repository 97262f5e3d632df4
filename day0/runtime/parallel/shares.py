"""What of each stored tensor a rank reads, and the tensor that comes of it: cuts of parameters, as files hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from day0.errors import InputError
from day0.profile.packing import one_by_one, pack
from day0.profile.profile import ArchitectureProfile
from day0.profile.quantization import StoredPart
from day0.profile.tensor_spec import TensorSpec
from day0.profile.tensors import plain_tensors
from day0.runtime.parallel.cuts import Cut, parameter_cuts
from day0.runtime.parallel.layout import Layout, Place, even_share


@dataclass(frozen=True, slots=True)
class Share:
    """A rank's part of one stored tensor: `pieces` of its `axis`, one after another; None is all of it.

    `length` is the axis as stored, which may be longer where it is `padded`. Of experts stored one by one only those in
    `experts` are read, of a stack of them those in `stack`. `counts` False: nothing is read, and zero stands there.
    """

    axis: int = 0
    length: int = 0
    pieces: tuple[range, ...] | None = None
    experts: range | None = None
    stack: range | None = None
    padded: bool = False
    counts: bool = True

    def names(self, spec: TensorSpec) -> list[str]:
        """The checkpoint names of what is read: of experts stored one by one, those of this rank."""
        names = spec.names()
        return names if self.experts is None else names[self.experts.start : self.experts.stop]


@dataclass(frozen=True, slots=True)
class LocalTensor:
    """A stored tensor as a rank holds it: `spec` has the shape that is left once `share` is taken."""

    spec: TensorSpec
    share: Share


def local_tensors(profile: ArchitectureProfile, layout: Layout, place: Place) -> tuple[LocalTensor, ...]:
    """Every stored tensor of the decoder and its towers as the rank at `place` holds it.

    Raises InputError where a packed matrix would be cut inside a group or block.
    """
    cuts = parameter_cuts(profile, layout, place)
    return tuple(_local(spec, part, cuts, layout, place) for spec, part in _stored(profile))


def _stored(profile: ArchitectureProfile) -> Iterator[tuple[TensorSpec, StoredPart | None]]:
    """What a checkpoint stores, each with the part of a packing that it is."""
    for spec, ahead in plain_tensors(profile):
        packing = profile.quantization.format_of(spec) if profile.quantization is not None else None
        if ahead:
            continue
        if packing is None:
            yield spec, None
            continue
        for matrix in one_by_one(spec) if packing.apart else (spec,):
            yield from zip(pack(matrix, packing), packing.counted, strict=True)


def _local(
    spec: TensorSpec, part: StoredPart | None, cuts: Mapping[str, Cut], layout: Layout, place: Place
) -> LocalTensor:
    stems = [stem for stem, _ in spec.parts] or [spec.path.rpartition(".")[0]]
    leaf = spec.path.rpartition(".")[2] if part is None else "weight"
    plain = [f"{stem}.{leaf}" if stem else leaf for stem in stems]
    found = [cuts.get(path) for path in plain]
    share = Share()
    if spec.num_experts and layout.ep > 1:
        own = even_share(spec.num_experts, layout.ep, place.lot)
        share = Share(stack=own) if spec.stacked else Share(experts=own)
    if share.stack is not None:
        spec = replace(spec, shape=(len(share.stack), *spec.shape[1:]), stacked=len(share.stack))
    cut = found[0]
    if cut is None:
        return LocalTensor(spec, share)
    if cut.pieces is None:
        return LocalTensor(spec, replace(share, counts=False))
    axis = _stored_axis(spec, part, cut)
    if axis is None:  # one number for the whole matrix, or one for each row of a matrix that is cut by columns
        return LocalTensor(spec, share)
    per = 1 if part is None else next(entry.per for entry in part.axes if entry.of == _direction(cut))
    pieces, parts = _joined_pieces(spec, [one for one in found if one is not None], per)
    length = cut.size if spec.zero_tail else spec.shape[axis]
    shape = (*spec.shape[:axis], sum(map(len, pieces)), *spec.shape[axis + 1 :])
    turns = spec.by_turns * len(pieces[0]) // length if spec.by_turns else 0
    local = replace(spec, shape=shape, parts=parts, by_turns=turns, zero_tail=False)
    return LocalTensor(local, replace(share, axis=axis, length=length, pieces=pieces, padded=spec.zero_tail))


def _direction(cut: Cut) -> str:
    return ("out", "in")[cut.axis]


def _stored_axis(spec: TensorSpec, part: StoredPart | None, cut: Cut) -> int | None:
    """The axis of the stored tensor along which a cut of the plain parameter runs; None where the part has none."""
    stack = 1 if spec.stacked else 0
    if part is None:
        unit = len(spec.shape) - stack - cut.dims  # a first axis of 1 that modules do not have
        return stack + unit + (cut.dims - 1 - cut.axis if spec.input_first else cut.axis)
    axes = part.axes[::-1] if spec.input_first else part.axes
    place = next((number for number, axis in enumerate(axes) if axis.of == _direction(cut)), None)
    return None if place is None else stack + place


def _joined_pieces(
    spec: TensorSpec, cuts: list[Cut], per: int
) -> tuple[tuple[range, ...], tuple[tuple[str, int], ...]]:
    """The pieces of a stored tensor that hold those of its parts, and the parts' entries that are left."""
    if len(spec.parts) < 2 or all(rows == 0 for _, rows in spec.parts):
        return tuple(_entries(spec, piece, cuts[0].size, per) for piece in _pieces(cuts[0])), spec.parts
    if any(rows < 0 for _, rows in spec.parts):
        raise InputError("a block of its scales lies across two projections, and cannot be cut", where=spec.path)
    if spec.by_turns:
        return _whole_turns(spec, cuts)
    pieces: list[range] = []
    parts: list[tuple[str, int]] = []
    start = 0
    for (stem, entries), cut in zip(spec.parts, cuts, strict=True):
        own = [_entries(spec, piece, cut.size, per) for piece in _pieces(cut)]
        pieces += [range(start + piece.start, start + piece.stop) for piece in own]
        parts.append((stem, sum(map(len, own))))
        start += entries
    return tuple(pieces), tuple(parts)


def _whole_turns(spec: TensorSpec, cuts: list[Cut]) -> tuple[tuple[range, ...], tuple[tuple[str, int], ...]]:
    """Parts that come by turns are cut between turns: the ones that hold this rank's entries of every part."""
    total = sum(rows for _, rows in spec.parts)
    turn = total // spec.by_turns
    first = cuts[0]
    (own,) = _pieces(first)
    if own.start * spec.by_turns % first.size or own.stop * spec.by_turns % first.size:
        raise InputError(f"its {spec.by_turns} turns cannot be cut where a rank's heads end", where=spec.path)
    turns = range(own.start * spec.by_turns // first.size, own.stop * spec.by_turns // first.size)
    parts = tuple((stem, rows * len(turns) // spec.by_turns) for stem, rows in spec.parts)
    return (range(turns.start * turn, turns.stop * turn),), parts


def _pieces(cut: Cut) -> tuple[range, ...]:
    assert cut.pieces is not None, "biases that count once are not joined to others"
    return cut.pieces


def _entries(spec: TensorSpec, piece: range, size: int, per: int) -> range:
    """The entries of a stored part that serve a piece of `size` rows or columns, `per` of them each.

    A scale may also serve a piece that lies inside what it covers: the piece then has it for itself.
    """
    first, last = piece.start // per, (piece.stop - 1) // per
    if first == last and not spec.parameters:
        return range(first, first + 1)
    if piece.start % per or (piece.stop % per and piece.stop != size):
        raise InputError(
            f"{spec.path}: {len(piece)} of {size} channels cannot be cut off between groups of {per} ({spec.format})",
            where="--tp",
            hint=f"a cut into multiples of {per}; --ep deals experts out whole",
        )
    return range(piece.start // per, -(-piece.stop // per))
