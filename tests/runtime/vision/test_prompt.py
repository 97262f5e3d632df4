from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from day0.errors import InputError
from day0.runtime.vision.prompt import ExpandedPrompt, expand_placeholders, image_spans

PAD = 7


def test_each_placeholder_becomes_as_many_as_its_image_has_tokens() -> None:
    prompt = expand_placeholders([1, PAD, 2, PAD, PAD, 3], [2, 1, 3], PAD)
    assert prompt == ExpandedPrompt((1, PAD, PAD, 2, PAD, PAD, PAD, PAD, 3), (1, 4, 5), (2, 1, 3))


def test_prompts_without_images_are_left_alone() -> None:
    assert expand_placeholders((1, 2, 3), (), PAD) == ExpandedPrompt((1, 2, 3), (), ())


@given(st.lists(st.integers(0, 10)), st.data())
def test_text_survives_and_spans_hold_nothing_but_placeholders(ids: list[int], data: st.DataObject) -> None:
    count = ids.count(PAD)
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
    prompt = expand_placeholders(ids, lengths, PAD)
    assert [token for token in prompt.token_ids if token != PAD] == [token for token in ids if token != PAD]
    spans = [range(start, start + length) for start, length in zip(prompt.starts, lengths, strict=True)]
    covered = [position for span in spans for position in span]
    assert covered == [position for position, token in enumerate(prompt.token_ids) if token == PAD]


@pytest.mark.parametrize(("ids", "lengths"), [([1, PAD], []), ([1, 2], [3]), ([PAD, PAD], [4]), ([], [1])])
def test_placeholders_and_images_must_agree(ids: list[int], lengths: list[int]) -> None:
    with pytest.raises(InputError, match=f"{ids.count(PAD)} image placeholders .* for {len(lengths)} images"):
        expand_placeholders(ids, lengths, PAD)


def test_spans_carry_each_image_to_its_place() -> None:
    prompt = expand_placeholders([PAD, 1, PAD], [2, 3], PAD)
    first, second = torch.zeros(2, 4), torch.ones(3, 4)
    spans = image_spans(prompt, [first, second])
    assert [span.start for span in spans] == [0, 3]
    assert spans[0].embeddings is first
    assert spans[1].embeddings is second


def test_exchanged_images_are_noticed_by_their_length() -> None:
    prompt = expand_placeholders([PAD, 1, PAD], [2, 3], PAD)
    with pytest.raises(InputError, match=r"\(3, 2\) tokens for places of \(2, 3\)"):
        image_spans(prompt, [torch.zeros(3, 4), torch.zeros(2, 4)])
