"""The decoder: both ends, one list entry per layer, and the loop over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Protocol

import torch
from torch import nn

from day0.profile.profile import ArchitectureProfile, LayerSpec, RopeSpec
from day0.runtime.batch import ForwardBatch
from day0.runtime.cache.storage import CacheStorage
from day0.runtime.models.build import Build, Elsewhere
from day0.runtime.models.context import Carried, LayerContext
from day0.runtime.models.ends import Head, InputTable, LayerInputs, TiedBias
from day0.runtime.models.layer import DecoderLayer
from day0.runtime.models.linear import Linear
from day0.runtime.models.residual import Stream, make_output, open_stream, packed_shape
from day0.runtime.ops.registry import Operators
from day0.runtime.ops.rope import (
    multi_axis_rope_table,
    rope_frequencies,
    rope_frequencies_by_length,
    rope_table,
)
from day0.runtime.parallel.local_specs import local_layers, stage_layers
from day0.runtime.parallel.ranks import ALONE, Ranks
from day0.runtime.quant.workspace import Workspace


class Holding(Protocol):
    """Has the weights of a layer, or of the head, in place for as long as a block runs."""

    def holding(self, index: int) -> AbstractContextManager[None]: ...

    def holding_head(self) -> AbstractContextManager[None]: ...


class Resident:
    """Weights that are always in place."""

    def holding(self, index: int) -> AbstractContextManager[None]:
        return nullcontext()

    def holding_head(self) -> AbstractContextManager[None]:
        return nullcontext()


class Decoder(nn.Module):
    """A decoder-only model built from a profile; parameters carry the paths of `profile/tensors.py`.

    `workspace` is what packed matrices are turned back in, once some module is packed (`models/packed.py`). `dtype` is
    that of activations. `store` has a layer's weights in place while the layer runs, where they do not stay;
    the tables `kept_as_stored` have the dtype of their file. Where `ranks` share the model, `own_layers` are the specs
    of what this one holds, and all of them call `forward` together.
    """

    def __init__(self, profile: ArchitectureProfile, ops: Operators, ranks: Ranks = ALONE) -> None:
        super().__init__()
        self.profile = profile
        self.ops = ops
        self.ranks = ranks
        layers = local_layers(profile, ranks.layout)
        own = stage_layers(profile, ranks.layout)[ranks.place.stage]
        self.own_layers = layers[own.start : own.stop]
        self.workspace: Workspace | None = None
        self.dtype = torch.float32
        self.store: Holding = Resident()
        self.kept_as_stored: tuple[str, ...] = ()
        build = Build(profile.hidden_size, profile.norm_eps, ops, profile.norm_kind, profile.num_layers, ranks)
        inputs = profile.ends.per_layer
        self.embed = InputTable(profile, build)
        self.per_layer = None if inputs is None else LayerInputs(inputs, profile.num_layers, build)
        self.layers = nn.ModuleList(
            DecoderLayer(spec, build, inputs) if spec.index in own else Elsewhere() for spec in layers
        )
        self.output_res = make_output(profile.residual, build)
        self.norm = (build.rms_norm if profile.ends.plain_norm else build.norm)(profile.hidden_size)
        self.head = Head(profile.ends, build)
        self.lm_head = _own_head(profile, build)
        for name in _ends_elsewhere(profile, ranks):
            setattr(self, name, Elsewhere())
        self._ropes = _rope_specs(self.own_layers)
        self._frequencies = cache(self._make_frequencies)  # on first use: the device is known once weights are loaded

    def forward(self, batch: ForwardBatch, cache: CacheStorage) -> torch.Tensor:
        """Logits of the batch's wanted rows, [wanted, vocab] float32; writes cache and states of all its tokens."""
        rotations, carried = self._rotations(batch), Carried()
        stream = self._opened(batch, carried) if self.ranks.first_stage else self._taken_over(batch)
        for spec in self.own_layers:
            with self.store.holding(spec.index):
                self.layers[spec.index](stream, LayerContext(spec.index, batch, cache, rotations, carried))
            self._add_features(stream, batch, spec.index)
        if self.ranks.last_stage:
            with self.store.holding_head():
                logits = self._head(stream, batch)
        else:
            self.ranks.pp.hand_on(stream.packed(), self.ranks.place.stage + 1)
            shape = (batch.rows.shape[0], self.profile.vocab_size)
            logits = torch.empty(shape, dtype=torch.float32, device=batch.rows.device)
        return self.ranks.pp.share_out(logits, self.ranks.layout.pp - 1)

    @torch.inference_mode()
    def serve_others(self) -> None:
        """A step of a rank whose own sequences have nothing to do: other replicas may want the experts it has."""
        nothing = torch.empty(0, self.profile.hidden_size, dtype=self.dtype, device=self._device)
        for spec in self.own_layers:
            with self.store.holding(spec.index):
                layer = self.layers[spec.index]
                assert isinstance(layer, DecoderLayer)
                layer.serve_others(nothing)

    def _opened(self, batch: ForwardBatch, carried: Carried) -> Stream:
        """The stream before the first layer."""
        x = self.embed(batch.token_ids, self.dtype)
        if batch.image_rows is not None:
            assert batch.image_embeddings is not None
            embeddings = batch.image_embeddings[:, : self.profile.hidden_size]
            x = self.ops["embedding_scatter"](x, batch.image_rows, embeddings)
        if batch.trace is not None:
            x = batch.trace.passed("embed", x)
        if self.per_layer is not None:
            carried.layer_inputs = self.per_layer(batch.token_ids, x)
        return open_stream(self.profile.residual, x)

    def _add_features(self, stream: Stream, batch: ForwardBatch, index: int) -> None:
        """Add to the tokens of images what their tower gives for behind this layer."""
        if batch.image_rows is None or batch.image_embeddings is None:
            return
        hidden = self.profile.hidden_size
        features = batch.image_embeddings[:, (index + 1) * hidden : (index + 2) * hidden]
        if features.shape[1]:
            assert stream.sum is not None, "such features are known of plain residual streams"
            stream.sum = self.ops["embedding_scatter_add"](stream.sum, batch.image_rows, features)

    def _taken_over(self, batch: ForwardBatch) -> Stream:
        """The stream as the stage before leaves it."""
        first, hidden = self.own_layers[0].index, self.profile.hidden_size
        shape = packed_shape(self.profile.residual, first, batch.num_tokens, hidden)
        into = torch.empty(shape, dtype=self.dtype, device=batch.positions.device)
        return Stream.unpacked(self.ranks.pp.take_over(into, self.ranks.place.stage - 1))

    def _head(self, stream: Stream, batch: ForwardBatch) -> torch.Tensor:
        mix, weights = self.output_res.read(stream)
        normed = self.norm(mix[batch.rows])
        if batch.trace is not None:
            if weights is not None:
                batch.trace.save("output_mix_weights", weights)
                batch.trace.save("output_mix", mix)
            normed = batch.trace.passed("norm", normed)
        own, ends, tp = self.lm_head, self.profile.ends, self.ranks.tp
        columns = self.profile.vocab_size
        if not isinstance(own, Linear) and not tp.alone:
            columns += ends.extra_rows  # the table is cut with them
        matrix = own.matrix() if isinstance(own, Linear) else self.embed.weight[:columns]
        logits = self.head(normed, matrix, None if own is None else own.bias)
        logits = tp.gather_columns(logits, columns)[:, : self.profile.vocab_size]
        if batch.trace is not None:
            batch.trace.save("logits", logits)
        return logits

    def _rotations(self, batch: ForwardBatch) -> dict[RopeSpec, tuple[torch.Tensor, torch.Tensor]]:
        """cos and sin of every rotary spec; positions [tokens], or [axes, tokens] where a model's have several."""
        positions, tables = batch.positions, {}
        for spec in self._ropes:
            frequencies, factor = self._turning(spec, batch)
            if spec.sections:
                axes = positions.expand(len(spec.sections), positions.shape[-1])
                tables[spec] = multi_axis_rope_table(
                    axes, frequencies, factor, spec.sections, spec.interleaved_sections
                )
            else:
                assert positions.dim() == 1, "positions have axes, and a rotation that does not say which turns it"
                tables[spec] = rope_table(positions, frequencies, factor)
        return tables

    def _turning(self, spec: RopeSpec, batch: ForwardBatch) -> tuple[torch.Tensor, float | torch.Tensor]:
        """Frequencies and factor of a rotary spec: one row for all tokens, or a row each where lengths set them."""
        if not spec.follows_length:
            return self._frequencies()[spec]
        assert batch.lengths is not None, "the runner gives lengths to a model with `length_ropes`"
        divisors = (spec.short_factors, spec.long_factors)
        return rope_frequencies_by_length(spec.theta, spec.dim, dict(spec.parameters), divisors, batch.lengths)

    @property
    def length_ropes(self) -> tuple[RopeSpec, ...]:
        """The rotations that follow the length of a sequence, of all ranks' layers."""
        return tuple(rope for rope in _rope_specs(self.profile.layers) if rope.follows_length)

    @property
    def has_axes(self) -> bool:
        """Whether positions have several axes, which images set apart."""
        return any(rope.sections for rope in _rope_specs(self.profile.layers))

    @property
    def _device(self) -> torch.device:
        return next(self.parameters()).device

    def _make_frequencies(self) -> dict[RopeSpec, tuple[torch.Tensor, float]]:
        found = {}
        for spec in (spec for spec in self._ropes if not spec.follows_length):
            frequencies, factor = rope_frequencies(spec.theta, spec.dim, spec.scaling, dict(spec.parameters))
            found[spec] = frequencies.to(self._device), factor
        return found


def _own_head(profile: ArchitectureProfile, build: Build) -> Linear | TiedBias | None:
    """What the head has besides the input table; None where that is all."""
    if not profile.tie_word_embeddings:
        rows = len(build.ranks.tp.own(profile.vocab_size))
        return build.linear(profile.hidden_size, rows, profile.ends.head_bias)
    return TiedBias(len(build.ranks.tp.own(profile.vocab_size))) if profile.ends.head_bias else None


def _ends_elsewhere(profile: ArchitectureProfile, ranks: Ranks) -> Iterator[str]:
    """What before and after the layers this rank's stage does not have."""
    if not ranks.last_stage:
        yield from ("output_res", "norm", "head", "lm_head")
    if not ranks.first_stage and not (ranks.last_stage and profile.tie_word_embeddings):
        yield "embed"


def _rope_specs(layers: tuple[LayerSpec, ...]) -> tuple[RopeSpec, ...]:
    """The distinct rotary specs of layers, in order of first use."""
    return tuple(dict.fromkeys(rope for layer in layers for rope in _ropes_in(layer.mixer)))


def _ropes_in(spec: Any) -> Iterator[RopeSpec]:
    """The rotary specs of a mixer and of its parts."""
    if isinstance(spec, RopeSpec):
        yield spec
    elif is_dataclass(spec):
        for field in fields(spec):
            yield from _ropes_in(getattr(spec, field.name))
