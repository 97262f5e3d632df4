"""Faults inside the engine: weights, cache, scheduler and tower, broken for as long as a block runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from day0.checklist import probe_multimodal, probe_segments
from day0.checklist.probe_held import parameters_of
from day0.checklist.probe_paths import engine_of
from day0.checklist.target import CheckContext
from day0.runtime.cache.lease import Lease
from day0.runtime.cache.storage import CacheStorage
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.scheduler import Scheduler
from day0.runtime.engine.sequence import Sequence as EngineSequence
from day0.runtime.models.decoder import Decoder
from day0.runtime.models.relaid import without_copies
from day0.runtime.vision.encoder import ImageEncoder
from day0.runtime.vision.preprocess import ImageInput
from day0.runtime.vision.preprocess_config import ImagePreprocessing


@contextmanager
def patched(owner: object, name: str, value: object) -> Iterator[None]:
    """An attribute replaced and put back; one that only the instance got is removed."""
    own = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


_ABSENT = object()


@contextmanager
def _kept(*parameters: Tensor) -> Iterator[None]:
    """Values of these parameters as they were, after the block."""
    before = [parameter.detach().clone() for parameter in parameters]
    try:
        yield
    finally:
        for parameter, values in zip(parameters, before, strict=True):
            parameter.data.copy_(values)


@contextmanager
def leaking_softmax(context: CheckContext) -> Iterator[CheckContext]:
    """A device whose softmax takes minus infinity for a very small number."""
    sound = torch.softmax
    with patched(torch, "softmax", lambda scores, **options: sound(scores.clamp_min(-20.0), **options)):
        yield context


@contextmanager
def unwritten_parameter(context: CheckContext) -> Iterator[CheckContext]:
    """One row of a weight still as memory was before loading."""
    weight = parameters_of(engine_of(context))[f"layers.{context.profile.num_layers - 1}.mixer_norm.weight"]
    with _kept(weight):
        weight.data[-1] = float("nan")
        yield context


@contextmanager
def swapped_layers(context: CheckContext) -> Iterator[CheckContext]:
    """All tensors of the first two layers whose shapes agree, exchanged."""
    engine = engine_of(context)
    parameters = parameters_of(engine)
    with ExitStack() as stack:
        if isinstance(engine.model, Decoder):
            stack.enter_context(without_copies(engine.model))
        for path, one in parameters.items():
            two = parameters.get(path.replace("layers.0.", "layers.1.", 1))
            if path.startswith("layers.0.") and two is not None and one.shape == two.shape:
                stack.enter_context(_kept(one, two))
                values = one.detach().clone()
                one.data.copy_(two)
                two.data.copy_(values)
        yield context


def _blocks(context: CheckContext) -> Decoder:
    """The decoder of our own blocks, which these faults are made for."""
    model = engine_of(context).model
    assert isinstance(model, Decoder), "faults are put into our own blocks"
    return model


@contextmanager
def swapped_nibbles(context: CheckContext) -> Iterator[CheckContext]:
    """Packed bytes read with the high half first."""
    workspace = _blocks(context).workspace
    assert workspace is not None, "the fault is put into packed weights"
    tables = workspace.decoder.tables
    with patched(tables, "pairs", tables.pairs.flip(-1)):
        yield context


@contextmanager
def weight_held_twice(context: CheckContext) -> Iterator[CheckContext]:
    model = _blocks(context)
    model.register_parameter("twin", nn.Parameter(model.embed.weight.detach().clone(), requires_grad=False))
    try:
        yield context
    finally:
        del model.twin


@contextmanager
def dead_norm(context: CheckContext) -> Iterator[CheckContext]:
    weight = _blocks(context).norm.get_parameter("weight")
    with _kept(weight):
        weight.data.zero_()
        yield context


@contextmanager
def lost_page(context: CheckContext) -> Iterator[CheckContext]:
    pages = engine_of(context).cache.pages
    taken, _lost = pages.take(1)
    try:
        yield context
    finally:
        pages.release(taken)


@contextmanager
def shifted_writes(context: CheckContext) -> Iterator[CheckContext]:
    """What comes after the first chunk of a sequence is written one place too far."""
    sound = Lease.slots

    def slots(self: Lease, start: int, end: int) -> np.ndarray:
        places = sound(self, start, end)
        return np.minimum(places + 1, sound(self, 0, self.capacity).max()) if start > 0 else places

    with patched(Lease, "slots", slots), _forgotten_states():
        yield context


@contextmanager
def _forgotten_states() -> Iterator[None]:
    """Models that keep states and few pages: the state of a slot is wiped whenever it is looked at again."""
    sound = CacheStorage.state

    def state(self: CacheStorage, layer: int, name: str) -> Tensor:
        tensor = sound(self, layer, name)
        tensor.mul_(0.5)
        return tensor

    with patched(CacheStorage, "state", state):
        yield


@contextmanager
def _hooked(module: nn.Module, change: Callable[[Any, Tensor], Tensor]) -> Iterator[None]:
    """A module's output changed; `change` gets its arguments and the output."""
    handle = module.register_forward_hook(lambda module, arguments, output: change(arguments, output))
    try:
        yield
    finally:
        handle.remove()


def _first_mixer(engine: Engine) -> nn.Module:
    return engine.model.get_submodule("layers.0.mixer")


@contextmanager
def future_leak(context: CheckContext) -> Iterator[CheckContext]:
    """The first mixer adds the mean over all tokens of the step."""
    with _hooked(_first_mixer(engine_of(context)), lambda _, output: output + output.mean(dim=0, keepdim=True)):
        yield context


@contextmanager
def mixed_sequences(context: CheckContext) -> Iterator[CheckContext]:
    """Sequences that decode together get each other's mixer output."""

    def change(arguments: Any, output: Tensor) -> Tensor:
        group = arguments[1].batch.groups[0]
        if group.length > 1 or group.sequences < 2:
            return output
        rows = output[: group.sequences]
        return torch.cat((rows.roll(1, dims=0), output[group.sequences :]))

    with _hooked(_first_mixer(engine_of(context)), change):
        yield context


@contextmanager
def nothing_given_back(context: CheckContext) -> Iterator[CheckContext]:
    """Whoever ends keeps its pages; they are given back when the block ends."""
    cache = engine_of(context).cache
    held: list[list[int]] = []

    def close(lease: Lease, keep: bool = True) -> None:
        # The slot is returned: with all of them gone nothing would ever start again.
        pages, slot = lease.end()
        held.append(pages)
        cache.slots.release(slot)

    try:
        with patched(cache, "close", close):
            yield context
    finally:
        for pages in held:
            cache.pages.release(pages)


@contextmanager
def stale_reads(context: CheckContext) -> Iterator[CheckContext]:
    """Decoding writes one place too early and reads where it should have written; states are not reset."""
    sound = Lease.slots

    def slots(self: Lease, start: int, end: int) -> np.ndarray:
        # Only writes start inside a sequence; reads take it from its beginning.
        return sound(self, start - 1, end - 1) if start > 0 else sound(self, start, end)

    with patched(CacheStorage, "reset_state", lambda self, slot: None), patched(Lease, "slots", slots):
        yield context


@contextmanager
def forgetful_preemption(context: CheckContext) -> Iterator[CheckContext]:
    """A sequence that gives up its pages comes back with another last token."""
    sound = Scheduler._preempt

    def preempt(self: Scheduler, sequence: EngineSequence) -> None:
        sound(self, sequence)
        if sequence.num_generated:
            sequence.token_ids[-1] = (sequence.token_ids[-1] + 1) % 200

    with patched(Scheduler, "_preempt", preempt):
        yield context


@contextmanager
def endless_queue(context: CheckContext) -> Iterator[CheckContext]:
    with patched(Scheduler, "add", lambda self, sequence: self.waiting.append(sequence)):
        yield context


def _tower(context: CheckContext) -> ImageEncoder:
    tower = engine_of(context).vision
    assert isinstance(tower, ImageEncoder)
    return tower


@contextmanager
def dropped_vector(context: CheckContext) -> Iterator[CheckContext]:
    tower = _tower(context)
    sound = tower.encode_images
    with patched(tower, "encode_images", lambda images: [part[:-1] for part in sound(images)]):
        yield context


@contextmanager
def leaking_images(context: CheckContext) -> Iterator[CheckContext]:
    """Every image gets the mean of all images of the batch on top."""
    tower = _tower(context)
    sound = tower.encode_images

    def encode(images: Sequence[ImageInput]) -> list[Tensor]:
        parts = sound(images)
        return [part + torch.cat(parts).mean(dim=0) for part in parts] if len(parts) > 1 else parts

    with patched(tower, "encode_images", encode):
        yield context


@contextmanager
def blind(context: CheckContext) -> Iterator[CheckContext]:
    engine = engine_of(context)
    sound = engine.forward

    def forward(ids: Sequence[int], *, images: tuple[Any, ...] = (), chunk: int | None = None) -> Tensor:
        return sound(ids, chunk=chunk)

    with patched(engine, "forward", forward):
        yield context


@contextmanager
def shifted_image(context: CheckContext) -> Iterator[CheckContext]:
    """In chunks, images stand one place too early."""
    engine = engine_of(context)
    sound = engine.forward

    def forward(ids: Sequence[int], *, images: tuple[Any, ...] = (), chunk: int | None = None) -> Tensor:
        if chunk is not None:
            images = tuple(replace(span, embeddings=span.embeddings.roll(1, dims=0)) for span in images)
        return sound(ids, images=images, chunk=chunk)

    with patched(engine, "forward", forward):
        yield context


@contextmanager
def patches_by_columns(context: CheckContext) -> Iterator[CheckContext]:
    """Preprocessing that cuts an image into patches column by column."""
    sound = probe_segments.preprocess_image

    def cut(image: Image.Image, config: ImagePreprocessing) -> ImageInput:
        made = sound(image, config)
        rows = made.pixel_values.unflatten(0, (made.grid.rows, made.grid.columns))
        return replace(made, pixel_values=rows.transpose(0, 1).flatten(0, 1))

    with patched(probe_segments, "preprocess_image", cut):
        yield context


@contextmanager
def takes_broken_images(context: CheckContext) -> Iterator[CheckContext]:
    with patched(probe_multimodal, "load_images", lambda files: []):
        yield context
