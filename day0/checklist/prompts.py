"""Prompts of a wanted length in tokens: text through the model's own tokenizer, or seeded ids where there is none."""

from __future__ import annotations

import random

from day0.checklist.target import CheckContext

SENTENCES = (
    "The capital of France is",
    "Water boils at a temperature of",
    "Here is a short list of the planets, beginning with the one nearest the sun:",
    "She opened the old wooden door, looked into the dark hall and",
    "To sort a list of numbers in Python, one can write",
    "In the year 1969, two people walked on",
    "Yesterday it rained all day, so the children stayed inside and",
    "Seven plus five equals",
)
"""Beginnings that any trained model can go on from."""


def sentence_ids(context: CheckContext, index: int, *, start: bool = True) -> tuple[int, ...]:
    """Token ids of one beginning, numbered where they repeat; `start` adds what the tokenizer puts first."""
    tokenizer = context.target.tokenizer
    text = SENTENCES[index % len(SENTENCES)]
    if index >= len(SENTENCES):
        text = f"{index}. {text}"
    if tokenizer is not None:
        ids = tokenizer.encode(text, add_special_tokens=start)
        if ids and max(ids) < context.profile.vocab_size:
            return tuple(ids)
    return random_ids(context, index, 12)


def prompt_ids(context: CheckContext, index: int, length: int) -> tuple[int, ...]:
    """Exactly `length` token ids: beginnings one after another, from the index-th on."""
    ids = list(sentence_ids(context, index))
    position = index
    while len(ids) < length:
        position += 1
        ids.extend(sentence_ids(context, position, start=False))
    return tuple(ids[:length])


def random_ids(context: CheckContext, index: int, length: int) -> tuple[int, ...]:
    """Seeded ids over the vocabulary, without end and placeholder tokens."""
    profile = context.profile
    special = {profile.bos_token_id, *profile.eos_token_ids}
    if profile.vision is not None:
        special.add(profile.vision.placeholder_token_id)
    source = random.Random(f"{context.seed}/{index}/{length}")
    ids: list[int] = []
    while len(ids) < length:
        token = source.randrange(profile.vocab_size)
        if token not in special:
            ids.append(token)
    return tuple(ids)
