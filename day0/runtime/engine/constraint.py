"""Grammars that answers must keep: masks over the vocabulary from llguidance, one matcher for each running request."""

from __future__ import annotations

from collections.abc import Sequence as Items
from pathlib import Path

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from day0.errors import Day0Error
from day0.runtime.batch import Grammar
from day0.runtime.engine.sequence import Sequence
from day0.runtime.tokenizer import Tokenizer


class ConstraintBroken(Day0Error):
    """A grammar became too large for its parser in the middle of an answer."""

    def __init__(self) -> None:
        super().__init__("the schema became too complex in the middle of this answer", hint="make the schema simpler")


class Constraints:
    """The matchers of the requests that have a grammar. Every rank has its own and comes to the same masks."""

    def __init__(self) -> None:
        self._vocabularies: dict[str, LLTokenizer] = {}
        self._matchers: dict[str, tuple[LLMatcher, int]] = {}  # with the number of tokens it has seen

    def apply(self, logits: torch.Tensor, sequences: Items[Sequence]) -> tuple[torch.Tensor, list[int]]:
        """Logits [sequences, vocab] with minus infinity where a grammar forbids the token, and the rows whose grammar
        broke, which are left alone."""
        wanted = [row for row, sequence in enumerate(sequences) if sequence.request.params.grammar is not None]
        if not wanted:
            return logits, []
        masks: list[np.ndarray] = []
        held: list[int] = []
        for row in wanted:
            mask = self._mask(sequences[row], logits.shape[-1])
            if mask is not None:
                masks.append(mask)
                held.append(row)
        if held:
            rows = torch.tensor(held, device=logits.device)
            allowed = torch.from_numpy(np.stack(masks)).to(logits.device)
            logits = logits.index_copy(0, rows, logits[rows].masked_fill(~allowed, float("-inf")))
        return logits, [row for row in wanted if row not in held]

    def forget(self, request_id: str) -> None:
        self._matchers.pop(request_id, None)

    def _mask(self, sequence: Sequence, vocab: int) -> np.ndarray | None:
        """The tokens that may come next, [vocab] bool; None where the matcher cannot go on."""
        grammar = sequence.request.params.grammar
        assert grammar is not None
        matcher, seen = self._matchers.get(sequence.id) or (LLMatcher(self._vocabulary(grammar), grammar.text), 0)
        generated = sequence.token_ids[sequence.num_prompt :]
        matcher.consume_tokens(generated[seen:])
        self._matchers[sequence.id] = matcher, len(generated)
        words = allocate_token_bitmask(1, self._vocabulary(grammar).vocab_size)
        fill_next_token_bitmask(matcher, words)
        if matcher.is_error():
            return None
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")[: min(vocab, words.size * 32)]
        allowed = np.zeros(vocab, dtype=bool)  # rows past the tokenizer's ids are padding and never drawn
        allowed[: bits.size] = bits
        return allowed if allowed.any() else None

    def _vocabulary(self, grammar: Grammar) -> LLTokenizer:
        if grammar.tokenizer_folder not in self._vocabularies:
            tokenizer = Tokenizer.from_folder(Path(grammar.tokenizer_folder))
            vocabulary = LLTokenizer(tokenizer.definition(), eos_token=list(tokenizer.eos_token_ids))
            self._vocabularies[grammar.tokenizer_folder] = vocabulary
        return self._vocabularies[grammar.tokenizer_folder]
