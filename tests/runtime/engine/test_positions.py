"""Where tokens of sequences with images stand, against transformers and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from vision_models import IMAGE, SMALL

from day0.runtime.batch import ImageSpan
from day0.runtime.engine.positions import Positions


def span(start: int, rows: int, columns: int) -> ImageSpan:
    return ImageSpan(start, torch.empty(rows * columns, 0), (rows, columns))


def test_text_alone_lies_on_a_line() -> None:
    assert Positions().lie_on_a_line
    assert Positions((ImageSpan(2, torch.empty(4, 0)),)).lie_on_a_line, "an image without a grid is placed like text"
    assert np.array_equal(Positions().on_axes(3, 6), [[3, 4, 5]] * 3)


def test_an_image_by_hand() -> None:
    places = Positions((span(2, 2, 3),)).on_axes(0, 10)
    assert places.tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5, 6],
        [0, 1, 2, 2, 2, 3, 3, 3, 5, 6],
        [0, 1, 2, 3, 4, 2, 3, 4, 5, 6],
    ]


@pytest.mark.parametrize("kind", ["qwen3_vl", "qwen3_5", "qwen2_5_vl", "qwen2_vl"])
def test_several_images_as_transformers_places_them(kind: str) -> None:
    config = transformers.AutoConfig.for_model(kind, **SMALL[kind], image_token_id=IMAGE)
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(config)
    grids = ((2, 3), (4, 1), (1, 1), (5, 7))
    ids, spans = [5, 6], []
    for rows, columns in grids:
        spans.append(span(len(ids), rows, columns))
        ids += [IMAGE] * (rows * columns) + [7]
    kinds = torch.tensor([[int(token == IMAGE) for token in ids]])
    grid_thw = torch.tensor([(1, 2 * rows, 2 * columns) for rows, columns in grids])
    wanted, shift = model.model.get_rope_index(torch.tensor([ids]), image_grid_thw=grid_thw, mm_token_type_ids=kinds)
    places = Positions(spans).on_axes(0, len(ids) + 3)
    assert np.array_equal(places[:, : len(ids)], wanted[:, 0])
    generated = np.arange(len(ids), len(ids) + 3) + int(shift)
    assert np.array_equal(places[:, len(ids) :], np.tile(generated, (3, 1)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(1, 4)), max_size=3), st.data())
def test_any_part_is_that_of_the_whole(images: list[tuple[int, int, int]], data: st.DataObject) -> None:
    spans, length = [], 0
    for text, rows, columns in images:
        spans.append(span(length + text, rows, columns))
        length += text + rows * columns
    whole = Positions(spans[::-1]).on_axes(0, length + 5)
    start = data.draw(st.integers(0, length + 5))
    end = data.draw(st.integers(start, length + 5))
    assert np.array_equal(Positions(spans).on_axes(start, end), whole[:, start:end])
    assert np.array_equal(np.diff(whole[:, length:]), np.ones((3, 4))), "text goes on by one"
