from __future__ import annotations

import math

import pytest
import torch

from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.sampler import Sampler, _kept, _penalised
from day0.runtime.engine.sequence import Sequence

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])
DRAWS = 4000


def sequence(name: str = "a", prompt: tuple[int, ...] = (0,), generated: tuple[int, ...] = (), **params) -> Sequence:
    made = Sequence.of(Request(name, prompt, SamplingParams(**params)), 16)
    made.token_ids += generated
    return made


def shares(logits: torch.Tensor, **params) -> list[float]:
    """How often each token is drawn."""
    sampler, rows = Sampler(0), 200
    temperature = params.pop("temperature", 1.0)
    batch = [sequence(str(row), temperature=temperature, seed=row, **params) for row in range(rows)]
    counts = [0] * len(logits)
    for _ in range(DRAWS // rows):
        for sampled in sampler.sample(logits.repeat(rows, 1), batch):
            counts[sampled.token_id] += 1
    return [count / DRAWS for count in counts]


def assert_drawn_from(found: list[float], wanted: list[float]) -> None:
    """Pearson's chi-square, far in its tail; what has no probability must never come."""
    statistic = 0.0
    for share, probability in zip(found, wanted, strict=True):
        if probability == 0.0:
            assert share == 0.0
        else:
            statistic += DRAWS * (share - probability) ** 2 / probability
    assert statistic < 30, f"chi-square {statistic:.1f} for {found} against {wanted}"


def softmax(values: list[float]) -> list[float]:
    total = sum(math.exp(v) for v in values)
    return [math.exp(v) / total for v in values]


def kept(probabilities: list[float], indices: set[int]) -> list[float]:
    total = sum(p for i, p in enumerate(probabilities) if i in indices)
    return [p / total if i in indices else 0.0 for i, p in enumerate(probabilities)]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_temperature(temperature: float) -> None:
    wanted = softmax([v / temperature for v in LOGITS.tolist()])
    assert_drawn_from(shares(LOGITS, temperature=temperature), wanted)


def test_the_distribution_check_can_fail() -> None:
    with pytest.raises(AssertionError, match="chi-square"):
        assert_drawn_from(shares(LOGITS, temperature=1.0), softmax([v / 1.2 for v in LOGITS.tolist()]))


@pytest.mark.parametrize("top_k", [1, 3, 6, 100])
def test_top_k(top_k: int) -> None:
    assert_drawn_from(shares(LOGITS, top_k=top_k), kept(softmax(LOGITS.tolist()), set(range(top_k))))


# Cumulative probabilities of LOGITS: 0.561, 0.767, 0.892, 0.968, 0.996, 1; the smallest set that reaches top_p stays.
@pytest.mark.parametrize(
    ("top_p", "count"), [(1e-300, 1), (1e-9, 1), (0.5, 1), (0.57, 2), (0.76, 2), (0.8, 3), (0.95, 4), (1.0, 6)]
)
def test_top_p(top_p: float, count: int) -> None:
    probabilities = softmax(LOGITS.tolist())
    assert count == 1 or sum(probabilities[: count - 1]) < top_p <= sum(probabilities[:count]) + 1e-9
    assert_drawn_from(shares(LOGITS, top_p=top_p), kept(probabilities, set(range(count))))


@pytest.mark.parametrize(("min_p", "count"), [(0.0, 6), (0.1, 4), (0.3, 2), (0.5, 1), (1.0, 1)])
def test_min_p(min_p: float, count: int) -> None:
    # Ratios to the best: 1, 0.37, 0.22, 0.135, 0.05, 0.007.
    probabilities = softmax(LOGITS.tolist())
    assert_drawn_from(shares(LOGITS, min_p=min_p), kept(probabilities, set(range(count))))


def test_cuts_follow_one_another() -> None:
    # top_k leaves 4, of which top_p 0.9 keeps 3 (0.58, 0.79, 0.92), of which min_p 0.3 keeps 2.
    params = [SamplingParams(top_k=4, top_p=0.9, min_p=0.3), SamplingParams(top_k=4, top_p=0.9), SamplingParams()]
    assert _kept(LOGITS.repeat(3, 1), params).sum(dim=-1).tolist() == [2, 3, 6]


def test_equal_values_stand_or_fall_together_at_top_k() -> None:
    assert _kept(torch.tensor([[2.0, 1.0, 1.0, 0.0]]), [SamplingParams(top_k=2)]).tolist() == [
        [True, True, True, False]
    ]


def test_order_of_the_vocabulary_does_not_matter_to_cuts() -> None:
    order = torch.tensor([3, 5, 0, 4, 1, 2])
    found = shares(LOGITS[order], top_p=0.8)
    assert {int(order[place]) for place, share in enumerate(found) if share} == {0, 1, 2}


def test_greedy_takes_the_best_whatever_the_cuts() -> None:
    one = sequence(temperature=0.0, top_k=1, top_p=0.1, min_p=0.9)
    assert Sampler(0).sample(LOGITS[None], [one])[0].token_id == 0


@pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e-4])
def test_the_smallest_temperatures_are_greedy_and_finite(temperature: float) -> None:
    one = sequence(temperature=temperature, seed=1)
    for logits in (LOGITS, LOGITS * 1000, LOGITS - 500):
        assert Sampler(0).sample(logits[None], [one])[0].token_id == 0


@pytest.mark.parametrize("penalty", [5e-324, 1e-300, 1e-40, 10.0])
@pytest.mark.parametrize("scale", [1.0, 1e30, -1e30])
def test_no_repetition_penalty_leaves_the_numbers(penalty: float, scale: float) -> None:
    one = sequence(prompt=(0, 1, 5), temperature=1.0, repetition_penalty=penalty, seed=1)
    assert torch.isfinite(_penalised(LOGITS[None] * scale, [one])).all()
    assert 0 <= Sampler(0).sample(LOGITS[None] * scale, [one])[0].token_id < len(LOGITS)


def test_penalties_by_hand() -> None:
    # Token 0 is in the prompt alone, 1 was generated twice, 3 once.
    one = sequence(prompt=(0,), generated=(1, 3, 1), presence_penalty=0.5, frequency_penalty=0.25)
    wanted = [2.0, 1.0 - 2 * 0.25 - 0.5, 0.5, 0.0 - 0.25 - 0.5, -1.0, -3.0]
    assert _penalised(LOGITS[None], [one])[0].tolist() == pytest.approx(wanted)


def test_repetition_penalty_by_hand() -> None:
    # Over prompt and generated tokens: positive logits are divided, negative ones multiplied.
    one = sequence(prompt=(0, 4), generated=(1,), repetition_penalty=2.0)
    assert _penalised(LOGITS[None], [one])[0].tolist() == [1.0, 0.5, 0.5, 0.0, -2.0, -3.0]


def test_negative_penalties_reward() -> None:
    one = sequence(generated=(5,), presence_penalty=-2.0)
    assert _penalised(LOGITS[None], [one])[0, 5] == -1.0


def test_penalties_change_the_greedy_choice() -> None:
    one = sequence(generated=(0, 0), frequency_penalty=0.6)
    assert Sampler(0).sample(LOGITS[None], [one])[0].token_id == 1


def test_without_penalties_nothing_is_computed() -> None:
    one = sequence(generated=(0, 0))
    logits = LOGITS[None]
    assert _penalised(logits, [one]) is logits


def test_penalties_are_of_their_own_row() -> None:
    rows = [
        sequence(),
        sequence(generated=(0, 0), frequency_penalty=0.5),
        sequence(generated=(1,), presence_penalty=1.0),
    ]
    found = _penalised(LOGITS.repeat(3, 1), rows)
    assert found[0].equal(LOGITS)
    assert found[1].tolist() == pytest.approx([1.0, *LOGITS[1:].tolist()])
    assert found[2].tolist() == pytest.approx([2.0, 0.0, *LOGITS[2:].tolist()])


@pytest.mark.parametrize("wanted", [0, 1, 3, 6, 20])
def test_logprobs_are_those_of_the_model(wanted: int) -> None:
    one = sequence(temperature=1.0, seed=3, top_k=2, generated=(1,), presence_penalty=1.0, logprobs=wanted)
    reference = torch.log_softmax(LOGITS.double(), dim=-1)
    found = Sampler(0).sample(LOGITS[None], [one])[0]
    assert found.logprob == pytest.approx(float(reference[found.token_id]), abs=1e-6)
    assert [top.token_id for top in found.top_logprobs] == list(range(min(wanted, 6)))
    assert [top.logprob for top in found.top_logprobs] == pytest.approx(reference[:wanted].tolist(), abs=1e-6)
    if wanted >= 6:
        assert sum(math.exp(top.logprob) for top in found.top_logprobs) == pytest.approx(1.0)


def test_no_logprobs_unless_asked() -> None:
    found = Sampler(0).sample(LOGITS[None], [sequence()])[0]
    assert (found.logprob, found.top_logprobs) == (None, ())


def draw(sampler: Sampler, sequences: list[Sequence], steps: int) -> dict[str, list[int]]:
    drawn: dict[str, list[int]] = {one.id: [] for one in sequences}
    for _ in range(steps):
        for one, sampled in zip(sequences, sampler.sample(LOGITS.repeat(len(sequences), 1), sequences), strict=True):
            drawn[one.id].append(sampled.token_id)
    return drawn


def test_a_seeded_request_draws_the_same_alone_and_in_any_batch() -> None:
    def seeded() -> Sequence:
        return sequence("mine", temperature=1.5, seed=11)

    alone = draw(Sampler(0), [seeded()], 30)["mine"]
    others = [sequence(f"other{i}", temperature=1.0, seed=i) for i in range(5)]
    assert draw(Sampler(9), [*others[:2], seeded(), *others[2:]], 30)["mine"] == alone
    assert len(set(alone)) > 1
    assert draw(Sampler(0), [sequence("mine", temperature=1.5, seed=12)], 30)["mine"] != alone


KINDS: tuple[dict[str, float], ...] = (
    {},
    {"temperature": 0.7},
    {"temperature": 1.0, "top_k": 9},
    {"temperature": 2.0, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.05, "top_p": 0.95, "top_k": 50},
    {"temperature": 1.0, "repetition_penalty": 1.3, "frequency_penalty": 0.4},
    {"presence_penalty": 1.5},
)


def test_no_row_has_a_say_in_another() -> None:
    """Every kind of request, alone and among the others in any order: the same tokens and log probabilities."""
    generator = torch.Generator().manual_seed(4)
    vocab, steps = 1009, 6
    logits = torch.randn(steps, len(KINDS), vocab, generator=generator) * 3
    logits[:, :, 5] = logits[:, :, 6] = logits.amax(dim=-1)  # equal values, whose order must not depend on others

    def run(rows: list[int]) -> dict[int, list[tuple[int, float | None, object]]]:
        sampler = Sampler(0)
        made = [sequence(str(row), seed=row, logprobs=row % 3, **KINDS[row]) for row in rows]
        found: dict[int, list[tuple[int, float | None, object]]] = {row: [] for row in rows}
        for step in logits:
            for row, one, sampled in zip(rows, made, sampler.sample(step[rows], made), strict=True):
                one.token_ids.append(sampled.token_id)
                found[row].append((sampled.token_id, sampled.logprob, sampled.top_logprobs))
        return found

    together = run(list(range(len(KINDS))))
    assert run(list(range(len(KINDS)))[::-1]) == together
    for row in range(len(KINDS)):
        assert run([row])[row] == together[row]


def test_what_has_no_probability_is_never_drawn(monkeypatch) -> None:
    largest = torch.nextafter(torch.ones(1), torch.zeros(1))
    for logits in (torch.tensor([[0.0, 0.0, float("-inf")]]), torch.tensor([[0.0, 0.0, -200.0]])):
        for uniform, wanted in ((largest, 1), (torch.ones(1), 1), (torch.zeros(1), 0)):
            monkeypatch.setattr(torch, "rand", lambda *shape, uniform=uniform, **rest: uniform)
            assert Sampler(0).sample(logits, [sequence(temperature=1.0)])[0].token_id == wanted
            cut = sequence(temperature=1.0, top_p=0.999)
            assert Sampler(0).sample(logits.flip(-1), [cut])[0].token_id == wanted + 1


def test_unseeded_requests_differ_from_each_other_and_repeat_with_the_engine_seed() -> None:
    def unseeded() -> list[Sequence]:
        return [sequence("a", temperature=1.5), sequence("b", temperature=1.5)]

    first = draw(Sampler(3), unseeded(), 30)
    assert first["a"] != first["b"]
    assert draw(Sampler(3), unseeded(), 30) == first
    assert draw(Sampler(4), unseeded(), 30) != first


@pytest.mark.parametrize("seed", [-1, 0, 2**63, 2**64 - 1, 2**70])
def test_any_integer_is_a_seed(seed: int) -> None:
    assert len(draw(Sampler(0), [sequence(temperature=1.0, seed=seed)], 3)["a"]) == 3


def test_a_forgotten_request_starts_anew() -> None:
    sampler, one = Sampler(0), sequence(temperature=1.5, seed=11)
    first = draw(sampler, [one], 10)
    assert draw(sampler, [one], 10) != first, "a request goes on where it was"
    sampler.forget("a")
    sampler.forget("never there")
    assert draw(sampler, [one], 10) == first
