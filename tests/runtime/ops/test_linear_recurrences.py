"""Recurrences of linear mixers: chunks against one token at a time, and what holds whatever the numbers are.

Both forms against float64 at many sizes: `scripts/record_operator_evidence.py`, whose trials the whitelist records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from closeness import relative_error

from day0.operators import OPERATORS
from day0.profile.mixers_linear import GatedDeltaNet, Mamba2
from day0.runtime.ops.decay import log_decay_between
from day0.runtime.ops.gated_deltanet import gated_delta_chunk, gated_delta_gate, gated_delta_recurrent
from day0.runtime.ops.kda import kda_chunk, kda_recurrent
from day0.runtime.ops.lightning import lightning_chunk, lightning_recurrent
from day0.runtime.ops.selective_scan import selective_scan, selective_state_update
from day0.runtime.ops.ssd import ssd_chunk_scan, ssd_state_update

LENGTH = 150
"""More than two chunks, and no multiple of one."""

Run = Callable[..., tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Case:
    """Both forms, called with (rows [sequences, length, ...], state); `rows` makes them for some sequences."""

    name: str
    step: Run
    chunk: Run
    make: Callable[[int], tuple[list[torch.Tensor], torch.Tensor]]


def _unit(*shape: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape), dim=-1)


def _delta(sequences: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    at = (sequences, LENGTH)
    g, beta = -(10 ** (torch.rand(*at, 4) * 5 - 3)), torch.rand(*at, 4)
    return [_unit(*at, 2, 6), _unit(*at, 2, 6), torch.randn(*at, 4, 10), g, beta], torch.randn(sequences, 4, 6, 10)


def _kda(sequences: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    at = (sequences, LENGTH)
    g, beta = -(10 ** (torch.rand(*at, 4, 6) * 5 - 3)), torch.rand(*at, 4)
    return [_unit(*at, 4, 6), _unit(*at, 4, 6), torch.randn(*at, 4, 10), g, beta], torch.randn(sequences, 4, 6, 10)


def _lightning(sequences: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    return [torch.randn(sequences, LENGTH, 3, 6) for _ in "qkv"], torch.randn(sequences, 3, 6, 6)


def _ssd(sequences: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    at = (sequences, LENGTH)
    rows = [torch.randn(*at, 4, 6), 3 * torch.randn(*at, 4), torch.randn(*at, 2, 10), torch.randn(*at, 2, 10)]
    return rows, torch.randn(sequences, 4, 6, 10)


def _selective(sequences: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    at = (sequences, LENGTH)
    return [torch.randn(*at, 7) for _ in range(3)] + [torch.randn(*at, 5) for _ in "bc"], torch.randn(sequences, 7, 5)


def _with(function: Run, *after: object) -> Run:
    return lambda *arguments: function(*arguments, *after)


def _between(function: Run, *middle: object, after: tuple[object, ...] = ()) -> Run:
    return lambda *arguments: function(*arguments[:-1], *middle, arguments[-1], *after)


_SLOPE = torch.tensor([0.0, 0.3, 20.0])
_HEADS = (torch.tensor([-3.0, 0.0, 1.0, 4.0]), torch.tensor([0.5, 1.0, 0.0, -1.0]), torch.tensor([0.0, 2.0, -2.0, 0.1]))
_CHANNELS = (torch.linspace(-3, 4, 35).view(7, 5), torch.linspace(-1, 1, 7), torch.linspace(-2, 2, 7))
CASES = [
    Case("gated_delta", _with(gated_delta_recurrent, 0.4), _with(gated_delta_chunk, 0.4), _delta),
    Case("kda", _with(kda_recurrent, 0.4), _with(kda_chunk, 0.4), _kda),
    Case("lightning", _between(lightning_recurrent, _SLOPE), _between(lightning_chunk, _SLOPE), _lightning),
    Case(
        "ssd",
        _between(ssd_state_update, *_HEADS, after=(0.0, None)),
        _between(ssd_chunk_scan, *_HEADS, after=(0.0, None)),
        _ssd,
    ),
    Case("selective", _between(selective_state_update, *_CHANNELS), _between(selective_scan, *_CHANNELS), _selective),
]
every_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
both_forms = pytest.mark.parametrize("form", ["step", "chunk"])


@every_case
def test_chunks_are_the_recurrence(case: Case) -> None:
    """Decays from almost none to e^-100 a token, where quotients of running products would be 0 / 0."""
    rows, state = case.make(2)
    tolerance = OPERATORS["gated_delta_chunk"].tolerance["float32"]
    for found, wanted in zip(case.chunk(*rows, state), case.step(*rows, state), strict=True):
        assert (agreement := tolerance.check(found, wanted)).equal, agreement.message


@every_case
@both_forms
@pytest.mark.parametrize("cut", [1, 31, 64, 65, 149])
def test_in_two_parts_as_in_one(case: Case, form: str, cut: int) -> None:
    run: Run = getattr(case, form)
    rows, state = case.make(1)
    whole, end = run(*rows, state)
    first, between = run(*(x[:, :cut] for x in rows), state)
    second, last = run(*(x[:, cut:] for x in rows), between)
    assert relative_error(torch.cat((first, second), dim=1), whole) < 1e-5
    assert relative_error(last, end) < 1e-5


@every_case
@both_forms
def test_sequences_do_not_see_one_another(case: Case, form: str) -> None:
    run: Run = getattr(case, form)
    rows, state = case.make(3)
    together, ends = run(*rows, state)
    for n in range(3):
        alone, end = run(*(x[n : n + 1] for x in rows), state[n : n + 1])
        assert relative_error(together[n : n + 1], alone) < 1e-5
        assert relative_error(ends[n : n + 1], end) < 1e-5


@every_case
@both_forms
def test_no_token_sees_a_later_one_and_the_given_state_is_not_written_to(case: Case, form: str) -> None:
    run: Run = getattr(case, form)
    rows, state = case.make(1)
    before = state.clone()
    whole, _ = run(*rows, state)
    assert torch.equal(state, before)
    other = [torch.cat((x[:, :70], x[:, 70:].flip(1)), dim=1) for x in rows]
    assert relative_error(run(*other, state)[0][:, :70], whole[:, :70]) < 1e-6


@both_forms
def test_nothing_is_written_at_strength_zero(form: str) -> None:
    """Only decay is left: the state is what it was, times the product of all decays."""
    (q, k, v, g, beta), state = _delta(1)
    g = g.clamp(min=-0.02)
    run = {"step": gated_delta_recurrent, "chunk": gated_delta_chunk}[form]
    _, end = run(q, k, v, g, torch.zeros_like(beta), state, 1.0)
    assert relative_error(end, state * g.sum(dim=1).exp()[..., None, None]) < 1e-5


@both_forms
def test_without_decay_a_key_gives_back_what_was_last_written_under_it(form: str) -> None:
    (_, k, v, g, beta), state = _delta(1)
    k, v = k[:, :40, [0, 0]], v[:, :40]
    run = {"step": gated_delta_recurrent, "chunk": gated_delta_chunk}[form]
    y, _ = run(k, k, v, torch.zeros_like(g[:, :40]), torch.ones_like(beta[:, :40]), state, 1.0)
    assert torch.allclose(y, v, atol=2e-4)


def test_strength_two_reflects() -> None:
    """Negative eigenvalues: writing nothing under k at strength 2 turns the state's share along k round."""
    state, k = torch.randn(1, 1, 6, 10), _unit(1, 1, 1, 6)
    nothing, no_decay, strength = torch.zeros(1, 1, 1, 10), torch.zeros(1, 1, 1), torch.full((1, 1, 1), 2.0)
    _, end = gated_delta_recurrent(k, k, nothing, no_decay, strength, state, 1.0)
    assert torch.allclose(k[0, 0] @ end[0, 0], -(k[0, 0] @ state[0, 0]), atol=1e-5)


def test_weak_decays_after_a_strong_one_keep_their_digits() -> None:
    """As a difference of running sums, 2e-4 after -5000 would be lost; summed on its own it is exact."""
    g = torch.tensor([-5000.0, -2e-4, -2e-4, -2e-4])
    between = log_decay_between(g)
    assert between[3, 0].item() == pytest.approx(-6e-4, rel=1e-6)
    assert between.diagonal().tolist() == [0.0] * 4
    assert bool(torch.isneginf(between[0, 1:]).all())
    assert between.exp().max() <= 1.0


def test_gates_against_their_formula(agrees: Callable[..., None], rng: np.random.Generator) -> None:
    a, b, a_log, dt_bias = 3 * rng.standard_normal((63, 5)), *(rng.standard_normal(shape) for shape in ((63, 5), 5, 5))
    found = gated_delta_gate(*(torch.tensor(x).float() for x in (a, a_log, dt_bias, b)), 2.0)
    agrees("gated_delta_gate", found[0], -np.exp(a_log) * np.log1p(np.exp(a + dt_bias)))
    agrees("gated_delta_gate", found[1], 2 / (1 + np.exp(-b)), output=1)


def test_step_sizes_stay_within_their_bounds() -> None:
    """With no state, no D and unit b, c and x, what is read is the step size itself."""
    ones = torch.ones(1, 3, 1, 1)
    dt = torch.tensor([[[-50.0], [0.0], [50.0]]])
    zeros = torch.zeros(1)
    y, _ = ssd_state_update(ones, dt, ones, ones, torch.tensor([60.0]), zeros, zeros, torch.zeros(1, 1, 1, 1), 0.1, 2.0)
    assert y.flatten().tolist() == pytest.approx([0.1, 0.6931472, 2.0], rel=1e-5)


def test_states_have_the_layout_that_the_planner_counts() -> None:
    """Keys before values, heads' channels before the state's: the same shapes as `state_shapes` says."""
    (rows, state), delta = _delta(2), GatedDeltaNet(2, 4, 6, 10, 4, 1e-6)
    assert gated_delta_chunk(*rows, state, 1.0)[1].shape[1:] == delta.state_shapes()[0].shape
    (rows, state), space = _ssd(2), Mamba2(4, 6, 2, 10, 4, True, False, 1e-6)
    assert CASES[3].chunk(*rows, state)[1].shape[1:] == space.state_shapes()[0].shape
    with pytest.raises(RuntimeError):
        gated_delta_chunk(*_delta(2)[0], _delta(2)[1].mT, 1.0)
