"""What a definition's cache is good for, found out by trying."""

from __future__ import annotations

import pytest
import torch
from upstream_models import keep_code_in, make_remote_repository

from day0.errors import CannotSay
from day0.runtime.upstream.sessions import CacheUse


@pytest.mark.parametrize(
    ("name", "use", "per_token", "per_sequence"),
    [
        ("gpt2", CacheUse.CHUNKS, 2 * 2 * 32 * 4, 0),
        ("phi3", CacheUse.CHUNKS, 2 * 2 * 16 * 4, 0),
        # Two mamba layers of 64 channels: 8 numbers of state and 4 of convolution each.
        ("jamba", CacheUse.STEPS, 2 * 2 * 16 * 4, 2 * 64 * (8 + 4) * 4),
    ],
)
def test_the_cache_is_used_as_far_as_it_is_right_and_costs_what_it_holds(
    name, use, per_token, per_sequence, engines
) -> None:
    decoder = engines(name).model
    assert decoder.cache_use is use
    assert (decoder.cost.per_token, decoder.cost.per_sequence) == (per_token, per_sequence)


def test_a_state_is_not_relied_on_where_rounding_would_hide_that_it_is_forgotten(made, upstream, engines) -> None:
    assert engines("mamba2").model.cache_use is CacheUse.CHUNKS
    assert upstream(made("mamba2").folder, dtype="bfloat16").model.cache_use is CacheUse.STEPS


def test_a_definition_without_a_cache_computes_everything_again(tmp_path, upstream, monkeypatch) -> None:
    keep_code_in(tmp_path / "modules", monkeypatch)
    logits = make_remote_repository(tmp_path / "sum")
    engine = upstream(tmp_path / "sum", trust_remote_code=True)
    assert engine.model.cache_use is CacheUse.NEVER
    assert any("computes the whole sequence again" in limit for limit in engine.limits)
    ids = [7, 8, 9, 3, 50, 60]
    torch.testing.assert_close(engine.forward(ids, chunk=2), logits(ids), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "says"), [("bert", "change with the tokens after it"), ("llama", "longest sequence")])
def test_what_cannot_be_right_is_refused(name, says, made, upstream) -> None:
    with pytest.raises(CannotSay, match=says):
        upstream(made(name).folder)
