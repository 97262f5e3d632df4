"""Towers built of parts, against transformers: float32 logits of prompts with images, family by family."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from closeness import relative_error
from vision_models import CLOSE, IMAGE, OPEN, SMALL, Picture, make_vision_model, picture, picture_logits

from day0.plan.settings import EngineSettings
from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors
from day0.runtime.batch import ImageSpan
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.load import load_engine
from day0.runtime.vision.encoder import ImageEncoder
from day0.runtime.vision.prompt import expand_placeholders, image_spans
from day0.source.resolve import resolve

LIMIT = 1e-5


def engine_over(folder: Path, **settings: object) -> Engine:
    files = resolve(str(folder))
    profile = read_profile(files)
    comparison = compare_tensors(profile, files)
    assert comparison.missing == (), comparison
    options = {"device": "cpu", "dtype": "float32", "runtime": "native", "max_model_len": 128, "page_size": 16}
    return load_engine(files, profile, EngineSettings(**options | settings))


def shown(engine: Engine, pictures: list[Picture]) -> tuple[list[int], tuple[ImageSpan, ...]]:
    """A prompt with pictures between marks and words, and their embeddings in it."""
    assert isinstance(engine.vision, ImageEncoder)
    raw = [5, 6, 7]
    for index in range(len(pictures)):
        raw += [OPEN, IMAGE, CLOSE, 20 + index, 30]
    grids = [one.grid for one in pictures]
    merge = engine.vision.spec.merge
    cells = [(rows // merge[0], columns // merge[1]) for _, rows, columns in grids]
    prompt = expand_placeholders(raw, [rows * columns for rows, columns in cells], IMAGE)
    embeddings = engine.vision.encode(torch.cat([one.pixels for one in pictures]), grids)
    return list(prompt.token_ids), image_spans(prompt, embeddings, cells)


SIZES = ((4, 6), (10, 8), (2, 2))
"""Rows and columns of the pictures: below and above the learnt grid and the window, and a single token."""


@pytest.mark.parametrize("kind", SMALL)
def test_logits_of_one_and_several_pictures(kind: str, tmp_path: Path) -> None:
    model = make_vision_model(kind, tmp_path)
    engine = engine_over(tmp_path)
    pictures = [picture(kind, *size, seed) for seed, size in enumerate(SIZES)]
    for chosen in ([pictures[0]], pictures, pictures[::-1]):
        ids, spans = shown(engine, chosen)
        wanted = picture_logits(model, ids, chosen)
        assert relative_error(engine.forward(ids, images=spans), wanted) < LIMIT
