"""Which shards make up the checkpoint, and which tensor comes from which: the index, the headers and their quarrels."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from day0.errors import Finding, InputError, Severity
from day0.source.json_text import parse_object
from day0.source.model_files import TensorHeader
from day0.source.safetensors_header import ShardHeader

INDEX_NAME = "model.safetensors.index.json"
SUFFIX = ".safetensors"
SINGLE_NAME = f"model{SUFFIX}"

HeaderReader = Callable[[Sequence[str]], Iterable[tuple[str, ShardHeader]]]
"""Gives each named shard and its header, one after another; how (disk, ranged reads) is the caller's business."""

_SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d+)-of-(?P<total>\d+)\.safetensors")
_OTHER_WEIGHTS = (".bin", ".gguf", ".ggml", ".pth", ".pt", ".ckpt", ".h5", ".msgpack", ".onnx", ".npz")
_NOT_WEIGHTS = frozenset({"training_args.bin", "optimizer.pt", "optimizer.bin", "scheduler.pt", "rng_state.pth"})


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """`weight_map` gives each tensor's shard, and `shards` are all of these, sorted.

    `where` is how errors name the file, `findings` what was odd in it.
    """

    weight_map: Mapping[str, str]
    shards: tuple[str, ...]
    total_size: int | None
    where: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The tensors that count, by checkpoint name; None where there are no weights to look at."""

    tensors: Mapping[str, TensorHeader] | None
    shards: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def shard_names(count: int) -> tuple[str, ...]:
    """The names of `count` shards as releases usually spell them."""
    return tuple(f"model-{number:05d}-of-{count:06d}{SUFFIX}" for number in range(1, count + 1))


def parse_index(data: bytes, *, where: str) -> ShardIndex:
    """Parse model.safetensors.index.json and refuse shard names that lead out of the model's folder."""
    parsed = parse_object(data, where=where, name=INDEX_NAME)
    if any(finding.code == "json-duplicate-key" for finding in parsed.findings):
        finding = next(finding for finding in parsed.findings if finding.code == "json-duplicate-key")
        raise InputError(finding.message, where=f"{where}:{finding.where.partition(':')[2]}")
    weight_map = parsed.value.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError("has no `weight_map` with a shard for each tensor", where=where)
    if set(map(type, weight_map.values())) != {str}:
        tensor, shard = next(item for item in weight_map.items() if not isinstance(item[1], str))
        raise InputError(f"tensor {tensor}: its shard must be a file name, got {shard!r}", where=where)
    shards = tuple(sorted(set(weight_map.values())))
    for shard in shards:
        _refuse_unsafe_name(shard, where)
    metadata = parsed.value.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return ShardIndex(weight_map, shards, total if isinstance(total, int) else None, where, parsed.findings)


def _refuse_unsafe_name(shard: str, where: str) -> None:
    path = PurePosixPath(shard)
    if not shard or path.is_absolute() or ".." in path.parts or "\\" in shard or "\0" in shard:
        raise InputError(f"shard name {shard!r} leads out of the model's folder", where=where)
    if path.suffix != SUFFIX:
        raise InputError(f"shard name {shard!r} is not a {SUFFIX} file", where=where)


def read_checkpoint(
    index: ShardIndex | None, names: Collection[str], read_headers: HeaderReader, *, where: str
) -> Checkpoint:
    """Choose the shards among the file `names` and join their headers. `where` names the folder or repository."""
    stored = sorted(name for name in names if name.endswith(SUFFIX))
    if index is not None:
        refuse_missing(index, stored)
        return _join_indexed(index, read_headers(index.shards), stored)
    here = [name for name in stored if "/" not in name]
    if here:
        chosen, findings = _choose_without_index(here, where)
        return _join_all(read_headers(chosen), chosen, findings, where)
    others = sorted(name for name in names if name.endswith(_OTHER_WEIGHTS) and name not in _NOT_WEIGHTS)
    if others:
        raise InputError(
            f"has weights only as {_some(others)}; day0 reads {SUFFIX} and nothing else",
            where=where,
            hint="convert them to safetensors, or give the config.json alone to inspect the architecture",
        )
    note = Finding("no-weights", "note", where, "no weight files here: tensors were not compared")
    return Checkpoint(None, findings=(note,))


def refuse_missing(index: ShardIndex, stored: Collection[str]) -> None:
    """Raise where the index names shards that are not there."""
    missing = [shard for shard in index.shards if shard not in stored]
    if not missing:
        return
    counts = Counter(index.weight_map.values())
    lost = sum(counts[shard] for shard in missing)
    unknown = sorted(set(stored) - set(index.shards))
    renamed = f"; if {_some(unknown)} replaced them, the index is stale: remove it" if unknown else ""
    raise InputError(
        f"{len(missing)} of {len(index.shards)} shards are missing: {_some(missing, 8)};"
        f" they hold {lost:,} of {len(index.weight_map):,} tensors",
        where=index.where,
        hint=f"download the missing files{renamed}",
    )


def _join_indexed(index: ShardIndex, headers: Iterable[tuple[str, ShardHeader]], stored: Sequence[str]) -> Checkpoint:
    """Honour the index: a tensor comes from the shard it names; whatever else the files hold is listed, not used."""
    # Starts as the index itself, half a million names in their order, and takes each header in its shard's place.
    tensors: dict[str, Any] = dict(index.weight_map)
    extras: list[tuple[str, str]] = []
    num_placed = size = 0
    for shard, header in headers:
        num_extras = len(extras)
        for name, tensor in header.tensors.items():
            if tensors.get(name) == shard:
                tensors[name] = tensor
            else:
                extras.append((name, shard))
        num_placed += len(header.tensors) - (len(extras) - num_extras)
        size += header.nbytes
    if num_placed != len(tensors):
        raise _assigned_but_absent(index, tensors, extras)
    if extras:
        size = sum(tensor.nbytes for tensor in tensors.values())
    return Checkpoint(tensors, index.shards, tuple(_index_findings(index, size, extras, stored)))


def _index_findings(
    index: ShardIndex, size: int, extras: Sequence[tuple[str, str]], stored: Sequence[str]
) -> Iterator[Finding]:
    yield from index.findings
    if extras:
        some = _some([f"{name} in {shard}" for name, shard in extras])
        message = f"{len(extras):,} stored tensors are not where the index says and are ignored: {some}"
        yield Finding("tensors-outside-index", "warning", INDEX_NAME, message, "check how it was saved")
    if unused := sorted(set(stored) - set(index.shards)):
        yield _unused_files(unused, "the index does not name them")
    if index.total_size is not None and index.total_size != size:
        message = f"total_size says {index.total_size:,} bytes, the headers add up to {size:,}"
        yield Finding("index-total-size", "note", INDEX_NAME, message)


def _assigned_but_absent(
    index: ShardIndex, tensors: Mapping[str, Any], extras: Sequence[tuple[str, str]]
) -> InputError:
    absent = [name for name, tensor in tensors.items() if isinstance(tensor, str)]
    first = absent[0]
    elsewhere = [shard for name, shard in extras if name == first]
    more = f" (and {len(absent) - 1:,} more like it)" if len(absent) > 1 else ""
    return InputError(
        f"tensor {first} is assigned to {index.weight_map[first]}, which does not hold it{more}",
        where=index.where,
        hint=f"{elsewhere[0]} holds it: the index is stale" if elsewhere else "the index and the shards differ",
    )


def _choose_without_index(stored: Sequence[str], where: str) -> tuple[list[str], list[Finding]]:
    """The shards of a folder that has no index: model.safetensors, or one complete split, or every file."""
    if SINGLE_NAME in stored:
        chosen = [SINGLE_NAME]
    else:
        chosen = _only_split(stored, where)
    findings = []
    if unused := sorted(set(stored) - set(chosen)):
        findings.append(_unused_files(unused, f"{_some(chosen)} was taken"))
    if len(chosen) > 1:
        message = f"no {INDEX_NAME}: the headers of all {len(chosen)} shards were joined"
        findings.append(Finding("no-index", "note", where, message))
    return chosen, findings


def _only_split(stored: Sequence[str], where: str) -> list[str]:
    splits: defaultdict[tuple[str, int], dict[int, str]] = defaultdict(dict)
    for name in stored:
        if match := _SPLIT.fullmatch(name):
            splits[match["stem"], int(match["total"])][int(match["number"])] = name
    of_model = [key for key in splits if key[0] == "model"] or list(splits)
    if not splits:
        # "consolidated" is the vendor's own layout of the same weights (Mistral); take it only when alone.
        return [name for name in stored if not name.startswith("consolidated")] or list(stored)
    if len(of_model) > 1:
        names = " and ".join(f"{stem}-*-of-{total}" for stem, total in of_model)
        raise InputError(
            f"holds several shard splits ({names}) and no index that chooses one",
            where=where,
            hint="remove the split that is not meant",
        )
    numbers, total = splits[of_model[0]], of_model[0][1]
    missing = sorted(set(range(1, total + 1)) - set(numbers))
    if missing:
        raise InputError(
            f"{len(missing)} of {total} shards are missing: {_some([f'number {n}' for n in missing], 8)}",
            where=where,
            hint="download the missing files",
        )
    return sorted(numbers.values())


def _join_all(
    headers: Iterable[tuple[str, ShardHeader]], shards: Sequence[str], findings: list[Finding], where: str
) -> Checkpoint:
    tensors: dict[str, TensorHeader] = {}
    for shard, header in headers:
        if twice := tensors.keys() & header.tensors.keys():
            name = min(twice)
            raise InputError(
                f"tensor {name} is stored in {tensors[name].shard} and in {shard}, and no index chooses", where=where
            )
        tensors.update(header.tensors)
    return Checkpoint(tensors, tuple(shards), tuple(findings))


def _unused_files(names: Sequence[str], reason: str) -> Finding:
    message = f"{len(names)} {SUFFIX} files are not part of the model ({reason}): {_some(names)}"
    # A second split of the same model is a trap for loaders that take every file; other leftovers are harmless.
    second_split = any(name.startswith("model-") and _SPLIT.fullmatch(name) for name in names)
    severity: Severity = "warning" if second_split else "note"
    return Finding("unused-weight-files", severity, names[0], message, "remove them if they are left over")


def _some(names: Sequence[str], limit: int = 3) -> str:
    """The first names of a list, and how many more there are."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"
