"""Is a candidate as good as what it replaces? Two targets on the same prompts, with an interval, an exact test and
the power of both stated beforehand. Pure arithmetic on counts: no torch, no target."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from day0.errors import InputError

BISECTIONS = 60  # the interval's ends are found to 2^-60, below what a float of this size shows
NEGLIGIBLE = 1e-12  # outcomes rarer than this add nothing to a power


class Ruling(StrEnum):
    """What the paired answers allow to be said. Only `HOLDS` accepts."""

    HOLDS = "holds"
    WORSE = "worse"
    NOT_ENOUGH = "not-enough-data"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Prompts by who solved them: the table of McNemar."""

    both: int
    only_base: int
    only_candidate: int
    neither: int

    def __post_init__(self) -> None:
        if min(self.both, self.only_base, self.only_candidate, self.neither) < 0:
            raise InputError("a count of paired prompts is negative", hint="count each prompt once")

    @property
    def num_prompts(self) -> int:
        return self.both + self.only_base + self.only_candidate + self.neither

    @property
    def base_solved(self) -> int:
        return self.both + self.only_base

    @property
    def candidate_solved(self) -> int:
        return self.both + self.only_candidate


@dataclass(frozen=True, slots=True)
class Terms:
    """What is asked, agreed on before the answers are seen.

    `margin` is the largest drop, as a share of the prompts, that is still accepted; `alpha` the chance of a wrong
    "worse" on equal targets, and of a wrong "holds" at a drop of exactly `margin`; `churn` the share of prompts that
    equal targets are expected to gain, and to lose, by rounding alone. `churn` enters the power only, never the ruling.
    """

    margin: float = 0.05
    alpha: float = 0.05
    churn: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.margin < 1 or not 0 < self.alpha < 0.5 or not 0 <= self.churn < (1 - self.margin) / 2:
            raise InputError(
                f"a margin of {self.margin}, alpha {self.alpha} and churn {self.churn} make no test",
                hint="0 < margin < 1, 0 < alpha < 0.5 and 0 <= churn < (1 - margin) / 2",
            )


@dataclass(frozen=True, slots=True)
class Power:
    """What a number of prompts can show, before any is asked."""

    num_prompts: int
    finds_drop: float  # the chance of "worse" when the candidate is `margin` worse
    holds_when_equal: float  # the chance of "holds" when both are equally good
    accepts_drop: float  # the chance of "holds" when the candidate is `margin` worse: the error that hurts

    def sentence(self, terms: Terms) -> str:
        return (
            f"With {self.num_prompts} prompts a drop of {terms.margin:.1%} is found with probability "
            f"{self.finds_drop:.2f} and accepted with {self.accepts_drop:.2f}; "
            f"an equal candidate is accepted with {self.holds_when_equal:.2f}."
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The ruling with all that it follows from. Differences are candidate minus base, as shares of the prompts."""

    ruling: Ruling
    reason: str
    pairs: Pairs
    difference: float
    low: float  # two-sided interval of confidence 1 - 2 alpha, so that each end is one-sided 1 - alpha
    high: float
    p_worse: float  # exact one-sided McNemar
    power: Power


def count_pairs(base: Sequence[bool], candidate: Sequence[bool]) -> Pairs:
    """The table of two lists of outcomes, one entry a prompt, in the same order."""
    if len(base) != len(candidate):
        raise InputError(
            f"{len(base)} outcomes against {len(candidate)} cannot be paired",
            hint="ask both targets the same prompts, and count a missing answer as not solved",
        )
    outcomes = list(zip(base, candidate, strict=True))
    return Pairs(
        both=outcomes.count((True, True)),
        only_base=outcomes.count((True, False)),
        only_candidate=outcomes.count((False, True)),
        neither=outcomes.count((False, False)),
    )


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Score interval of one share (Wilson 1927). No trials leave everything open: (0, 1)."""
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    reach = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    low = 0.0 if successes == 0 else centre - reach
    return low, 1.0 if successes == trials else centre + reach


def exact_p_worse(only_base: int, only_candidate: int) -> float:
    """The chance that equal targets split their differing prompts at least this badly (McNemar, exact, one-sided)."""
    differing = only_base + only_candidate
    tail = sum(math.comb(differing, lost) for lost in range(only_base, differing + 1))
    return tail / 2**differing


def score(pairs: Pairs, difference: float) -> float:
    """Standard score of the observed difference under the hypothesis `difference` (Tango 1998).

    The nuisance share (prompts only the base solves) takes its most likely value under the hypothesis, which is what
    keeps the interval honest when few or no prompts differ: none of n differing gives +-z^2/(n + z^2), not +-0.
    """
    total = pairs.num_prompts
    if total == 0:
        return 0.0
    gained, lost = pairs.only_candidate, pairs.only_base
    linear = -gained - lost + (2 * total - gained + lost) * difference
    constant = -lost * difference * (1 - difference)
    only_base = (math.sqrt(max(0.0, linear * linear - 8 * total * constant)) - linear) / (4 * total)
    variance = total * (2 * only_base + difference * (1 - difference))
    surplus = gained - lost - total * difference
    if variance <= 0:
        return math.copysign(math.inf, surplus) if surplus else 0.0
    return surplus / math.sqrt(variance)


def difference_interval(pairs: Pairs, confidence: float) -> tuple[float, float]:
    """Two-sided score interval of candidate minus base (Tango 1998). No prompts leave everything open: (-1, 1)."""
    if pairs.num_prompts == 0:
        return -1.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    observed = (pairs.only_candidate - pairs.only_base) / pairs.num_prompts
    return _where_score_reaches(pairs, z, -1.0, observed), _where_score_reaches(pairs, -z, observed, 1.0)


def _where_score_reaches(pairs: Pairs, target: float, low: float, high: float) -> float:
    """The hypothesis between `low` and `high` whose score is `target`; the score falls as the hypothesis rises."""
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if score(pairs, middle) > target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def compare(pairs: Pairs, terms: Terms) -> Comparison:
    """Rule on a candidate. `HOLDS` needs the interval above -margin, `WORSE` a significant drop that is not within it.

    A base that solves fewer prompts than the margin amounts to could not lose that much, so nothing is accepted on it:
    0 against 0 is `NOT_ENOUGH`, however many prompts there are.
    """
    low, high = difference_interval(pairs, 1 - 2 * terms.alpha)
    p_worse = exact_p_worse(pairs.only_base, pairs.only_candidate)
    ruling, reason = _rule(pairs, terms, low, p_worse)
    observed = (pairs.only_candidate - pairs.only_base) / pairs.num_prompts if pairs.num_prompts else 0.0
    return Comparison(ruling, reason, pairs, observed, low, high, p_worse, power(pairs.num_prompts, terms))


def _rule(pairs: Pairs, terms: Terms, low: float, p_worse: float) -> tuple[Ruling, str]:
    if pairs.num_prompts == 0:
        return Ruling.NOT_ENOUGH, "no prompts were asked"
    if can_lose_margin(pairs, terms) and rules_out_margin(pairs, terms):
        return Ruling.HOLDS, f"a drop of {terms.margin:.1%} or more is ruled out (at most {max(0.0, -low):.1%})"
    if p_worse <= terms.alpha:
        lost, gained = pairs.only_base, pairs.only_candidate
        return Ruling.WORSE, f"{lost} prompts were lost and {gained} gained (p = {p_worse:.2g} for equal targets)"
    if not can_lose_margin(pairs, terms):
        solved = f"the base solves {pairs.base_solved} of {pairs.num_prompts}"
        return Ruling.NOT_ENOUGH, f"{solved}: too few for a drop of {terms.margin:.1%} to show"
    return Ruling.NOT_ENOUGH, f"a drop of up to {-low:.1%} is not ruled out, nor is any drop shown"


def can_lose_margin(pairs: Pairs, terms: Terms) -> bool:
    """Whether the base solves more prompts than `margin` amounts to."""
    return pairs.base_solved > terms.margin * pairs.num_prompts


def rules_out_margin(pairs: Pairs, terms: Terms) -> bool:
    """Whether the interval of `compare` ends above -margin, asked of the score itself."""
    return score(pairs, -terms.margin) > NormalDist().inv_cdf(1 - terms.alpha)


def power(num_prompts: int, terms: Terms) -> Power:
    """Exact chances of each ruling over all tables of `num_prompts`, for a base that solves enough of them."""
    worse_at_margin = holds_at_margin = holds_when_equal = 0.0
    for lost in range(num_prompts + 1):
        for gained in range(num_prompts - lost + 1):
            at_margin = _chance(num_prompts, lost, gained, terms.churn + terms.margin, terms.churn)
            when_equal = _chance(num_prompts, lost, gained, terms.churn, terms.churn)
            if max(at_margin, when_equal) < NEGLIGIBLE:
                continue
            holds = rules_out_margin(Pairs(num_prompts - lost - gained, lost, gained, 0), terms)
            worse = not holds and exact_p_worse(lost, gained) <= terms.alpha
            worse_at_margin += at_margin * worse
            holds_at_margin += at_margin * holds
            holds_when_equal += when_equal * holds
    return Power(num_prompts, worse_at_margin, holds_when_equal, holds_at_margin)


def _chance(total: int, lost: int, gained: int, lose: float, gain: float) -> float:
    """Trinomial chance of `lost` and `gained` among `total` prompts."""
    same = total - lost - gained
    logarithm = math.lgamma(total + 1) - math.lgamma(lost + 1) - math.lgamma(gained + 1) - math.lgamma(same + 1)
    for count, share in ((lost, lose), (gained, gain), (same, 1 - lose - gain)):
        if count and share <= 0:
            return 0.0
        logarithm += count * math.log(share) if count else 0.0
    return math.exp(logarithm)


def prompts_needed(terms: Terms, chance: float = 0.9, at_most: int = 1000) -> int | None:
    """The fewest prompts (in steps of ten) with which an equal candidate is accepted and a drop of the margin is not
    passed off as one, each with probability `chance` at least; None where `at_most` do not suffice."""
    for num_prompts in range(10, at_most + 1, 10):
        stated = power(num_prompts, terms)
        if stated.holds_when_equal >= chance and stated.accepts_drop <= 1 - chance:
            return num_prompts
    return None
