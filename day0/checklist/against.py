"""Two targets on the same prompts: the first token that differs, log probabilities, divergence, answers that are right.

Numbers and texts are judged apart: two implementations of one model differ by rounding, which moves log probabilities
a little and turns near ties; what is more than that shows here, and what it costs shows in the right answers lost.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from day0.checklist.acceptance import Comparison, Ruling, Terms, compare, count_pairs, wilson_interval
from day0.checklist.target import Answer

Numerics = Literal["equal", "deviates", "not-enough-data"]
NEAR_TIE = 0.25
"""Nats between two tokens that rounding may turn: bfloat16 moves a logit of 20 by up to 2^-4, and two such by more."""
MAX_DIVERGENCE = 0.01
"""Nats: the most that the mean divergence may be. Rounding to bfloat16 costs some thousandths."""
MAX_RELATIVE = 0.05
"""The most that shared log probabilities may differ, root mean square over root mean square."""
MIN_PLACES = 100
"""Fewer places with log probabilities of both targets say nothing."""
_LEAST = 1e-12


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt with an answer that can be marked: right where the text begins with it, blanks aside."""

    prompt: str
    answer: str

    def is_answered_by(self, text: str) -> bool:
        word = text.strip()
        return word.startswith(self.answer) and not word[len(self.answer) : len(self.answer) + 1].isalnum()


CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Japan": "Tokyo", "Russia": "Moscow",
    "China": "Beijing", "Egypt": "Cairo", "Greece": "Athens", "Portugal": "Lisbon", "Austria": "Vienna",
    "Poland": "Warsaw", "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki", "Cuba": "Havana",
    "Peru": "Lima", "Chile": "Santiago", "Ireland": "Dublin", "Hungary": "Budapest",
}  # fmt: skip


def questions(count: int, seed: int) -> list[Question]:
    """So many questions: capitals first, then counting, small sums and repeating, drawn with a seed."""
    found = [Question(f"Q: What is the capital of {land}?\nA:", city) for land, city in CAPITALS.items()]
    source = random.Random(seed)
    sums = [(a, b) for a in range(1, 60) for b in range(1, 60)]
    source.shuffle(sums)
    for index, (a, b) in enumerate(sums):
        if index % 3 == 0:
            found.append(Question(f"Count up: {a}, {a + b}, {a + 2 * b},", str(a + 3 * b)))
        elif index % 3 == 1:
            found.append(Question(f"2 + 3 = 5\n4 + 7 = 11\n{a} + {b} =", str(a + b)))
        else:
            found.append(Question(f"Repeat: 17 -> 17, 93 -> 93, {a}{b} ->", f"{a}{b}"))
    kept = list(dict.fromkeys(found))
    return kept[:count]


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two greedy answers part: the token's place, both choices, and how near a tie it was, in nats.

    `margin` is the larger of the two targets' own preferences; None where a target does not tell the other's choice.
    """

    question: int
    place: int
    base: str
    candidate: str
    margin: float | None

    @property
    def is_near_tie(self) -> bool:
        return self.margin is not None and self.margin <= NEAR_TIE


@dataclass(frozen=True, slots=True)
class Against:
    """What was found; `candidate` is held against `base`. Log probabilities are in nats.

    `relative_error` is of the log probabilities that both tell of the same tokens after the same text; `divergence` a
    lower bound of KL(base || candidate), mean over places, `worst_divergence` its largest.
    """

    candidate: str
    base: str
    model: str
    asked: int
    unanswered: int
    same_text: int
    agreement: tuple[float, float]
    partings: tuple[Parting, ...]
    places: int
    worst_difference: float | None
    relative_error: float | None
    divergence: float | None
    worst_divergence: float | None
    numerics: Numerics
    numerics_reason: str
    acceptance: Comparison
    schema: str = field(default="day0.against/1", kw_only=True)

    @property
    def verdict(self) -> Ruling:
        """`HOLDS` only where numbers and answers both do."""
        if self.numerics == "deviates" or self.acceptance.ruling is Ruling.WORSE:
            return Ruling.WORSE
        if self.numerics == "not-enough-data" or self.acceptance.ruling is Ruling.NOT_ENOUGH or self.unanswered:
            return Ruling.NOT_ENOUGH
        return Ruling.HOLDS


def against(
    candidate: tuple[str, Sequence[Answer]],
    base: tuple[str, Sequence[Answer]],
    asked: Sequence[Question],
    model: str,
    terms: Terms,
) -> Against:
    """Judge the greedy answers of two targets, each with its name, to the same questions in the same order."""
    pairs = list(zip(base[1], candidate[1], strict=True))
    answered = [(a, b) for a, b in pairs if a.fate == b.fate == "done"]
    same = sum(a.text == b.text for a, b in answered)
    partings, errors, divergences = _numbers(pairs)
    numerics, reason = _judge(partings, errors, divergences)
    marks = [[_is_right(q, a) for q, a in zip(asked, side, strict=True)] for side in (base[1], candidate[1])]
    size = math.sqrt(math.fsum(a * a for a, _ in errors))
    return Against(
        candidate=candidate[0],
        base=base[0],
        model=model,
        asked=len(pairs),
        unanswered=len(pairs) - len(answered),
        same_text=same,
        agreement=wilson_interval(same, len(answered)),
        partings=tuple(partings),
        places=len(divergences),
        worst_difference=max((abs(a - b) for a, b in errors), default=None),
        relative_error=_relative(errors) if size else None,
        divergence=math.fsum(divergences) / len(divergences) if divergences else None,
        worst_divergence=max(divergences, default=None),
        numerics=numerics,
        numerics_reason=reason,
        acceptance=compare(count_pairs(*marks), terms),
    )


def _is_right(question: Question, answer: Answer) -> bool:
    return answer.fate == "done" and question.is_answered_by(answer.text)


def _numbers(pairs: Sequence[tuple[Answer, Answer]]) -> tuple[list[Parting], list[tuple[float, float]], list[float]]:
    """Partings, log probabilities of the same token by both, and a divergence for each place after the same text."""
    partings: list[Parting] = []
    errors: list[tuple[float, float]] = []
    divergences: list[float] = []
    for number, (base, candidate) in enumerate(pairs):
        for place, (ours, theirs) in enumerate(zip(base.top_logprobs, candidate.top_logprobs, strict=False)):
            if not ours or not theirs:
                break
            errors += [(ours[token], theirs[token]) for token in ours.keys() & theirs.keys()]
            divergences.append(divergence_bound(ours, theirs))
            first, second = max(ours, key=ours.__getitem__), max(theirs, key=theirs.__getitem__)
            if first != second:
                partings.append(Parting(number, place, first, second, _margin(ours, theirs, first, second)))
                break
    return partings, errors, divergences


def _margin(ours: Mapping[str, float], theirs: Mapping[str, float], first: str, second: str) -> float | None:
    if second not in ours or first not in theirs:
        return None
    return max(ours[first] - ours[second], theirs[second] - theirs[first])


def divergence_bound(base: Mapping[str, float], candidate: Mapping[str, float]) -> float:
    """A lower bound of KL(base || candidate) in nats, from the log probabilities that both tell.

    Tokens that not both tell are taken together as one outcome; taking outcomes together never raises a divergence
    (Kullback and Leibler 1951).
    """
    shared = base.keys() & candidate.keys()
    ours = [math.exp(base[token]) for token in shared]
    theirs = [math.exp(candidate[token]) for token in shared]
    ours.append(max(_LEAST, 1 - math.fsum(ours)))
    theirs.append(max(_LEAST, 1 - math.fsum(theirs)))
    return max(0.0, math.fsum(p * math.log(p / max(q, _LEAST)) for p, q in zip(ours, theirs, strict=True) if p > 0))


def _relative(errors: Sequence[tuple[float, float]]) -> float:
    return math.sqrt(math.fsum((a - b) ** 2 for a, b in errors) / math.fsum(a * a for a, _ in errors))


def _judge(
    partings: Sequence[Parting], errors: Sequence[tuple[float, float]], divergences: Sequence[float]
) -> tuple[Numerics, str]:
    if not all(math.isfinite(value) for pair in errors for value in pair):
        return "deviates", "a log probability is not finite"
    clear = [parting for parting in partings if not parting.is_near_tie]
    if clear:
        one = clear[0]
        told = f"{one.margin:.2f} nats apart" if one.margin is not None else "and not among the other's likeliest"
        what = f"question {one.question} parts at token {one.place}: {one.base!r} and {one.candidate!r}, {told}"
        return "deviates", f"{len(clear)} of {len(partings)} partings are no near ties; {what}"
    if len(divergences) < MIN_PLACES or not any(a for a, _ in errors):
        return "not-enough-data", f"{len(divergences)} places with log probabilities of both, {MIN_PLACES} are needed"
    mean, relative = math.fsum(divergences) / len(divergences), _relative(errors)
    if mean > MAX_DIVERGENCE or relative > MAX_RELATIVE:
        said = f"mean divergence {mean:.2g} nats (at most {MAX_DIVERGENCE}), relative error {relative:.2g}"
        return "deviates", f"{said} (at most {MAX_RELATIVE})"
    return "equal", f"what differs is within rounding: divergence {mean:.2g} nats, relative error {relative:.2g}"
