"""A started engine asked over its own API: its health, a first answer that is checked, and its metrics."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

from day0.checklist.client import EndpointTarget
from day0.checklist.target import Ask
from day0.engines.first_answer import ALTERNATIVES, PROMPT, TOKENS, implausible
from day0.engines.supervise import FirstAnswer

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses to listen on, and where a server that does so is found from its own host."""


@dataclass(frozen=True, slots=True)
class EngineApi:
    """Where the engine listens, and with which key."""

    host: str
    port: int
    api_key: str | None

    def is_healthy(self) -> bool:
        with closing(self._target()) as target:
            return target.get("/health").status == 200

    def metrics(self) -> bytes:
        """The engine's own metrics as it writes them; nothing where it has none."""
        with closing(self._target()) as target:
            reply = target.get("/metrics")
        return reply.text.encode() if reply.status == 200 else b""

    def first_answer(self) -> FirstAnswer:
        """A greedy completion with log probabilities, or without them where the engine refuses to tell them."""
        ask = Ask(PROMPT, max_tokens=TOKENS, ignore_eos=False, logprobs=ALTERNATIVES)
        with closing(self._target()) as target:
            answer = target.ask([ask], concurrency=1)[0]
            if answer.fate == "refused":
                answer = target.ask([replace(ask, logprobs=None)], concurrency=1)[0]
        if answer.fate != "done":
            return FirstAnswer(
                f"its first answer is {answer.fate}: {answer.message}", has_come=answer.fate == "refused"
            )
        if not answer.text and not answer.completion_tokens:
            return FirstAnswer("its first answer is empty")
        if not answer.logprobs:
            return FirstAnswer(remark="it gives no log probabilities, so its first answer was only seen to be there")
        return FirstAnswer(implausible(answer.logprobs, answer.top_logprobs))

    def _target(self) -> EndpointTarget:
        host = _ANYWHERE.get(self.host, self.host)
        address = f"[{host}]" if ":" in host else host
        return EndpointTarget(f"http://{address}:{self.port}", None, api_key=self.api_key)
