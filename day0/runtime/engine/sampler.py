"""Logits -> the next token of each sequence, the same alone or in any batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from day0.runtime.batch import SamplingParams, TokenLogprob
from day0.runtime.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Sampled:
    """A chosen token, with log probabilities where they were asked for."""

    token_id: int
    logprob: float | None
    top_logprobs: tuple[TokenLogprob, ...]


class Sampler:
    """Greedy or random choice. Every random request draws from a generator of its own, so neighbours change nothing."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._unseeded = 0
        self._generators: dict[str, torch.Generator] = {}

    def sample(self, logits: torch.Tensor, sequences: list[Sequence]) -> list[Sampled]:
        """One token per row of logits [sequences, vocab] float32."""
        greedy = logits.argmax(dim=-1).tolist()
        return [self._one(logits[row], sequence, greedy[row]) for row, sequence in enumerate(sequences)]

    def forget(self, request_id: str) -> None:
        """Drop what is kept for a finished request."""
        self._generators.pop(request_id, None)

    def _one(self, logits: torch.Tensor, sequence: Sequence, greedy: int) -> Sampled:
        params = sequence.request.params
        adjusted = _penalised(logits, sequence, params)
        if params.temperature == 0.0:
            token = greedy if adjusted is logits else int(adjusted.argmax())
        else:
            probabilities = torch.softmax(_cut(_tempered(adjusted, params.temperature), params), dim=-1)
            draw = torch.multinomial(probabilities.cpu(), 1, generator=self._generator(sequence))
            token = int(draw)
        if params.logprobs is None:
            return Sampled(token, None, ())
        logprobs = torch.log_softmax(logits, dim=-1)
        values, ids = logprobs.topk(min(params.logprobs, len(logprobs)))
        top = tuple(TokenLogprob(int(i), float(v)) for i, v in zip(ids, values, strict=True))
        return Sampled(token, float(logprobs[token]), top)

    def _generator(self, sequence: Sequence) -> torch.Generator:
        generator = self._generators.get(sequence.id)
        if generator is None:
            seed = sequence.request.params.seed
            if seed is None:
                self._unseeded += 1
                seed = self._seed + self._unseeded
            # A preempted request keeps its generator: the tokens it already drew are not drawn again.
            generator = torch.Generator().manual_seed(seed & 0xFFFF_FFFF_FFFF_FFFF)
            self._generators[sequence.id] = generator
        return generator


def _penalised(logits: torch.Tensor, sequence: Sequence, params: SamplingParams) -> torch.Tensor:
    """Presence and frequency penalties over generated tokens (OpenAI), repetition over all (Keskar et al. 2019)."""
    if not params.presence_penalty and not params.frequency_penalty and params.repetition_penalty == 1.0:
        return logits
    vocab = logits.shape[-1]
    generated = torch.tensor(sequence.token_ids[sequence.num_prompt :], dtype=torch.int64, device=logits.device)
    counts = generated.bincount(minlength=vocab)
    adjusted = logits - params.frequency_penalty * counts - params.presence_penalty * (counts > 0)
    if params.repetition_penalty != 1.0:
        seen = torch.tensor(sequence.token_ids, dtype=torch.int64, device=logits.device).bincount(minlength=vocab) > 0
        factor = params.repetition_penalty
        adjusted = torch.where(seen, torch.where(adjusted > 0, adjusted / factor, adjusted * factor), adjusted)
        limits = torch.finfo(adjusted.dtype)
        adjusted = adjusted.clamp(limits.min, limits.max)  # a tiny factor makes infinities, and their difference NaN
    return adjusted


def _tempered(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Logits over the temperature, the best at 0, so that no temperature is too small: they overflow downwards only."""
    return (logits - logits.max()) / max(temperature, torch.finfo(logits.dtype).tiny)


def _cut(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Keep the top_k, the smallest set with probability top_p, and those of at least min_p times the best."""
    if 0 < params.top_k < logits.shape[-1]:
        logits = logits.masked_fill(logits < logits.topk(params.top_k).values[-1], float("-inf"))
    if params.top_p < 1.0:
        ordered, order = logits.sort(descending=True, stable=True)
        mass = torch.softmax(ordered, dim=-1).cumsum(dim=-1)
        # A token stays while the mass before it is short of top_p; the best one always does.
        dropped = mass - torch.softmax(ordered, dim=-1) >= params.top_p
        dropped[0] = False  # also where top_p is too small for a float32
        logits = logits.masked_fill(torch.zeros_like(dropped).scatter(0, order, dropped), float("-inf"))
    if params.min_p > 0.0:
        probabilities = torch.softmax(logits, dim=-1)
        logits = logits.masked_fill(probabilities < params.min_p * probabilities.max(), float("-inf"))
    return logits
