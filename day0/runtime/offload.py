"""Decoder layers larger than the device: their weights are fetched for the time they run, under a budget of bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from day0.profile.tensor_spec import TensorSpec
from day0.runtime.experts import ExpertStore
from day0.runtime.models.decoder import Decoder
from day0.runtime.placement import parameter_paths
from day0.runtime.quant.parts import PackedParts
from day0.runtime.weights import all_parameters, load_weights
from day0.source.model_files import ModelFiles


class LayerStore:
    """Layers from the first on stay as long as `budget` bytes last; the others come and go, one at a time.

    `dtype` and `device` are the model's. With `in_host`, what was read once stays in host memory and is copied to the
    device; else it is read from the files each time. Experts are read by `experts` as they are chosen.
    """

    def __init__(
        self,
        decoder: Decoder,
        specs: Sequence[TensorSpec],
        files: ModelFiles,
        experts: ExpertStore,
        dtype: torch.dtype,
        device: torch.device,
        *,
        budget: int = 0,
        in_host: bool = False,
    ) -> None:
        self._layers = decoder.layers
        self._tables = {f"{name}.": getattr(decoder, name) for name in ("embed", "lm_head") if getattr(decoder, name)}
        self._table_specs = tuple(spec for spec in specs if spec.path.startswith(tuple(self._tables)))
        self._kept_as_stored = decoder.kept_as_stored
        self._files, self._experts = files, experts
        self._dtype, self._device = dtype, device
        self._specs = [
            tuple(spec for spec in specs if spec.path.startswith(f"layers.{index}.") and not experts.serves(spec))
            for index in range(len(decoder.layers))
        ]
        self._host: dict[int, dict[str, torch.Tensor]] | None = {} if in_host else None
        self.layer_reads = 0
        self._layer_bytes = 0
        self.resident = self._fill(budget)

    @property
    def bytes_read(self) -> int:
        """Bytes read from files since the start, of layers and experts."""
        return self._layer_bytes + self._experts.bytes_read

    @property
    def largest_layer(self) -> int:
        """Bytes of the largest layer that comes and goes, without its routed experts."""
        sizes = (self._size(index) for index in range(self.resident, len(self._layers)))
        return max(sizes, default=0)

    @property
    def resident_bytes(self) -> int:
        return sum(self._size(index) for index in range(self.resident))

    def _size(self, index: int) -> int:
        """Bytes of a layer once it is loaded; plain parameters on the meta device have their dtype only after that."""
        wide = {path for spec in self._specs[index] if spec.keep_float32 for path in parameter_paths(spec)}
        size = 0
        for place, owner in self._layers[index].named_modules(prefix=f"layers.{index}"):
            roles = owner.roles if isinstance(owner, PackedParts) else ()
            for leaf, parameter in owner.named_parameters(recurse=False):
                plain = 4 if f"{place}.{leaf}" in wide else self._dtype.itemsize
                size += parameter.numel() * (parameter.itemsize if leaf in roles else plain)
        return size

    def _fill(self, budget: int) -> int:
        """Load layers from the first on while they fit; gives how many do."""
        for index in range(len(self._layers)):
            budget -= self._size(index)
            if budget < 0:
                return index
            self._read(index, self._device)
        return len(self._layers)

    @contextmanager
    def holding(self, index: int) -> Iterator[None]:
        """The layer's weights, and its experts within reach, for as long as the block runs."""
        with self._experts.reading():
            if index < self.resident:
                yield
                return
            self._fetch(index)
            try:
                yield
            finally:
                _empty(self._layers[index])

    @contextmanager
    def holding_head(self) -> Iterator[None]:
        """The head's rows, which on a host are pages of its file; they are given back by mapping the file anew."""
        yield
        if self._device.type == "cpu":
            files, kept = self._files, self._kept_as_stored
            load_weights(self._tables, self._table_specs, files, self._dtype, self._device, kept)

    def _fetch(self, index: int) -> None:
        if self._host is None:
            self._read(index, self._device)
            return
        if index not in self._host:
            self._read(index, torch.device("cpu"))
            held = all_parameters({"": self._layers[index]})
            self._host[index] = {path: _pinned(parameter.detach()) for path, parameter in held.items()}
        for path, values in self._host[index].items():
            _set(self._layers[index], path, values.to(self._device, non_blocking=True))

    def _read(self, index: int, device: torch.device) -> None:
        module = {f"layers.{index}.": self._layers[index]}
        report = load_weights(module, self._specs[index], self._files, self._dtype, device)
        self.layer_reads += 1
        self._layer_bytes += report.bytes_read


def _pinned(values: torch.Tensor) -> torch.Tensor:
    """A copy in host memory that a device can read by itself, where there is such a device."""
    copied = values.clone()
    return copied.pin_memory() if torch.accelerator.is_available() else copied


def _empty(layer: nn.Module) -> None:
    """Give a layer's memory back; its parameters keep shape and dtype."""
    for path, parameter in list(layer.named_parameters()):
        _set(layer, path, torch.empty_like(parameter, device="meta"))


def _set(layer: nn.Module, path: str, values: torch.Tensor) -> None:
    owner, _, leaf = path.rpartition(".")
    setattr(layer.get_submodule(owner), leaf, nn.Parameter(values, requires_grad=False))
