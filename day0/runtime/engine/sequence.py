"""One request on its way through the engine, and the ways a request can be refused."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

from day0.errors import Day0Error, EnvironmentFault, ExitCode, InputError
from day0.profile.positions import RopeSpec
from day0.runtime.batch import FinishReason, ImageSpan, Request
from day0.runtime.cache.lease import Lease
from day0.runtime.cache.prefix import ImageContent, PageNames
from day0.runtime.engine.positions import Positions


class QueueFull(EnvironmentFault):
    """The waiting queue is at its limit; the request may be sent again later."""

    exit_code = ExitCode.ENVIRONMENT


class RequestRefused(InputError):
    """The request can never be served: too long, or its token ids are outside the vocabulary."""


class NotFinite(Day0Error):
    """The model gave numbers that are not finite for one request; the others are not touched."""

    def __init__(self) -> None:
        hint = "a weight may be broken or the dtype too narrow: `day0 run-checklist --phase loading` looks for it"
        super().__init__("the model gave numbers that are not finite for this request", hint=hint)


@dataclass(slots=True, eq=False)
class Sequence:
    """A request with what it has got so far.

    `computed` tokens are in cache and state, which `lease` holds while the sequence runs. Preemption sets them back to
    0 and None, while `token_ids` keep what was generated, so that recomputing continues where it stopped. `names` are
    those of its full pages, `positions` say where tokens stand; a step should end at each of `stops`. `counted` prompt
    tokens are in the engine's statistics; `reused` of them were found in the cache when the sequence first ran, None
    before that. `eras` are those of `length_ropes` (RopeSpec.era) in which its tokens turn.
    """

    request: Request
    token_ids: list[int]
    names: PageNames
    positions: Positions
    length_ropes: tuple[RopeSpec, ...] = ()
    eras: tuple[int, ...] = ()
    lease: Lease | None = None
    computed: int = 0
    stops: tuple[int, ...] = ()
    counted: int = 0
    reused: int | None = None
    finish_reason: FinishReason | None = None

    @classmethod
    def of(cls, request: Request, page_size: int, length_ropes: tuple[RopeSpec, ...] = ()) -> Sequence:
        images = [ImageContent(*span.bounds, _digest(span)) for span in request.images]
        eras = tuple(rope.era(len(request.prompt_ids)) for rope in length_ropes)
        names, places = PageNames(page_size, images, eras), Positions(request.images)
        return cls(request, list(request.prompt_ids), names, places, length_ropes, eras)

    def enter_era(self) -> bool:
        """Whether the sequence has grown into a length at which it turns otherwise: what is cached of it is void."""
        eras = tuple(rope.era(len(self.token_ids)) for rope in self.length_ropes)
        if eras == self.eras:
            return False
        self.eras, self.names = eras, self.names.in_eras(eras)
        return True

    @property
    def held(self) -> Lease:
        """The lease of a sequence that runs."""
        assert self.lease is not None, f"sequence {self.id} does not run"
        return self.lease

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def num_prompt(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.num_prompt

    @property
    def num_pending(self) -> int:
        """Tokens that the model has not seen yet: 1 when decoding, more in prefill."""
        return len(self.token_ids) - self.computed

    def next_length(self, budget: int) -> int:
        """Tokens of its next chunk: those pending, as far as the budget and the next stop go."""
        ends = [self.computed + budget, len(self.token_ids), *(stop for stop in self.stops if stop > self.computed)]
        return min(ends) - self.computed


def _digest(span: ImageSpan) -> bytes:
    """Of what an image puts into a prompt, and of how its tokens lie."""
    content = span.embeddings.detach().cpu().contiguous()
    digest = hashlib.sha256(repr((span.grid, content.dtype, content.shape)).encode())
    digest.update(content.view(torch.uint8).numpy().tobytes())
    return digest.digest()
