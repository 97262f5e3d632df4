"""Runs one prompt for `day0 trace`: on one rank or several, with images, free or on another run's tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from day0.cli.output import status_console
from day0.errors import CannotSay, InputError
from day0.runtime.engine.lead import LeadingEngine, start_engine
from day0.runtime.engine.load_upstream import settle_profile
from day0.runtime.engine.tracing import TracedStep, traced_steps
from day0.runtime.engine.tracing_ranks import SharedTensor, traced_on_ranks
from day0.runtime.parallel.layout import Layout
from day0.runtime.trace import Trace
from day0.runtime.vision.encoder import ImageEncoder
from day0.runtime.vision.images import load_images
from day0.runtime.vision.preprocess import preprocess_image
from day0.runtime.vision.preprocess_config import image_preprocessing
from day0.runtime.vision.prompt import ExpandedPrompt, expand_placeholders, image_spans

if TYPE_CHECKING:
    from day0.numerics.reading import Recording
    from day0.numerics.recording import Of, Recorder
    from day0.plan.settings import EngineSettings
    from day0.runtime.batch import ImageSpan
    from day0.runtime.engine.engine import Engine
    from day0.source.model_files import ModelFiles


@dataclass(frozen=True, slots=True)
class TracedPrompt:
    """What is run: token ids, images in their order, prefill in chunks or whole, and how many tokens after it."""

    ids: tuple[int, ...]
    images: tuple[Path, ...] = ()
    new_tokens: int = 0
    chunk: int | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """The ids as the model saw them, placeholders expanded, and the greedy tokens."""

    ids: tuple[int, ...]
    generated: tuple[int, ...]


class OtherRun:
    """A trace that another run is fed from: all points of its blocks, or its choices alone."""

    def __init__(self, recording: Recording, choices_only: bool) -> None:
        from day0.numerics.decisions import CHOICE_POINTS, FED_POINTS

        self.recording, self.feeds = recording, not choices_only
        self.points = CHOICE_POINTS if choices_only else FED_POINTS | CHOICE_POINTS

    def tensors(self, step: int) -> dict[str, Any]:
        entries = [entry for entry in self.recording.entries if entry.step == step and entry.operator in self.points]
        if not entries:
            if not self.feeds and any(entry.step == step for entry in self.recording.entries):
                return {}  # a model that makes no choices: there is nothing to replay
            raise CannotSay(f"has no tensors of step {step} to go on from", where=self.recording.where)
        if lacking := next((entry for entry in entries if entry.kept != "whole"), None):
            raise CannotSay(f"{lacking.key} was not kept whole", where=self.recording.where)
        return {entry.name: self.recording.load(entry.key) for entry in entries}


def record(
    files: ModelFiles, prompt: TracedPrompt, settings: EngineSettings, recorder: Recorder, other: OtherRun | None = None
) -> Ran:
    """Run the model and let the recorder take every tensor."""
    from day0.profile.read import read_profile

    profile, _ = settle_profile(files, read_profile(files), settings)
    with status_console().status("loading"):
        engine = start_engine(files, profile, settings)
    try:
        with status_console().status("running"):
            ids, spans = _with_images(engine, files, prompt, recorder)
            steps = list(record_steps(engine, ids, spans, prompt, recorder, other))
    finally:
        engine.close()
    return Ran(ids, tuple(step.next_id for step in steps if step.ends)[: prompt.new_tokens])


def record_steps(
    engine: Engine,
    ids: tuple[int, ...],
    spans: tuple[ImageSpan, ...],
    prompt: TracedPrompt,
    recorder: Recorder,
    other: OtherRun | None,
) -> Iterator[TracedStep]:
    """Each step of a prompt on a loaded engine, of one rank or several, after the recorder took its tensors."""

    def replaced(index: int) -> Mapping[str, Any]:
        return {} if other is None else other.tensors(index)

    def make(index: int, start: int, length: int) -> Trace:
        return Trace(
            observe=lambda name, tensor: recorder.take(index, start, length, name, tensor),
            replaced=replaced(index),
        )

    if not isinstance(engine, LeadingEngine):
        yield from traced_steps(engine, ids, make, new_tokens=prompt.new_tokens, chunk=prompt.chunk, images=spans)
        return
    traced = traced_on_ranks(engine, ids, replaced, new_tokens=prompt.new_tokens, chunk=prompt.chunk, images=spans)
    for step, tensors in traced:
        for part in tensors:
            recorder.take(step.index, step.start, len(step.token_ids), part.name, part.tensor, _whose(part))
        yield step


def _whose(part: SharedTensor) -> Of:
    from day0.numerics.recording import Of

    return Of(part.rank, "sum" if part.share.summed else part.share.axis, part.share.pieces, part.copy)


def _with_images(
    engine: Engine, files: ModelFiles, prompt: TracedPrompt, recorder: Recorder
) -> tuple[tuple[int, ...], tuple[ImageSpan, ...]]:
    """The prompt as the model sees it, and the images' embeddings; what the tower computes on the way is recorded."""
    if not prompt.images:
        return prompt.ids, ()
    spec, tower = engine.profile.vision, engine.vision
    if spec is None or not isinstance(tower, ImageEncoder):
        hint = "leave --image out" if spec is None else "our own blocks run the towers that `day0 inspect` lists"
        raise InputError("takes no images", where=files.id, hint=hint)
    if spec.placeholder_token_id is None:
        raise InputError("its config names no token that stands for a piece of an image", where=files.id)
    config = image_preprocessing(files, spec)
    images = [preprocess_image(image, config) for image in load_images([_read(path) for path in prompt.images])]
    places = _places(prompt.ids, [image.num_tokens for image in images], spec.placeholder_token_id)
    trace = Trace(observe=lambda name, tensor: recorder.take(0, 0, 0, name, tensor))
    return places.token_ids, image_spans(places, tower.encode_images(images, trace), tower.cells(images))


def _places(ids: Sequence[int], lengths: Sequence[int], placeholder: int) -> ExpandedPrompt:
    """One placeholder for each image or for each of its tokens; none at all puts the images in front."""
    count = ids.count(placeholder)
    if count == 0:
        ids = [placeholder] * len(lengths) + list(ids)
    elif count == sum(lengths) != len(lengths):
        ids = _contracted(ids, lengths, placeholder)
    return expand_placeholders(ids, lengths, placeholder)


def _contracted(ids: Sequence[int], lengths: Sequence[int], placeholder: int) -> list[int]:
    """One placeholder for each image again, of ids that have as many as the images have tokens."""
    firsts = {sum(lengths[:index]) for index in range(len(lengths))}
    kept, seen = [], 0
    for token in ids:
        if token != placeholder or seen in firsts:
            kept.append(token)
        seen += token == placeholder
    return kept


def image_facts(paths: Sequence[Path]) -> list[dict[str, str]]:
    """Which images a trace is of, by hash."""
    return [{"file": path.name, "sha256": hashlib.sha256(_read(path)).hexdigest()} for path in paths]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(error.strerror or "cannot be read", where=str(path), hint="--image takes a file") from None


def check_layout_of(settings: EngineSettings, *, joins: bool) -> None:
    """Raises InputError where several ranks would keep what cannot be put together again."""
    if Layout.of(settings).ranks > 1 and not joins:
        raise InputError(
            "statistics and samples of several ranks' shares cannot be put together",
            where="--tp",
            hint="keep whole tensors (--tensors PATTERN for some of them), or trace on one rank",
        )
