"""A plan that counts second copies of experts also starts the engine with them."""

from __future__ import annotations

from typing import Any

import pytest

from day0.engines.table import LAUNCHERS

FLAGS = {
    "vllm": ["--enable-eplb", "--eplb-config", '{"num_redundant_experts": 32}'],
    "sglang": ["--enable-eplb", "--ep-num-redundant-experts", "32"],
}


@pytest.mark.parametrize("engine", sorted(FLAGS))
def test_second_copies_are_counted_and_asked_for(request_for: Any, engine: str) -> None:
    plain = request_for("deepseek-r1", "h200:8", engine, tp=8, ep=8)
    more = request_for("deepseek-r1", "h200:8", engine, tp=8, ep=8, demand={"redundant_experts": 32})
    grown = more.plan.ranks[0].weights - plain.plan.ranks[0].weights
    assert grown == pytest.approx(58 * 4 * 3 * 7168 * 2048 * (1 + 4 / 128**2), rel=0.001), "36 experts instead of 32"
    argv = LAUNCHERS[engine](more).argv[0]
    assert [word for word in argv if word in FLAGS[engine]] == FLAGS[engine]
    assert "--enable-eplb" not in LAUNCHERS[engine](plain).argv[0]
