"""Phase "multimodal", station by station: where on its way from pixels to the decoder does an image go wrong."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from day0.checklist.checklist import NotChecked, Outcome
from day0.checklist.probe_multimodal import Sight, prompt_with, sight_of
from day0.checklist.probe_paths import PathErrors
from day0.checklist.target import CheckContext
from day0.numerics.noise import NoiseFloor, noise_floor
from day0.runtime.trace import Trace
from day0.runtime.vision.images import load_images
from day0.runtime.vision.preprocess import ImageInput, plan_resize, preprocess_image

SEGMENTS = ("pixels", "patches", "tower", "projector", "merged")
LARGEST_CELLS = 64
"""Cells along a side of the picture that needs no scaling, at most; no model so far wants more than eight."""


def segments(context: CheckContext, *, images: int = 3) -> Outcome:
    """Five stations, each by a second way: pixels from the definition, patches, tower and projector of an image alone
    against in company, and the rows that the decoder begins with against what the projector gave."""
    sight = sight_of(context)
    if isinstance(sight, NotChecked):
        return sight
    picture = _whole_cells(sight)
    if picture is None:
        return NotChecked("skip", "no size within the limits of preprocessing is left as it is")
    (opened,) = load_images([_png(picture)])
    first = preprocess_image(opened, sight.config)
    inputs = [first, *(sight.image(index, "RGB", 40 + 9 * index, 30) for index in range(1, images))]
    errors = PathErrors(_noise(sight, first))
    errors.compare("by definition", {"pixels": _joined(first, sight)}, {"pixels": _by_definition(picture, sight)})
    together = Trace()
    embeddings = sight.tower.encode_images(inputs, together)
    among = _stations(together.tensors, inputs, embeddings)
    for index, one in enumerate(inputs):
        trace = Trace()
        alone = _stations(trace.tensors, [one], sight.tower.encode_images([one], trace))
        errors.compare(f"image {index} among others", _part(among, index), _part(alone, 0))
    errors.compare("in the decoder", *_merged(context, sight, inputs, embeddings))
    passed = [name for name in SEGMENTS if name in errors.errors]
    return errors.measured(context.profile, "the first station that parts is where to look", segments=len(passed))


def _whole_cells(sight: Sight) -> np.ndarray | None:
    """A noisy picture, [height, width, 3], of a size that preprocessing leaves alone; it is no square."""
    rows, columns = sight.config.cell
    for cells in range(2, LARGEST_CELLS):
        height, width = rows * cells, columns * (cells + 1)
        plan = plan_resize(width, height, sight.config)
        if (plan.width, plan.height, plan.pad_width, plan.pad_height) == (width, height, 0, 0):
            return np.random.default_rng(11).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return None


def _png(picture: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    return buffer.getvalue()


def _by_definition(picture: np.ndarray, sight: Sight) -> Tensor:
    """(x / 255 - mean) / std in float64, [height * width, 3]."""
    values = torch.from_numpy(picture).double() / 255
    values = (values - torch.tensor(sight.config.mean).double()) / torch.tensor(sight.config.std).double()
    return values.flatten(0, 1).float()


def _joined(image: ImageInput, sight: Sight) -> Tensor:
    """Patches laid side by side again, [height * width, 3]: the picture, if they are in the order of rows."""
    patches = image.pixel_values if sight.config.frames == 1 else image.pixel_values[:, :, 0]
    rows = patches.unflatten(0, (image.grid.rows, image.grid.columns))  # [rows, columns, 3, patch, patch]
    return rows.permute(0, 3, 1, 4, 2).reshape(-1, 3)


def _stations(
    traced: Mapping[str, Tensor], images: Sequence[ImageInput], embeddings: Sequence[Tensor]
) -> list[dict[str, Tensor]]:
    """Patches, tower and projector of each image, from the trace of all of them."""
    counts = [image.grid.patches for image in images]
    by_patch = [tensor for tensor in traced.values() if tensor.shape[0] == sum(counts)]
    if not by_patch:
        return [{"projector": own} for own in embeddings]
    ends = zip(by_patch[0].split(counts), by_patch[-1].split(counts), embeddings, strict=True)
    return [{"patches": patches, "tower": tower, "projector": own} for patches, tower, own in ends]


def _part(stations: Sequence[dict[str, Tensor]], index: int) -> dict[str, Tensor]:
    return {name: tensor.flatten(1).float() for name, tensor in stations[index].items()}


def _noise(sight: Sight, image: ImageInput) -> NoiseFloor:
    def stations(pixels: Tensor) -> dict[str, Tensor]:
        trace = Trace()
        embeddings = sight.tower.encode(pixels, [image.grid], trace)
        return _part(_stations(trace.tensors, [image], embeddings), 0)

    return noise_floor(stations, image.pixel_values, torch.finfo(sight.engine.dtype).eps)


def _merged(
    context: CheckContext, sight: Sight, images: list[ImageInput], embeddings: Sequence[Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The rows that stand at the images' places where the decoder begins, and those that the projector gave."""
    places = prompt_with(context, sight, images)
    trace = Trace(only=("embed",))
    spans = sight.spans(places, images)
    sight.engine.forward(places.token_ids, images=spans, trace=trace)
    begun = trace.tensors["embed"]
    found = torch.cat([begun[span.start : span.start + len(span.embeddings)] for span in spans])
    given = torch.cat([own[:, : begun.shape[1]] for own in embeddings])
    return {"merged": found.float()}, {"merged": given.to(begun.dtype).float()}
