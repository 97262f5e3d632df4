"""The decoder: both ends, one list entry per layer, and the loop over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Protocol

import torch
from torch import nn

from day0.profile.profile import ArchitectureProfile, RopeSpec
from day0.runtime.batch import ForwardBatch
from day0.runtime.cache.storage import CacheStorage
from day0.runtime.models.build import Build
from day0.runtime.models.context import Carried, LayerContext
from day0.runtime.models.ends import Head, InputTable, LayerInputs, TiedBias
from day0.runtime.models.layer import DecoderLayer
from day0.runtime.models.linear import Linear
from day0.runtime.models.residual import Stream, make_output, open_stream
from day0.runtime.ops.registry import Operators
from day0.runtime.ops.rope import multi_axis_rope_table, rope_frequencies, rope_table
from day0.runtime.quant.workspace import Workspace


class Holding(Protocol):
    """Has the weights of a layer in place for as long as a block runs."""

    def holding(self, index: int) -> AbstractContextManager[None]: ...


class Resident:
    """Weights that are always in place."""

    def holding(self, index: int) -> AbstractContextManager[None]:
        return nullcontext()


class Decoder(nn.Module):
    """A decoder-only model built from a profile; parameters carry the paths of `profile/tensors.py`.

    `workspace` is what packed matrices are turned back in, once some module is packed (`models/packed.py`). `dtype` is
    that of activations. `store` has a layer's weights in place while the layer runs, where they do not stay;
    the tables `kept_as_stored` have the dtype of their file.
    """

    def __init__(self, profile: ArchitectureProfile, ops: Operators) -> None:
        super().__init__()
        self.profile = profile
        self.ops = ops
        self.workspace: Workspace | None = None
        self.dtype = torch.float32
        self.store: Holding = Resident()
        self.kept_as_stored: tuple[str, ...] = ()
        build = Build(profile.hidden_size, profile.norm_eps, ops, profile.norm_kind, profile.num_layers)
        inputs = profile.ends.per_layer
        self.embed = InputTable(profile, build)
        self.per_layer = None if inputs is None else LayerInputs(inputs, profile.num_layers, build)
        self.layers = nn.ModuleList(DecoderLayer(spec, build, inputs) for spec in profile.layers)
        self.output_res = make_output(profile.residual, build)
        self.norm = build.norm(profile.hidden_size)
        self.head = Head(profile.ends, build)
        self.lm_head = _own_head(profile, build)
        self._ropes = _rope_specs(profile)
        self._frequencies = cache(self._make_frequencies)  # on first use: the device is known once weights are loaded

    def forward(self, batch: ForwardBatch, cache: CacheStorage) -> torch.Tensor:
        """Logits of the batch's wanted rows, [wanted, vocab] float32; writes cache and states of all its tokens."""
        x = self.embed(batch.token_ids, self.dtype)
        if batch.image_rows is not None:
            x = self.ops["embedding_scatter"](x, batch.image_rows, batch.image_embeddings)
        if batch.trace is not None:
            batch.trace.save("embed", x)
        rotations = self._rotations(batch.positions)
        stream, carried = open_stream(self.profile.residual, x), Carried()
        if self.per_layer is not None:
            carried.layer_inputs = self.per_layer(batch.token_ids, x)
        for index, layer in enumerate(self.layers):
            with self.store.holding(index):
                layer(stream, LayerContext(index, batch, cache, rotations, carried))
        return self._head(stream, batch)

    def _head(self, stream: Stream, batch: ForwardBatch) -> torch.Tensor:
        mix, weights = self.output_res.read(stream)
        normed = self.norm(mix[batch.rows])
        own = self.lm_head
        matrix = own.matrix() if isinstance(own, Linear) else self.embed.weight[: self.profile.vocab_size]
        logits = self.head(normed, matrix, None if own is None else own.bias)
        if batch.trace is not None:
            if weights is not None:
                batch.trace.save("output_mix", mix)
                batch.trace.save("output_mix_weights", weights)
            batch.trace.save("norm", normed)
            batch.trace.save("logits", logits)
        return logits

    def _rotations(self, positions: torch.Tensor) -> dict[RopeSpec, tuple[torch.Tensor, torch.Tensor]]:
        """cos and sin of every rotary spec; positions [tokens], or [axes, tokens] where a model's have several."""
        tables = {}
        for spec, (frequencies, factor) in self._frequencies().items():
            if spec.sections:
                axes = positions.expand(len(spec.sections), positions.shape[-1])
                tables[spec] = multi_axis_rope_table(
                    axes, frequencies, factor, spec.sections, spec.interleaved_sections
                )
            else:
                tables[spec] = rope_table(positions, frequencies, factor)
        return tables

    def _make_frequencies(self) -> dict[RopeSpec, tuple[torch.Tensor, float]]:
        found = {}
        for spec in self._ropes:
            frequencies, factor = rope_frequencies(spec.theta, spec.dim, spec.scaling, dict(spec.parameters))
            found[spec] = frequencies.to(self.embed.weight.device), factor
        return found


def _own_head(profile: ArchitectureProfile, build: Build) -> Linear | TiedBias | None:
    """What the head has besides the input table; None where that is all."""
    if not profile.tie_word_embeddings:
        return build.linear(profile.hidden_size, profile.vocab_size, profile.ends.head_bias)
    return TiedBias(profile.vocab_size) if profile.ends.head_bias else None


def _rope_specs(profile: ArchitectureProfile) -> tuple[RopeSpec, ...]:
    """The distinct rotary specs of a model, in order of first use."""
    return tuple(dict.fromkeys(rope for layer in profile.layers for rope in _ropes_in(layer.mixer)))


def _ropes_in(spec: Any) -> Iterator[RopeSpec]:
    """The rotary specs of a mixer and of its parts."""
    if isinstance(spec, RopeSpec):
        yield spec
    elif is_dataclass(spec):
        for field in fields(spec):
            yield from _ropes_in(getattr(spec, field.name))
