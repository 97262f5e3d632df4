"""A trace as it lies on the disk: OUT.safetensors, a line of JSON per tensor in OUT.jsonl, facts in OUT.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from day0.errors import not_written
from day0.numerics.compare import layer_and_operator
from day0.numerics.statistics import Statistics, sampled, statistics

ID_NAME = "input_ids"
GENERATED_NAME = "generated_ids"
SCHEMA = "day0.trace/1"


@dataclass(frozen=True, slots=True)
class Entry:
    """One traced tensor. `start` and `length` are the token positions of its step, `shape` that of the whole tensor.

    `kept` says what lies beside the statistics: "whole", "sample" (`channels` of each row) or "nothing". `shard_axis`
    is the axis along which the tensors of several ranks are joined, "sum" where they are added up, None where each has
    the whole; `pieces` are (start in the whole, length) along it of what this rank has. `copy` is of a rank whose
    tensor an earlier one has too: it is kept only where the two differ.
    """

    name: str
    order: int
    layer: int | None
    operator: str
    step: int
    start: int
    length: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    statistics: Statistics | None
    kept: str = "whole"
    channels: int | None = None
    rank: int = 0
    shard_axis: int | Literal["sum"] | None = None
    pieces: tuple[tuple[int, int], ...] = ()
    copy: bool = False

    @property
    def key(self) -> str:
        """The name in the safetensors file: that of the trace point in step 0, with the step before it later.

        Shares, and what an earlier rank has too, say whose they are in front, so that a plain name is always whole.
        """
        key = step_key(self.name, self.step)
        return key if self.shard_axis is None and not self.copy else f"ranks.{self.rank}.{key}"


def step_key(name: str, step: int) -> str:
    return name if step == 0 else f"steps.{step}.{name}"


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept of a tensor beside its statistics: those whose name fits a pattern, whole or so many channels."""

    patterns: tuple[str, ...] = ("*",)
    channels: int | None = None

    def of(self, name: str, tensor: Tensor) -> Tensor | None:
        if not any(fnmatchcase(name, pattern) for pattern in self.patterns):
            return None
        return tensor if self.channels is None else sampled(tensor, self.channels)


@dataclass(frozen=True, slots=True)
class Of:
    """Whose tensor it is: fields of `Entry`."""

    rank: int = 0
    shard_axis: int | Literal["sum"] | None = None
    pieces: tuple[tuple[int, int], ...] = ()
    copy: bool = False


OF_ONE = Of()
"""Of a run on one rank."""


@dataclass(slots=True)
class Recorder:
    """Collects what a trace keeps, step by step, and writes it. Logits are always kept whole."""

    keep: Keep
    entries: list[Entry] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    _first: dict[str, str] = field(default_factory=dict)  # hashes of what one rank has whole, by key

    def take(self, step: int, start: int, length: int, name: str, tensor: Tensor, of: Of = OF_ONE) -> None:
        """Measure one tensor of a step and keep of it what is to be kept; `of` says which rank's it is."""
        kept = tensor if name == "logits" else self.keep.of(name, tensor)
        layer, operator = layer_and_operator(name)
        measured = statistics(tensor)
        if of.copy and measured.sha256 == self._first.get(step_key(name, step)):
            kept = None
        elif not of.copy and of.shard_axis is None:
            self._first[step_key(name, step)] = measured.sha256
        is_sample = kept is not None and kept.shape != tensor.shape
        entry = Entry(
            name=name,
            order=len(self.entries),
            layer=layer,
            operator=operator,
            step=step,
            start=start,
            length=length,
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tuple(tensor.shape),
            strides=tuple(tensor.stride()),
            statistics=measured,
            kept="nothing" if kept is None else "sample" if is_sample else "whole",
            channels=self.keep.channels if is_sample else None,
            rank=of.rank,
            shard_axis=of.shard_axis,
            pieces=of.pieces,
            copy=of.copy,
        )
        self.entries.append(entry)
        if kept is not None:
            self.tensors[entry.key] = kept.detach().to("cpu").contiguous().clone()

    def write(self, out: Path, prompt: tuple[int, ...], generated: tuple[int, ...], facts: Mapping[str, Any]) -> None:
        """Write the three files beside each other. Raises InputError or EnvironmentFault where they cannot be."""
        ids = {ID_NAME: torch.tensor(prompt, dtype=torch.int64)}
        if generated:
            ids[GENERATED_NAME] = torch.tensor(generated, dtype=torch.int64)
        manifest = {"schema": SCHEMA, "prompt_ids": prompt, "generated_ids": generated, **facts}
        safetensors, lines, about = trace_paths(out)
        try:
            safetensors.parent.mkdir(parents=True, exist_ok=True)
            save_file(self.tensors | ids, safetensors, metadata={"format": "pt"})
            lines.write_text("".join(json.dumps(asdict(entry)) + "\n" for entry in self.entries), "utf-8")
            about.write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
        except OSError as error:
            raise not_written(error, error.filename or safetensors) from None


def trace_paths(out: Path) -> tuple[Path, Path, Path]:
    """OUT.safetensors, OUT.jsonl and OUT.json; OUT may be given with the first ending or without."""
    stem = out.name.removesuffix(".safetensors")
    return tuple(out.with_name(stem + ending) for ending in (".safetensors", ".jsonl", ".json"))  # type: ignore[return-value]
