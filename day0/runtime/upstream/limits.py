"""What is weaker about a model that transformers runs, in sentences for a report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from day0.runtime.upstream.sessions import CacheCost, CacheUse

if TYPE_CHECKING:
    from day0.runtime.upstream.decoder import UpstreamDecoder


@dataclass(frozen=True, slots=True)
class Account:
    """What became of the stored tensors: those that no parameter took, and how weights were packed if they were."""

    unexpected: tuple[str, ...] = ()
    packing: str | None = None


def limits_of(decoder: UpstreamDecoder, cost: CacheCost) -> tuple[str, ...]:
    """One sentence for each thing that holds for our own runtime and not here."""
    return tuple(_limits(decoder, cost))


def _limits(decoder: UpstreamDecoder, cost: CacheCost) -> Iterator[str]:
    from transformers import __version__

    definition, account = decoder.definition, decoder.account
    name = type(decoder.upstream).__name__
    if definition.remote:
        yield f"{name} is code of the model's own repository, run as it is"
    yield f"transformers {__version__} runs the model ({name}): the operator whitelist says nothing of its numbers"
    yield "sequences of a step run one after another: throughput does not grow with concurrency"
    yield "what one request computed of a prompt is not used for another"
    yield from _cache_limits(decoder, cost)
    if definition.config.get_text_config(decoder=True) is not definition.config:
        yield "only the text part of the model is run: images and sounds are not taken"
    if account.packing is not None:
        yield f"transformers reads the weights packed as {account.packing}: nothing here holds them against the files"
    if account.unexpected:
        count = len(account.unexpected)
        yield f"transformers leaves out {count} stored tensors, the first of them {account.unexpected[0]}"
    if not any(point.name.endswith("_out") for point in decoder.points):
        yield "mixers and feed-forwards cannot be told apart inside its layers: paths are compared by logits alone"
    if decoder.profile.family is None:
        yield "day0 has no description of the architecture: sizes and context are transformers' word"


def _cache_limits(decoder: UpstreamDecoder, cost: CacheCost) -> Iterator[str]:
    match decoder.cache_use:
        case CacheUse.STEPS:
            yield (
                "transformers forgets its state when several tokens follow it: "
                "prompts are computed in one piece, however long the step gets"
            )
        case CacheUse.NEVER:
            yield (
                "transformers' cache does not give what a whole forward gives: "
                "every token computes the whole sequence again"
            )
            return
    yield (
        f"cache memory is taken as sequences grow, {cost.per_token} bytes a token and {cost.per_sequence} a sequence "
        "as measured, and is not set aside at the start"
    )
