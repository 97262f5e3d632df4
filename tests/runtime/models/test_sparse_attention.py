"""DeepSeek sparse attention against transformers, at lengths around every size that matters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from agreement import LIMIT, Pair, agrees_with_their_cache, batch_gives_what_each_gets_alone, chunks_give_the_whole
from closeness import worst_error
from latent_configs import DEEPSEEK_V3, DEEPSEEK_V32, GLM_MOE_DSA
from random_models import logits_of, make_model, prompt

from day0.profile.profile import SparseLatentAttention
from day0.runtime.engine.engine import Engine
from day0.runtime.trace import Trace

TOP_K = 24
MODELS: dict[str, dict[str, Any]] = {
    "deepseek_v32": DEEPSEEK_V32,
    "glm_moe_dsa": GLM_MOE_DSA | {"num_hidden_layers": 3, "index_topk_freq": 1},
    "glm_moe_dsa sharing choices": GLM_MOE_DSA,
    "glm_moe_dsa by a list": GLM_MOE_DSA
    | {"num_hidden_layers": 4, "indexer_types": ["full", "shared", "full", "shared"]},
}


@pytest.fixture(scope="module", params=MODELS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, make_engine) -> Pair:
    folder = tmp_path_factory.mktemp("model")
    model = make_model(MODELS[request.param], folder)
    engine = make_engine(folder, debug=True)
    assert engine.profile.unused_config_keys == ()
    return model, engine


@pytest.mark.parametrize("length", [1, 15, 16, 17, 23, 24, 25, 47, 48, 49, 100])
def test_logits_agree(pair: Pair, length: int) -> None:
    """One less than, as long as and one more than a page, the choice, and twice the chunk below."""
    model, engine = pair
    wanted = logits_of(model, prompt(length))
    assert worst_error(engine.forward(prompt(length)), wanted) < LIMIT
    assert worst_error(engine.forward(prompt(length), chunk=24), wanted) < LIMIT


@pytest.mark.parametrize("chunk", [1, 7, 16, 23, 25, 62])
def test_chunks_and_decode_are_the_whole(pair: Pair, chunk: int) -> None:
    chunks_give_the_whole(pair[1], prompt(63), chunk)


def test_their_own_cache_gives_the_same(pair: Pair) -> None:
    agrees_with_their_cache(pair, prompt(63), prefill=20)


def test_a_batch_gives_what_each_gets_alone(pair: Pair) -> None:
    """Sequences below and above the size of the choice decode in one group."""
    _, engine = pair
    batch_gives_what_each_gets_alone(engine, [prompt(length) for length in (1, 15, 17, 23, 40, 63)], max_tokens=9)


def test_the_choice_is_felt(pair: Pair) -> None:
    """Beyond `top_k` tokens the numbers are not those of dense attention, else nothing above shows anything."""
    _, engine = pair
    indexers = [module for module in engine.model.modules() if hasattr(module, "reads_all")]
    sparse = engine.forward(prompt(63))
    kept = [indexer.reads_all for indexer in indexers]
    for indexer in indexers:
        indexer.reads_all = 1000
    dense = engine.forward(prompt(63))
    for indexer, old in zip(indexers, kept, strict=True):
        indexer.reads_all = old
    assert torch.equal(sparse[:TOP_K], dense[:TOP_K]) or worst_error(sparse[:TOP_K], dense[:TOP_K]) < LIMIT
    assert worst_error(sparse[TOP_K:], dense[TOP_K:]) > 1e-2


def test_up_to_the_choice_it_is_dense_attention_itself(tmp_path: Path, make_engine) -> None:
    make_model(DEEPSEEK_V32, tmp_path)
    sparse = make_engine(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(DEEPSEEK_V3))
    dense = make_engine(tmp_path)
    for length in (1, TOP_K - 1, TOP_K):
        assert torch.equal(sparse.forward(prompt(length)), dense.forward(prompt(length)))
    assert not torch.equal(sparse.forward(prompt(TOP_K + 1)), dense.forward(prompt(TOP_K + 1)))


def test_layers_without_an_indexer_read_what_the_last_one_chose(tmp_path: Path, make_engine) -> None:
    make_model(GLM_MOE_DSA, tmp_path)
    engine: Engine = make_engine(tmp_path)
    own = [layer.index for layer in engine.profile.layers if layer_of(layer).indexer is not None]
    assert own == [0, 1, 2, 6]
    trace = Trace()
    engine.forward(prompt(40), trace=trace)
    assert [int(name.split(".")[1]) for name in trace.tensors if name.endswith("mixer.topk_ids")] == own
    for layer in (2, 3, 4, 5):  # layers 3, 4 and 5 see what layer 2 chose
        read = trace.tensors[f"layers.{layer}.mixer.probs"][0] > 0
        chosen = [set(row[row >= 0].tolist()) for row in trace.tensors["layers.2.mixer.topk_ids"]]
        assert [set(row.nonzero()[:, 0].tolist()) for row in read] == chosen


def layer_of(layer: Any) -> SparseLatentAttention:
    assert isinstance(layer.mixer, SparseLatentAttention)
    return layer.mixer


def test_the_layout_of_the_index_rotation_matters(tmp_path: Path, make_engine) -> None:
    """The indexer of V3.2 pairs distant channels, its attention neighbours; the scores know the difference."""
    model = make_model(GLM_MOE_DSA | {"indexer_rope_interleave": False}, tmp_path)
    # transformers does not read that key: it pairs neighbours in every model of this kind.
    assert worst_error(make_engine(tmp_path).forward(prompt(63)), logits_of(model, prompt(63))) > 100 * LIMIT
