from __future__ import annotations

from pathlib import Path

import pytest
import torch

from day0.coverage import load_whitelist
from day0.runtime.batch import Request, SamplingParams
from day0.runtime.models.linear import Linear
from day0.runtime.models.relaid import relaid_bytes, without_copies
from day0.runtime.ops import relaid_linear
from day0.runtime.ops.registry import Operators, choose_operators

IDS = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture
def kernels() -> Operators:
    return choose_operators(torch.device("cpu"), torch.bfloat16, load_whitelist().verified_on("cpu"))


@pytest.mark.parametrize("recipe", ["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-r1"])
def test_copies_change_no_bit_and_are_counted(tiny, make_engine, kernels: Operators, recipe: str) -> None:
    folder = tiny(recipe)
    plain = make_engine(folder, ops=kernels, dtype="bfloat16", relaid_bytes=0)
    relaid = make_engine(folder, ops=kernels, dtype="bfloat16")
    copies = [m.relaid for m in relaid.model.modules() if getattr(m, "relaid", None) is not None]
    assert plain.memory.relaid_bytes == 0
    assert relaid.memory.relaid_bytes == sum(2 * copy.numel() for copy in copies) > 0
    assert torch.equal(relaid.forward(IDS), plain.forward(IDS))
    assert torch.equal(relaid.forward(IDS, chunk=1), plain.forward(IDS, chunk=1))


def test_the_budget_holds_and_the_head_comes_first(tiny, make_engine, kernels: Operators) -> None:
    folder = tiny("llama-3.1-8b")
    head = make_engine(folder).model.lm_head.weight.numel() * 2
    for budget, bytes_held in ((head - 1, None), (head, head)):
        engine = make_engine(folder, ops=kernels, dtype="bfloat16", relaid_bytes=budget)
        assert (engine.model.head.relaid is not None) == (bytes_held is not None)
        assert relaid_bytes(engine.model) <= budget
        assert bytes_held is None or relaid_bytes(engine.model) == bytes_held


def test_in_float32_copies_and_offloaded_rows_change_no_bit(tiny, make_engine, monkeypatch) -> None:
    monkeypatch.setattr(relaid_linear, "SMALL", 0)
    folder = tiny("llama-3.1-8b")
    ops = choose_operators(torch.device("cpu"), torch.float32, load_whitelist().verified_on("cpu"))
    relaid = make_engine(folder, ops=ops)
    assert relaid.memory.relaid_bytes > 0
    for other in (make_engine(folder, ops=ops, relaid_bytes=0), make_engine(folder, ops=ops, offload="disk")):
        assert other.memory.relaid_bytes == 0
        for chunk in (None, 3, 1):
            assert torch.equal(relaid.forward(IDS, chunk=chunk), other.forward(IDS, chunk=chunk))


def test_nothing_is_copied_for_references(tiny, make_engine) -> None:
    assert make_engine(tiny("llama-3.1-8b"), dtype="bfloat16").memory.relaid_bytes == 0


def test_a_changed_parameter_shows_without_the_copies_alone(tiny, make_engine, kernels: Operators) -> None:
    engine = make_engine(tiny("llama-3.1-8b"), ops=kernels, dtype="bfloat16")
    before = engine.forward(IDS)
    first = next(module for module in engine.model.modules() if isinstance(module, Linear))
    first.weight.data.neg_()
    assert torch.equal(engine.forward(IDS), before)
    with without_copies(engine.model):
        assert not torch.equal(engine.forward(IDS), before)
    assert relaid_bytes(engine.model) == engine.memory.relaid_bytes


def test_matrices_that_no_map_is_called_with_are_not_copied(tiny, make_engine, kernels: Operators) -> None:
    engine = make_engine(tiny("kimi-k2-thinking"), ops=kernels, dtype="bfloat16")
    mixer = engine.model.layers[0].mixer
    assert mixer.kv_b_proj.relaid is None
    assert mixer.o_proj.relaid is not None


def test_requests_get_the_same_tokens_with_copies(tiny, make_engine, kernels: Operators) -> None:
    folder: Path = tiny("qwen3-30b-a3b")
    requests = [Request(str(row), tuple(IDS[row:]), SamplingParams(max_tokens=12, ignore_eos=True)) for row in range(5)]
    answers = [
        [
            done.token_ids
            for done in make_engine(folder, ops=kernels, dtype="bfloat16", relaid_bytes=size).generate(requests)
        ]
        for size in (0, 1 << 30)
    ]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("recipe", "reference"),
    [("llama-3.1-8b", True), ("llama-3.1-8b", False), ("qwen3-30b-a3b", False), ("qwen3-next-80b-a3b", False)],
)
def test_float32_tokens_are_the_same_alone_and_in_any_batch(
    tiny, make_engine, monkeypatch, recipe: str, reference: bool
) -> None:
    monkeypatch.setattr(relaid_linear, "SMALL", 0)
    verified = () if reference else load_whitelist().verified_on("cpu")
    ops = choose_operators(torch.device("cpu"), torch.float32, verified)
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    lengths = (1, 2, 3, 8, 17, 33, 5)
    requests = [Request(str(n), tuple((7 * n + 13 * i) % 200 + 20 for i in range(n)), params) for n in lengths]
    engine = make_engine(tiny(recipe), ops=ops, prefix_caching=False)
    alone = [engine.generate([request])[0].token_ids for request in requests]
    assert len(set(alone)) == len(alone)  # else a batch could mix requests up unseen
    assert [done.token_ids for done in engine.generate(requests)] == alone
    assert [done.token_ids for done in engine.generate(requests[::-1])] == alone[::-1]
    in_chunks = make_engine(tiny(recipe), ops=ops, prefix_caching=False, max_num_batched_tokens=7, max_num_seqs=3)
    assert [done.token_ids for done in in_chunks.generate(requests)] == alone
