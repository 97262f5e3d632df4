"""One request on its way through the engine, and the ways a request can be refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from day0.errors import Day0Error, EnvironmentFault, ExitCode, InputError
from day0.runtime.batch import FinishReason, Request


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

    `computed` tokens are in cache and state; `pages` hold them. Preemption sets it back to 0 and gives the pages
    away, while `token_ids` keep what was generated, so that recomputing continues where it stopped. `counted` prompt
    tokens are in the engine's statistics.
    """

    request: Request
    token_ids: list[int]
    pages: list[int] = field(default_factory=list)
    state_slot: int = -1
    computed: int = 0
    counted: int = 0
    finish_reason: FinishReason | None = None

    @classmethod
    def of(cls, request: Request) -> Sequence:
        return cls(request, list(request.prompt_ids))

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
