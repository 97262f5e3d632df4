"""Where images stand in a prompt: one placeholder each, expanded to as many as the image has tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from day0.errors import InputError
from day0.runtime.batch import ImageSpan

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class ExpandedPrompt:
    """A prompt as long as the model will see it. `starts` and `lengths` are where each image's tokens lie."""

    token_ids: tuple[int, ...]
    starts: tuple[int, ...]
    lengths: tuple[int, ...]


def expand_placeholders(
    token_ids: Sequence[int], tokens_per_image: Sequence[int], placeholder_token_id: int
) -> ExpandedPrompt:
    """Repeat each image's placeholder to the image's length; InputError unless there is one per image.

    More placeholders than images also happens when a user's text was encoded with special tokens allowed.
    """
    found = sum(token == placeholder_token_id for token in token_ids)
    if found != len(tokens_per_image):
        raise InputError(
            f"{found} image placeholders (token {placeholder_token_id}) for {len(tokens_per_image)} images",
            where="prompt",
            hint="give one placeholder per image, in the order of the images",
        )
    assert all(count > 0 for count in tokens_per_image), "every image has tokens"
    expanded: list[int] = []
    starts: list[int] = []
    counts = iter(tokens_per_image)
    for token in token_ids:
        if token != placeholder_token_id:
            expanded.append(token)
            continue
        starts.append(len(expanded))
        expanded += [token] * next(counts)
    return ExpandedPrompt(tuple(expanded), tuple(starts), tuple(tokens_per_image))


def image_spans(
    prompt: ExpandedPrompt, embeddings: Sequence[torch.Tensor], cells: Sequence[tuple[int, int]] | None = None
) -> tuple[ImageSpan, ...]:
    """The images' embeddings at their places; each must be as long as the prompt left room for.

    `cells` are the rows and columns of each image's tokens, which models with several axes of positions need.
    """
    lengths = tuple(int(part.shape[0]) for part in embeddings)
    if lengths != prompt.lengths:
        raise InputError(f"images of {lengths} tokens for places of {prompt.lengths}", where="images")
    grids = [None] * len(lengths) if cells is None else cells
    return tuple(ImageSpan(*place) for place in zip(prompt.starts, embeddings, grids, strict=True))
