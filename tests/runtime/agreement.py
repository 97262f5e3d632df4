"""What any engine owes, asserted: chunks give the whole, a batch gives what each gets alone, transformers agrees."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import transformers
from closeness import worst_error
from random_models import cached_logits

from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.engine import Engine

LIMIT = 1e-5
"""Of `worst_error` between logits in float32."""
Pair = tuple[transformers.PreTrainedModel, Engine]
"""A model of transformers and our engine over the folder that it was saved to."""


def chunks_give_the_whole(engine: Engine, ids: list[int], chunk: int) -> None:
    """A prefill in chunks, of one token where it decodes, against one in a single forward."""
    assert worst_error(engine.forward(ids, chunk=chunk), engine.forward(ids)) < LIMIT


def agrees_with_their_cache(pair: Pair, ids: list[int], prefill: int) -> None:
    """Token by token, against transformers' own cache after `prefill` tokens at once."""
    model, engine = pair
    assert worst_error(engine.forward(ids, chunk=1), cached_logits(model, ids, prefill)) < LIMIT


def batch_gives_what_each_gets_alone(
    engine: Engine, prompts: Sequence[list[int]], max_tokens: int, rel: float | None = None
) -> None:
    """Greedy tokens of all prompts at once are those of each alone, and so are their log probabilities within 1e-5.

    `rel` widens that by a share of the log probability.
    """
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True, logprobs=5)
    requests = [Request(str(number), tuple(ids), params) for number, ids in enumerate(prompts)]
    for request, beside in zip(requests, engine.generate(requests), strict=True):
        alone = engine.generate([request])[0]
        assert beside.token_ids == alone.token_ids
        assert beside.logprobs == pytest.approx(alone.logprobs, rel=rel, abs=1e-5)
