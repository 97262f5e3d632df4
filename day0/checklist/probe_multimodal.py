"""Phase "multimodal": images become as many tokens as promised, keep to themselves, and reach the answer in order."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image

from day0.checklist.checklist import Measured, NotChecked, Outcome, Where
from day0.checklist.probe_paths import PathErrors, engine_of, forward_outputs, rounding_noise
from day0.checklist.prompts import random_ids
from day0.checklist.target import CheckContext
from day0.errors import InputError
from day0.numerics.metrics import difference
from day0.numerics.noise import NoiseFloor, noise_floor
from day0.runtime.batch import ImageSpan
from day0.runtime.engine.engine import Engine
from day0.runtime.vision.encoder import ImageEncoder
from day0.runtime.vision.images import load_images
from day0.runtime.vision.preprocess import ImageInput, preprocess_image
from day0.runtime.vision.preprocess_config import FILE_NAME, ImagePreprocessing, image_preprocessing
from day0.runtime.vision.prompt import ExpandedPrompt, expand_placeholders, image_spans

NO_VISION = NotChecked("na", "the model takes text only")
SHAPES = (
    ("RGB", 40, 30), ("RGB", 1, 1), ("RGB", 200, 9), ("RGB", 9, 200), ("L", 33, 33), ("LA", 32, 48), ("RGBA", 64, 64),
    ("P", 50, 21), ("RGB", 300, 260),
)  # fmt: skip
"""Mode, width and height of the images tried: tiny, odd, narrow, grey, transparent, palette, large."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What the vision probes work with."""

    engine: Engine
    tower: ImageEncoder
    placeholder: int
    config: ImagePreprocessing

    def image(self, index: int, mode: str = "RGB", width: int = 40, height: int = 30) -> ImageInput:
        """A seeded picture, stored as PNG and taken in like a user's."""
        (image,) = load_images([_png(index, mode, width, height)])
        return preprocess_image(image, self.config)

    def spans(self, places: ExpandedPrompt, images: Sequence[ImageInput]) -> tuple[ImageSpan, ...]:
        """The images' embeddings at their places."""
        return image_spans(places, self.tower.encode_images(images), self.tower.cells(images))


def sight_of(context: CheckContext) -> Sight | NotChecked:
    spec = context.profile.vision
    if spec is None:
        return NO_VISION
    if FILE_NAME not in context.files.extras:
        return NotChecked("skip", f"without {FILE_NAME} nothing says how images become patches")
    engine = engine_of(context)
    if not isinstance(engine.vision, ImageEncoder):
        return NotChecked("skip", "the runtime has no tower for this model")
    if spec.placeholder_token_id is None:
        return NotChecked("skip", "the config names no token that stands for a piece of an image")
    return Sight(engine, engine.vision, spec.placeholder_token_id, image_preprocessing(context.files, spec))


def _png(index: int, mode: str, width: int, height: int) -> bytes:
    noise = np.random.default_rng(index).integers(0, 256, (height, width, 4), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise, "RGBA").convert(mode).save(buffer, "PNG")
    return buffer.getvalue()


def tokens(context: CheckContext) -> Outcome:
    """Images of many sizes and kinds: the tower gives as many vectors as the prompt leaves room for, all finite."""
    sight = sight_of(context)
    if isinstance(sight, NotChecked):
        return sight
    wrong: list[str] = []
    counts: dict[str, int] = {}
    for index, (mode, width, height) in enumerate(SHAPES):
        image = sight.image(index, mode, width, height)
        (embeddings,) = sight.tower.encode_images([image])
        name = f"{mode} {width}x{height}"
        counts[name] = image.num_tokens
        prompt = expand_placeholders([sight.placeholder], [image.num_tokens], sight.placeholder)
        if embeddings.shape != (len(prompt.token_ids), sight.tower.width):
            wrong.append(f"{name}: {tuple(embeddings.shape)} for {len(prompt.token_ids)} places")
        elif not bool(torch.isfinite(embeddings).all()):
            wrong.append(f"{name}: not finite")
    return Measured(len(counts), {"wrong": len(wrong), "tokens": counts}, message=wrong[0] if wrong else "")


def batch(context: CheckContext) -> Outcome:
    """An image among others gives the vectors it gives alone: nothing leaks between images."""
    sight = sight_of(context)
    if isinstance(sight, NotChecked):
        return sight
    images = [sight.image(index, *shape) for index, shape in enumerate(SHAPES[:5])]
    together = sight.tower.encode_images(images)
    errors = PathErrors(NoiseFloor({}, {}, 0.0))
    for index, (image, among) in enumerate(zip(images, together, strict=True)):
        name = f"vision.image{index}"
        errors.noise = noise_floor(
            lambda moved, image=image, name=name: {  # type: ignore[misc]
                name: sight.tower.encode_images([replace(image, pixel_values=moved)])[0]
            },
            image.pixel_values,
            torch.finfo(among.dtype).eps,
        )
        errors.compare(f"image {index}", {name: among}, {name: sight.tower.encode_images([image])[0]})
    return errors.measured(context.profile, "the tower's attention reaches over the edge of an image")


def order(context: CheckContext) -> Outcome:
    """Two images in a prompt: finite logits, other logits for another image, and for the images exchanged."""
    sight = sight_of(context)
    if isinstance(sight, NotChecked):
        return sight
    engine = sight.engine
    first, second, third = (sight.image(index) for index in range(3))
    places = prompt_with(context, sight, [first, second])

    def answer(*images: ImageInput) -> torch.Tensor:
        spans = sight.spans(places, images)
        return engine.forward(places.token_ids, images=spans)[-1:]

    shown = answer(first, second)
    return Measured(
        inspected=3,
        values={
            "finite": bool(torch.isfinite(shown).all()),
            "change_by_content": difference(answer(first, third), shown).overall,
            "change_by_order": difference(answer(second, first), shown).overall,
            "image_tokens": sum(places.lengths),
        },
        where=Where(operator="embedding_scatter", length=len(places.token_ids)),
        hint="embeddings do not replace the placeholders, or replace them in another order",
    )


def prompt_with(context: CheckContext, sight: Sight, images: list[ImageInput]) -> ExpandedPrompt:
    text = random_ids(context, 40, 4)
    raw = [part for _ in images for part in (*text, sight.placeholder)] + list(text)
    return expand_placeholders(raw, [image.num_tokens for image in images], sight.placeholder)


def chunked(context: CheckContext, *, chunks: list[int] | None = None) -> Outcome:
    """A prompt with images, computed in chunks that cut through them, against one forward."""
    sight = sight_of(context)
    if isinstance(sight, NotChecked):
        return sight
    images = [sight.image(index) for index in range(2)]
    places = prompt_with(context, sight, images)
    spans = sight.spans(places, images)
    whole = forward_outputs(sight.engine, places.token_ids, images=spans)
    errors = PathErrors(rounding_noise(sight.engine, places.token_ids, forward_outputs, spans))
    for chunk in chunks or [1, 3, 7]:
        errors.compare(f"chunks of {chunk}", forward_outputs(sight.engine, places.token_ids, chunk, spans), whole)
    return errors.measured(context.profile, "a chunk takes the wrong part of an image", length=len(places.token_ids))


def refusals(context: CheckContext) -> Outcome:
    """Broken images and prompts that do not fit their images are refused, never read as something else."""
    sight = sight_of(context)
    if isinstance(sight, NotChecked):
        return sight
    accepted = []
    for name, data in broken_images().items():
        try:
            load_images([data])
        except InputError:
            continue
        accepted.append(name)
    placeholder = sight.placeholder
    for name, count in (("no placeholder", 0), ("a placeholder too many", 2)):
        try:
            expand_placeholders([placeholder] * count, [4], placeholder)
        except InputError:
            continue
        accepted.append(name)
    inspected = len(broken_images()) + 2
    message = f"taken as sound: {accepted[0]}" if accepted else ""
    return Measured(inspected, {"accepted": len(accepted), "which": accepted}, message=message)


def broken_images() -> dict[str, bytes]:
    """Files that no server should take, by what is wrong with them."""
    sound = _png(0, "RGB", 40, 30)
    frames = [Image.new("L", (8, 8), shade) for shade in (0, 255)]
    animated = io.BytesIO()
    frames[0].save(animated, "GIF", save_all=True, append_images=frames[1:])
    return {
        "empty": b"",
        "text": b"not an image at all",
        "cut off": sound[: len(sound) // 2],
        "header only": sound[:33],
        "animated": animated.getvalue(),
        "too many pixels": _png_header(60_000, 60_000),
    }


def _png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing."""

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + size + part(b"IDAT", zlib.compress(b"\0" * 64)) + part(b"IEND", b"")
