"""Reads what other engines dumped: folders of .pt, .npy and .npz files; shards of several ranks are joined first."""

from __future__ import annotations

import pickle
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from day0.errors import InputError
from day0.numerics.reading import RANKS_DIFFER, Recording, plain_entries

SAME = "same"
"""In a name map's `axes`: every rank has the whole; where they differ their mean is compared."""
ENDINGS = (".pt", ".npy", ".npz")
_FIELD = re.compile(r"(\w+?)=(.*)")
_ID_NAMES = ("input_ids", "token_ids", "prompt_ids")
_RANK_FIELDS = ("rank", "tp_rank", "ep_rank", "pp_rank")
_CALL_FIELDS = ("forward_pass_id", "dump_index")


@dataclass(frozen=True, slots=True)
class NameMap:
    """How the names of a dump become ours.

    `names` maps a regular expression that fits the whole name to the name of a trace point, groups as `\\1`. `axes` is
    the axis along which the ranks' tensors of a trace point (a pattern likewise) are joined; "sum" adds them up,
    "same" says that every rank has the whole, so that ranks which differ are a finding. What is not named must be the
    same on every rank. `step` picks one forward of a dump of several.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    axes: Mapping[str, int | str] = field(default_factory=dict)
    step: int | None = None

    @classmethod
    def of(cls, document: object, where: str) -> NameMap:
        """From a parsed YAML document; InputError says which key or pattern is wrong."""
        if not isinstance(document, Mapping) or set(document) - {"names", "axes", "step"}:
            raise InputError(
                "a name map has the keys names, axes, step", where=where, hint=f"this has {document!r:.80}"
            )
        made = cls(document.get("names") or {}, document.get("axes") or {}, document.get("step"))
        for pattern in (*made.names, *made.axes):
            try:
                re.compile(pattern)
            except re.error as fault:
                raise InputError(f"pattern {pattern!r}: {fault}", where=where) from None
        return made

    def name(self, foreign: str) -> str:
        for pattern, ours in self.names.items():
            if match := re.fullmatch(pattern, foreign):
                return match.expand(ours)
        return foreign

    def axis(self, name: str) -> int | str | None:
        return next((axis for pattern, axis in self.axes.items() if re.fullmatch(pattern, name)), None)


def read_dump(folder: Path, name_map: NameMap | None = None) -> Recording:
    """Read every dump file of `folder` and of the folders in it.

    A file is named after its tensor ("layers.0.output.pt", a folder `rank1/` above it or an ending `.rank1` for the
    rank), or in the manner of SGLang's dumper: fields "name=...___rank=...___forward_pass_id=....pt", whose file holds
    the tensor or a mapping with it under "value". Pickles are read as weights only. Raises InputError where nothing is
    there, a file is broken, or shards do not fit together.
    """
    name_map = name_map or NameMap()
    found: dict[str, dict[int, Tensor]] = defaultdict(dict)
    calls: dict[str, dict[int, int]] = defaultdict(dict)
    for path in sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS):
        foreign, rank, call = _named(path, folder)
        for name, tensor in _tensors(path, foreign):
            ours = name_map.name(name)
            if name_map.step is not None and call is not None and call != name_map.step:
                continue
            if rank in found[ours]:
                hint = "rename them, or choose a forward with `step:` in a name map"
                raise InputError(f"{path.name}: a second tensor is called {ours!r}", where=str(folder), hint=hint)
            found[ours][rank], calls[ours][rank] = tensor, call or 0
    if not found:
        raise InputError(f"no {', '.join(ENDINGS)} files", where=str(folder), hint="a folder of dumped tensors")
    joined = {name: _join(name, ranks, name_map.axis(name), folder) for name, ranks in found.items()}
    ids = next((joined.pop(name) for name in _ID_NAMES if name in joined), None)
    prompt = None if ids is None else tuple(int(token) for token in ids.flatten())
    apart = tuple(
        name
        for name, ranks in found.items()
        if name_map.axis(name) == SAME and any(not torch.equal(shard, ranks[0]) for shard in ranks.values())
    )
    return Recording(str(folder), plain_entries(joined), joined.__getitem__, prompt, facts={RANKS_DIFFER: apart})


def _named(path: Path, folder: Path) -> tuple[str, int, int | None]:
    """Name, rank and forward of a file."""
    found = (_FIELD.fullmatch(part) for part in path.stem.split("___"))
    fields = {match[1]: match[2] for match in found if match}
    if "name" in fields:
        rank = next((int(fields[key]) for key in _RANK_FIELDS if fields.get(key, "").isdigit()), 0)
        call = next((int(fields[key]) for key in _CALL_FIELDS if fields.get(key, "").isdigit()), None)
        name = fields["name"]
        return (f"layers.{fields['layer_id']}.{name}" if "layer_id" in fields else name), rank, call
    relative = path.relative_to(folder).with_suffix("")
    parts = list(relative.parts)
    ranks = [int(match[1]) for part in parts[:-1] if (match := re.fullmatch(r"(?:tp|ep|pp)?_?rank_?(\d+)", part))]
    name = parts[-1]
    if match := re.fullmatch(r"(.+?)[._-](?:tp_?)?rank_?(\d+)", name):
        name, ranks = match[1], [int(match[2])]
    return name, ranks[0] if ranks else 0, None


def _tensors(path: Path, name: str) -> Iterator[tuple[str, Tensor]]:
    try:
        if path.suffix == ".pt":
            yield from _unpacked(name, torch.load(path, map_location="cpu", weights_only=True), path)
        elif path.suffix == ".npy":
            yield name, torch.from_numpy(np.load(path, allow_pickle=False))
        else:
            with np.load(path, allow_pickle=False) as archive:
                yield from ((key, torch.from_numpy(archive[key])) for key in archive.files)
    except (OSError, ValueError, TypeError, RuntimeError, EOFError, pickle.UnpicklingError) as fault:
        said = " ".join(str(fault).split())[:160]
        raise InputError(f"cannot be read without running code: {said}", where=str(path)) from None


def _unpacked(name: str, value: object, path: Path) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping) and isinstance(value.get("value"), Tensor):
        yield name, value["value"]
    elif isinstance(value, Mapping) and value and all(isinstance(part, Tensor) for part in value.values()):
        yield from ((str(key), part) for key, part in value.items())
    else:
        raise InputError("holds no tensor, and no mapping of names to tensors", where=str(path))


def _join(name: str, ranks: Mapping[int, Tensor], axis: int | str | None, folder: Path) -> Tensor:
    """One tensor of the ranks' shards, in the order of ranks."""
    shards = [ranks[rank] for rank in sorted(ranks)]
    if len(shards) == 1:
        return shards[0]
    if sorted(ranks) != list(range(len(shards))):
        raise InputError(f"{name}: ranks {sorted(ranks)} are not all of them", where=str(folder))
    try:
        if axis in (None, SAME) and all(torch.equal(shard, shards[0]) for shard in shards[1:]):
            return shards[0]
        if axis is None:
            hint = f"say how in a name map: axes: {{'{name}': 1}}, 'sum', or 'same' where it ought to be"
            raise InputError(
                f"{name} differs between ranks, and nothing says how they join", where=str(folder), hint=hint
            )
        if axis in ("sum", SAME):
            total = torch.stack([shard.float() for shard in shards]).sum(0)
            return (total / len(shards) if axis == SAME else total).to(shards[0].dtype)
        return torch.cat(shards, dim=int(axis))
    except (RuntimeError, IndexError, ValueError) as fault:
        raise InputError(f"{name}: the ranks' tensors do not join: {fault}", where=str(folder)) from None
