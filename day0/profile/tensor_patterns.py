"""Half a million tensor names as a few dozen patterns: the numbers between dots become stars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from day0.source.model_files import TensorHeader

MAX_NAMES = 256
"""Lists of tensors longer than this are told by pattern."""

_NUMBER = re.compile(r"\.\d+(?=[.\n])")


@dataclass(frozen=True, slots=True)
class TensorPattern:
    """Tensors of one dtype and shape whose names differ in numbers alone; `first` is one of them."""

    pattern: str
    dtype: str
    shape: tuple[int, ...]
    tensors: int
    bytes: int
    first: str

    @property
    def leaf(self) -> str:
        return self.pattern.rpartition(".")[2]


def patterns_of(names: Sequence[str]) -> list[str]:
    """The pattern of each name, "model.layers.*.mlp.experts.*.w1.weight"; one pass over all of them joined."""
    patterns = _NUMBER.sub(".*", "\n".join([*names, ""])).split("\n")[:-1]
    if len(patterns) != len(names):  # a stranger's name may hold a line break
        return [_NUMBER.sub(".*", f"{name}\n")[:-1] for name in names]
    return patterns


def group_tensors(tensors: Mapping[str, TensorHeader], names: Iterable[str] | None = None) -> tuple[TensorPattern, ...]:
    """The patterns of all tensors, or of those `names` that are there; the largest first."""
    chosen = list(tensors) if names is None else [name for name in names if name in tensors]
    groups: dict[tuple[str, str, tuple[int, ...]], list[int | str]] = {}
    for name, pattern in zip(chosen, patterns_of(chosen), strict=True):
        header = tensors[name]
        key = (pattern, header.dtype, header.shape)
        group = groups.get(key)
        if group is None:
            groups[key] = [1, header.end - header.begin, name]
        else:
            group[0] += 1  # type: ignore[operator]
            group[1] += header.end - header.begin  # type: ignore[operator]
    found = [
        TensorPattern(pattern, dtype, shape, int(count), int(size), str(first))
        for (pattern, dtype, shape), (count, size, first) in groups.items()
    ]
    return tuple(sorted(found, key=lambda group: (-group.bytes, group.pattern)))


def told_briefly(names: Sequence[str]) -> tuple[str, ...]:
    """The names themselves, or their patterns with counts where they are too many to read."""
    if len(names) <= MAX_NAMES:
        return tuple(names)
    counts: dict[str, int] = {}
    for pattern in patterns_of(names):
        counts[pattern] = counts.get(pattern, 0) + 1
    return tuple(f"{pattern} ({count:,} tensors)" for pattern, count in sorted(counts.items()))
