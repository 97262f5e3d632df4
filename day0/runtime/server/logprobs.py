"""Log probabilities of tokens in the two spellings of the API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from day0.runtime.batch import TokenOutput
from day0.runtime.server.schema import (
    LOWEST_LOGPROB,
    ChatLogprobs,
    ChatTokenLogprob,
    CompletionLogprobs,
    TopLogprob,
)

if TYPE_CHECKING:
    from day0.runtime.tokenizer import Tokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def chat_logprobs(tokenizer: Tokenizer, tokens: Iterable[TokenOutput]) -> ChatLogprobs:
    return ChatLogprobs([_chat_token(tokenizer, token) for token in tokens])


def completion_logprobs(tokenizer: Tokenizer, tokens: Iterable[TokenOutput], offset: int) -> CompletionLogprobs:
    """`offset` is where in the choice's text the first of the tokens begins, in characters."""
    texts: list[str] = []
    chosen: list[float] = []
    top: list[dict[str, float]] = []
    offsets: list[int] = []
    for token in tokens:
        text = token_text(tokenizer, token.token_id)
        logprob = _sayable(token.logprob)
        # The chosen token is always among them; of alternatives that read the same, the likeliest is told.
        alternatives = {text: logprob}
        for other in token.top_logprobs:
            alternatives.setdefault(token_text(tokenizer, other.token_id), _sayable(other.logprob))
        texts.append(text)
        chosen.append(logprob)
        top.append(alternatives)
        offsets.append(offset)
        offset += len(text)
    return CompletionLogprobs(texts, chosen, top, offsets)


def token_text(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.decode([token_id], skip_special_tokens=False)


def _chat_token(tokenizer: Tokenizer, token: TokenOutput) -> ChatTokenLogprob:
    text = token_text(tokenizer, token.token_id)
    others = [_top(tokenizer, other.token_id, other.logprob) for other in token.top_logprobs]
    return ChatTokenLogprob(text, _sayable(token.logprob), _bytes(text), others)


def _top(tokenizer: Tokenizer, token_id: int, logprob: float) -> TopLogprob:
    text = token_text(tokenizer, token_id)
    return TopLogprob(text, _sayable(logprob), _bytes(text))


def _bytes(text: str) -> list[int] | None:
    return None if _REPLACEMENT in text else list(text.encode())


def _sayable(logprob: float | None) -> float:
    return LOWEST_LOGPROB if logprob is None else max(logprob, LOWEST_LOGPROB)
