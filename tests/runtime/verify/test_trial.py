"""A trial refuses what is wrong in ways that a comparison of one output may miss."""

from __future__ import annotations

import pytest
import torch

from day0.runtime.ops.causal_conv1d import causal_conv1d
from day0.runtime.ops.kda import kda_recurrent
from day0.runtime.ops.norm import rms_norm
from day0.runtime.ops.paged_attention import paged_gqa_attention
from day0.runtime.verify.trial import Outcome, attempt

CPU = torch.device("cpu")
NORM = {"tokens": 63, "width": 100, "eps": 1e-6}
DELTA = {"tokens": 9, "heads": 3, "head_dim": 10, "value_dim": 7, "scale": 0.3}


def outcome(kernel, facts=NORM, operator="rms_norm", reference=rms_norm, dtype="float32") -> Outcome:
    return attempt(operator, kernel, reference, facts, dtype, CPU)


def unwritten(x, weight, eps):
    out = torch.empty_like(x)
    out[:-1] = rms_norm(x[:-1], weight, eps)
    return out


def in_place(x, weight, eps):
    return x.copy_(rms_norm(x, weight, eps))


def coarse(x, weight, eps):
    """Off by less than the tolerance, and by far more than float32 rounds."""
    return rms_norm(x, weight, eps) * (1 + 6e-6)


def by_position(x, weight, eps):
    """Right for these 63 rows and no others."""
    found = rms_norm(x, weight, eps)
    return found if len(x) == 63 else found + 1


def by_order(x, weight, eps):
    found = rms_norm(x, weight, eps)
    return found if x[0].sum() > x[-1].sum() else found * 2


FAULTS = {
    unwritten: "not finite",
    in_place: "argument 0 was changed",
    coarse: "the reference's own noise",
    by_position: "company in the batch",
    lambda x, weight, eps: torch.zeros_like(x): "allowance",
    lambda x, weight, eps: torch.full_like(x, 0.5): "allowance",
    lambda x, weight, eps: rms_norm(x, weight, eps).double(): "the reference gives",
    lambda x, weight, eps: rms_norm(x, weight, eps) + 1e-9 * torch.rand(1): "two results",
}


@pytest.mark.parametrize(("kernel", "words"), FAULTS.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_a_wrong_kernel_is_refused(kernel, words) -> None:
    assert words in " ".join(outcome(kernel).faults)


def test_order_is_seen() -> None:
    ordered = [outcome(kernel).faults for kernel in (by_order, lambda x, w, e: -by_order(-x, w, e))]
    assert any("order of tokens" in fault for faults in ordered for fault in faults)


def test_a_state_that_is_dropped_is_seen_by_halves() -> None:
    def forgetful(q, k, v, g, beta, state, scale):
        """Right while there are nine tokens; of fewer, the state that comes in is passed over."""
        return kda_recurrent(q, k, v, g, beta, state if q.shape[1] == 9 else state * 0, scale)

    faults = outcome(forgetful, DELTA, "kda_recurrent", kda_recurrent).faults
    assert "two halves do not give the whole" in faults
    assert not outcome(kda_recurrent, DELTA, "kda_recurrent", kda_recurrent).faults


def test_the_future_is_seen() -> None:
    facts = {"tokens": 9, "width": 10, "taps": 4, "past_taps": 3, "activation": None}

    drawn: list[torch.Tensor] = []

    def late(x, weight, state, activation):
        """Right for the numbers that it meets first; a term that is zero for those sees the last token."""
        drawn.append(x)
        y, state = causal_conv1d(x, weight, state, activation)
        same_start = x.shape == drawn[0].shape and torch.equal(x[:, :-1], drawn[0][:, :-1])
        return (y + (x - drawn[0])[:, -1:], state) if same_start else (y, state)

    assert outcome(late, facts, "causal_conv1d", causal_conv1d).faults == ("an output depends on a later token",)
    assert not outcome(causal_conv1d, facts, "causal_conv1d", causal_conv1d).faults


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attention_in_halves(dtype: str) -> None:
    facts = {"tokens": 6, "slots": 50, "heads": 4, "kv_heads": 4, "head_dim": 16, "scale": 0.3, "window": 7}

    def whole_only(q, k, v, slots, context, scale, window):
        return paged_gqa_attention(q, k, v, slots, context if q.shape[1] == 6 else context * 0, scale, window)

    def attempted(kernel):
        return attempt("paged_gqa_attention", kernel, paged_gqa_attention, facts, dtype, CPU).faults

    assert "two halves do not give the whole" in attempted(whole_only)
    assert not attempted(paged_gqa_attention)
