"""What is checked and how it is asked: a target answers asks, whether it runs in this process or behind a URL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from day0.plan.plan import Plan
    from day0.profile.profile import ArchitectureProfile
    from day0.runtime.batch import ImageSpan
    from day0.runtime.tokenizer import Tokenizer
    from day0.source.model_files import ModelFiles

Fate = Literal["done", "refused", "overloaded", "failed"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One completion to ask for; `prompt` is token ids, or text where the target takes no ids.

    `stream` asks for the tokens as they come, which must change nothing but their arrival. `abandon_after` goes away
    after that many pieces of a streamed answer. `images` are embeddings for the in-process runtime.
    """

    prompt: tuple[int, ...] | str
    max_tokens: int = 16
    temperature: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = True
    logprobs: int | None = None
    stream: bool = False
    abandon_after: int | None = None
    images: tuple[ImageSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an ask. A refusal blames the caller (too long), an overload the moment, a failure the target.

    `token_ids` is None where the target gives text only. `arrivals` are seconds from sending to each piece of the
    answer; `seconds` is the time to the last.
    """

    fate: Fate
    message: str = ""
    text: str = ""
    token_ids: tuple[int, ...] | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    logprobs: tuple[float, ...] = ()
    top_logprobs: tuple[dict[str, float], ...] = ()
    arrivals: tuple[float, ...] = ()
    seconds: float = 0.0

    @property
    def output(self) -> tuple[int, ...] | str:
        """What two equal answers have in common: ids where there are ids, else text."""
        return self.token_ids if self.token_ids is not None else self.text


class Target(Protocol):
    """Something that answers. `kind` is "runtime" (in this process) or "endpoint"."""

    name: str
    kind: str
    tokenizer: Tokenizer | None

    def lacks(self, need: str) -> str | None:
        """Why a capability cannot be had here, or None.

        Names: "process" (runs in this one), "engine" (one that started), "answers" (completes prompts), "text" (has a
        tokenizer), "lengths" (prompts of an exact number of tokens), "token_ids" (answers are ids), "endpoint" (an
        HTTP surface).
        """

    def max_model_len(self) -> int | None:
        """The longest sequence in tokens, prompt and answer together; None where the target does not say."""

    def ask(self, asks: Sequence[Ask], *, concurrency: int) -> list[Answer]:
        """Answers in the order of the asks, at most `concurrency` under way at a time (closed loop)."""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What every probe is given.

    `reference` is "runtime", "transformers" or the path of a stored trace. `tokenizer_fault` says why the model's
    tokenizer files gave no tokenizer. `plan` is what the runtime was started by, where that was a plan.
    """

    files: ModelFiles
    profile: ArchitectureProfile
    target: Target
    reference: str
    seed: int = 0
    tokenizer_fault: str | None = None
    plan: Plan | None = None
