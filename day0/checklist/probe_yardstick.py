"""An answer against the reference's: tokens, and the logits before each, within what rounding may move them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from day0.checklist.probe_paths import engine_of, forward_outputs, rounding_noise
from day0.checklist.probe_roads import Answered, Prompt, Road, Travelled
from day0.checklist.target import CheckContext
from day0.numerics.metrics import Allowance, difference
from day0.numerics.noise import NoiseFloor
from day0.runtime.engine.engine import Engine


class Traveller(Protocol):
    """`probe_roads.travel` for answers of one length."""

    def __call__(self, base: Engine, road: Road, prompts: Sequence[Prompt]) -> Travelled: ...


@dataclass(frozen=True, slots=True)
class Deviation:
    """A prompt of `length` tokens whose answer is another one from its token `token` on (0: the first)."""

    length: int
    token: int
    message: str


class Yardstick:
    """References, each computed alone, whole and cold on an engine of its own, and the noise they are judged by.

    The noise of one prompt of middle length serves all; an answer beyond it is judged again by its own prompt's, for
    rounding is not everywhere the same. `over` is the worst error over its tolerance, None where one gave no number.
    """

    def __init__(self, context: CheckContext, traveller: Traveller, max_tokens: int) -> None:
        self.engine = engine_of(context)
        self.traveller, self.max_tokens = traveller, max_tokens
        self.over: float | None = 0.0
        self._references: dict[Prompt, Answered] = {}
        self._noise: dict[Prompt, NoiseFloor] = {}
        self._first: NoiseFloor | None = None

    def reference(self, prompt: Prompt) -> Answered:
        if prompt not in self._references:
            self._references[prompt] = self.traveller(self.engine, Road(), [prompt]).answers[0]
        return self._references[prompt]

    def _own_noise(self, prompt: Prompt) -> NoiseFloor:
        if prompt not in self._noise:
            ids = (*prompt, *self.reference(prompt).token_ids[:-1])
            self._noise[prompt] = rounding_noise(self.engine, ids, forward_outputs)
        return self._noise[prompt]

    def judge(self, prompt: Prompt, answer: Answered) -> Deviation | None:
        """Where the answer parts from the reference for a reason; near ties end the comparison."""
        wanted = self.reference(prompt)
        self._first = self._first or self._own_noise(prompt)
        found, over = self._deviation(prompt, answer, wanted, self._first.allowance("logits"))
        if found is not None:
            found, over = self._deviation(prompt, answer, wanted, self._own_noise(prompt).allowance("logits"))
        self.over = None if over is None or self.over is None else max(self.over, over)
        return found

    def _deviation(
        self, prompt: Prompt, answer: Answered, wanted: Answered, allowed: Allowance
    ) -> tuple[Deviation | None, float | None]:
        worst = 0.0
        for token, row in enumerate(wanted.logits):
            where = f"a prompt of {len(prompt)} tokens, at token {token} of its answer, "
            if token >= len(answer.logits):
                return Deviation(len(prompt), token, f"{where}has no more of it"), None
            gap = difference(answer.logits[token][None], row[None])
            error = allowed.error_of(gap)
            if gap.kind not in ("equal", "precision"):
                return Deviation(len(prompt), token, f"{where}has logits that are {gap.kind}"), None
            worst = max(worst, error / allowed.limit)
            if worst > 1.0:
                text = f"{where}has logits off by {error:.1e} (tolerance {allowed.limit:.1e})"
                return Deviation(len(prompt), token, text), worst
            mine, theirs = answer.token_ids[token], wanted.token_ids[token]
            if mine != theirs:
                near = float(row[theirs] - row[mine]) <= 4 * allowed.limit * float(row.square().mean().sqrt())
                if near:
                    return None, worst
                return Deviation(len(prompt), token, f"{where}goes on with {mine} instead of {theirs}"), worst
        return None, worst
