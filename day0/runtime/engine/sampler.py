"""Logits -> the next token of each sequence, the same alone or in any batch: rows are worked on side by side."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass
from itertools import chain

import torch

from day0.runtime.batch import NO_TOKEN, SamplingParams, TokenLogprob
from day0.runtime.engine.constraint import Constraints
from day0.runtime.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Sampled:
    """A chosen token, with log probabilities where they were asked for; NO_TOKEN where a grammar left none."""

    token_id: int
    logprob: float | None
    top_logprobs: tuple[TokenLogprob, ...]


class Sampler:
    """Greedy or random choice. Every random request draws from a generator of its own, so neighbours change nothing."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._unseeded = 0
        self._generators: dict[str, torch.Generator] = {}
        self._constraints = Constraints()

    def sample(self, logits: torch.Tensor, sequences: list[Sequence]) -> list[Sampled]:
        """One token per row of logits [sequences, vocab] float32."""
        params = [sequence.request.params for sequence in sequences]
        adjusted, broken = self._constraints.apply(_biased(_penalised(logits, sequences), params), sequences)
        chosen = adjusted.argmax(dim=-1)
        drawn = [row for row, one in enumerate(params) if one.temperature > 0.0]
        if drawn:
            rows = torch.tensor(drawn, device=logits.device)
            chosen[rows] = self._draw(adjusted[rows], [sequences[row] for row in drawn])
        logprobs = _logprobs(logits, chosen, params)
        tokens = [NO_TOKEN if row in broken else token for row, token in enumerate(chosen.tolist())]
        return [Sampled(token, *logprobs.get(row, (None, ()))) for row, token in enumerate(tokens)]

    def forget(self, request_id: str) -> None:
        """Drop what is kept for a finished request."""
        self._generators.pop(request_id, None)
        self._constraints.forget(request_id)

    def _draw(self, logits: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor:
        """One random token per row, [sequences] int64."""
        params = [sequence.request.params for sequence in sequences]
        # Torch draws from one generator at a time; all else is done for all rows at once.
        uniform = torch.cat([torch.rand(1, generator=self._generator(sequence)) for sequence in sequences])
        uniform = uniform.to(logits.device)
        scaled = _tempered(logits, _column(logits, [one.temperature for one in params]))
        chosen = torch.empty(len(sequences), dtype=torch.int64, device=logits.device)
        # A row is cut or not by its own parameters alone, so that its neighbours do not change how it is rounded.
        whole = [row for row, one in enumerate(params) if not _cuts(one, logits.shape[-1])]
        cut = [row for row, one in enumerate(params) if _cuts(one, logits.shape[-1])]
        if whole:
            rows = torch.tensor(whole, device=logits.device)
            chosen[rows] = _inverse(torch.softmax(scaled[rows], dim=-1), uniform[rows])
        if cut:
            rows = torch.tensor(cut, device=logits.device)
            ordered, order = scaled[rows].sort(dim=-1, descending=True, stable=True)
            kept = _kept(ordered, [params[row] for row in cut])
            probabilities = torch.softmax(ordered.masked_fill(~kept, float("-inf")), dim=-1)
            places = _inverse(probabilities, uniform[rows])
            chosen[rows] = order.gather(1, places[:, None])[:, 0]
        return chosen

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


def _column(like: torch.Tensor, values: Items[float]) -> torch.Tensor:
    """One value per row, [rows, 1], no number too small or large for the dtype."""
    limits = torch.finfo(like.dtype)
    return torch.tensor(values, dtype=torch.float64).clamp(limits.tiny, limits.max).to(like)[:, None]


def _penalised(logits: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor:
    """Presence and frequency penalties over generated tokens (OpenAI), repetition over all (Keskar et al. 2019)."""
    wanted = [row for row, sequence in enumerate(sequences) if _penalises(sequence.request.params)]
    if not wanted:
        return logits
    rows = torch.tensor(wanted, device=logits.device)
    own = [sequences[row] for row in wanted]
    params = [sequence.request.params for sequence in own]
    presence, frequency = (
        torch.tensor(values, device=logits.device, dtype=logits.dtype)[:, None]
        for values in ([one.presence_penalty for one in params], [one.frequency_penalty for one in params])
    )
    factor = _column(logits, [one.repetition_penalty for one in params])
    generated = _counts(logits, [sequence.token_ids[sequence.num_prompt :] for sequence in own])
    seen = _counts(logits, [sequence.token_ids for sequence in own]) > 0
    adjusted = logits[rows] - frequency * generated - presence * (generated > 0)
    repeated = torch.where(adjusted > 0, adjusted / factor, adjusted * factor)
    adjusted = torch.where(seen & (factor != 1.0), repeated, adjusted)
    limits = torch.finfo(adjusted.dtype)
    # A tiny factor makes infinities, and their difference NaN.
    return logits.index_copy(0, rows, adjusted.clamp(limits.min, limits.max))


def _biased(logits: torch.Tensor, params: list[SamplingParams]) -> torch.Tensor:
    """Each row with its own request's `logit_bias` added (OpenAI)."""
    entries = [(row, *entry) for row, one in enumerate(params) for entry in one.logit_bias]
    if not entries:
        return logits
    rows, tokens, values = (list(part) for part in zip(*entries, strict=True))
    places = torch.tensor(rows, device=logits.device), torch.tensor(tokens, device=logits.device)
    return logits.index_put(places, torch.tensor(values, device=logits.device, dtype=logits.dtype), accumulate=True)


def _penalises(params: SamplingParams) -> bool:
    return bool(params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0)


def _counts(logits: torch.Tensor, token_ids: list[list[int]]) -> torch.Tensor:
    """How often each token is in each list, [lists, vocab]."""
    lengths = torch.tensor([len(ids) for ids in token_ids], device=logits.device)
    vocab = logits.shape[-1]
    tokens = torch.tensor(list(chain.from_iterable(token_ids)), dtype=torch.int64, device=logits.device)
    places = torch.arange(len(token_ids), device=logits.device).repeat_interleave(lengths) * vocab + tokens
    return places.bincount(minlength=len(token_ids) * vocab).view(-1, vocab)


def _tempered(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Logits over the temperature, the best at 0, so that no temperature is too small: they overflow downwards only."""
    return (logits - logits.amax(dim=-1, keepdim=True)) / temperature


def _cuts(params: SamplingParams, vocab: int) -> bool:
    return 0 < params.top_k < vocab or params.top_p < 1.0 or params.min_p > 0.0


def _kept(ordered: torch.Tensor, params: list[SamplingParams]) -> torch.Tensor:
    """Of rows in falling order, which tokens stay: the top_k, of these the smallest set with probability top_p, and of
    these the ones with at least min_p times the best's probability; [rows, vocab] bool."""
    vocab = ordered.shape[-1]
    counts = torch.tensor([one.top_k if 0 < one.top_k < vocab else vocab for one in params], device=ordered.device)
    kept = ordered >= ordered.gather(1, counts[:, None] - 1)
    probabilities = torch.softmax(ordered.masked_fill(~kept, float("-inf")), dim=-1)
    top_p, min_p = (
        torch.tensor(values, device=ordered.device, dtype=ordered.dtype)[:, None]
        for values in ([one.top_p for one in params], [one.min_p for one in params])
    )
    # A token stays while the mass before it is short of top_p; rounding does not cut what is not to be cut.
    before = probabilities.cumsum(dim=-1) - probabilities
    kept &= (before < top_p) | (top_p >= 1.0)
    kept &= probabilities >= min_p * probabilities[:, :1]
    kept[:, 0] = True  # also where top_p is too small for a float32
    return kept


def _inverse(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The tokens [rows] at which the cumulated probabilities pass `uniform`, of those that have any."""
    mass = probabilities.cumsum(dim=-1)
    places = torch.searchsorted(mass, uniform[:, None] * mass[:, -1:], right=True)[:, 0]
    last = probabilities.shape[-1] - 1 - (probabilities > 0).flip(-1).int().argmax(dim=-1)
    return places.minimum(last)


def _logprobs(
    logits: torch.Tensor, chosen: torch.Tensor, params: list[SamplingParams]
) -> dict[int, tuple[float, tuple[TokenLogprob, ...]]]:
    """By row that asked for it: the chosen token's log probability, and the best tokens'."""
    found: dict[int, tuple[float, tuple[TokenLogprob, ...]]] = {}
    # By count, so that equal values are put in an order that no other row has a say in.
    for count in sorted({one.logprobs for one in params if one.logprobs is not None}):
        asked = [row for row, one in enumerate(params) if one.logprobs == count]
        rows = torch.tensor(asked, device=logits.device)
        logprobs = torch.log_softmax(logits[rows], dim=-1)
        own = logprobs.gather(1, chosen[rows][:, None])[:, 0].tolist()
        values, ids = (part.tolist() for part in logprobs.topk(min(count, logits.shape[-1])))
        for place, row in enumerate(asked):
            top = tuple(TokenLogprob(i, v) for i, v in zip(ids[place], values[place], strict=True))
            found[row] = own[place], top
    return found
