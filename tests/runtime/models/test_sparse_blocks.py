"""Block-sparse attention (MiniMax M3) against transformers, at lengths around every size that matters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from agreement import LIMIT, Pair, agrees_with_their_cache, batch_gives_what_each_gets_alone, chunks_give_the_whole
from block_sparse_configs import BLOCK, SPARSE, TEXT, TOP_K, whole
from closeness import worst_error
from random_models import logits_of, make_model, text_prompt

from day0.runtime.engine.engine import Engine
from day0.runtime.trace import Trace

PAGE = 16
MODELS: dict[str, dict[str, Any]] = {
    "one local block": TEXT,
    "two local blocks": TEXT | {"sparse_attention_config": SPARSE | {"sparse_local_block": 2}},
    "no local block": TEXT | {"sparse_attention_config": SPARSE | {"sparse_local_block": 0}},
    "one index head for all": TEXT | {"sparse_attention_config": SPARSE | {"sparse_num_index_heads": 1}},
    "flat keys": {key: value for key, value in TEXT.items() if key not in ("sparse_attention_config", "moe_layer_freq")}
    | {
        "layer_types": ["minimax_m3_sparse", "full_attention", "minimax_m3_sparse"],
        "mlp_layer_types": ["sparse", "dense", "sparse"],
        "index_n_heads": 2,
        "index_head_dim": 20,
        "index_block_size": BLOCK,
        "index_topk_blocks": TOP_K,
        "index_local_blocks": 1,
    },
}


@pytest.fixture(scope="module", params=MODELS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, make_engine) -> Pair:
    folder = tmp_path_factory.mktemp("model")
    model = make_model(whole(MODELS[request.param]), folder)
    engine = make_engine(folder, debug=True, page_size=PAGE)
    assert engine.profile.native and engine.profile.unused_config_keys == ()
    return model, engine


@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 17, 23, 24, 25, 63, 64, 65])
def test_logits_agree(pair: Pair, length: int) -> None:
    """One less than, as long as and one more than a block, a page, what is read at most, and many of each."""
    model, engine = pair
    wanted = logits_of(model, text_prompt(length))
    for chunk in (length, 7, 16):
        assert worst_error(engine.forward(text_prompt(length), chunk=chunk), wanted) < LIMIT, f"chunks of {chunk}"


@pytest.mark.parametrize("chunk", [1, 8, 9, 24, 25])
def test_chunks_and_decode_are_the_whole(pair: Pair, chunk: int) -> None:
    chunks_give_the_whole(pair[1], text_prompt(63), chunk)


def test_their_own_cache_gives_the_same(pair: Pair) -> None:
    agrees_with_their_cache(pair, text_prompt(63), prefill=20)


def test_a_batch_gives_what_each_gets_alone(pair: Pair) -> None:
    """Sequences below and above what is read at most decode in one group."""
    _, engine = pair
    batch_gives_what_each_gets_alone(
        engine, [text_prompt(length) for length in (1, 7, 16, 23, 40, 63)], max_tokens=9, rel=1e-5
    )


def test_the_choice_is_felt(pair: Pair) -> None:
    """Past `top_k` blocks the numbers are not those of the weakest blocks, else nothing above shows anything."""
    _, engine = pair
    trace = Trace()
    before = engine.forward(text_prompt(63), trace=trace)
    indexers = [layer.mixer.indexer for layer in engine.model.layers if hasattr(layer.mixer, "indexer")]
    assert len(indexers) == 2
    for indexer in indexers:
        indexer.q_proj.weight.neg_()  # what scored best scores worst
    after = engine.forward(text_prompt(63))
    for indexer in indexers:
        indexer.q_proj.weight.neg_()
    reach = BLOCK * TOP_K
    assert torch.equal(after[:reach], before[:reach]) or worst_error(after[:reach], before[:reach]) < LIMIT
    assert worst_error(after[reach:], before[reach:]) > 1e-2
    heads = trace.tensors["layers.2.mixer.topk_blocks"]
    assert heads.shape[1] == indexers[0].spec.num_heads
    assert heads.shape[1] == 1 or (heads[:, 0] != heads[:, 1]).any()  # each head has a choice of its own


def test_the_decoder_alone_as_transformers_saves_it(tmp_path: Path, make_engine) -> None:
    """Under other names, with gate and up joined and experts stacked."""
    model = make_model(TEXT | {"architectures": ["MiniMaxM3VLForCausalLM"]}, tmp_path)
    engine: Engine = make_engine(tmp_path, debug=True)
    assert worst_error(engine.forward(text_prompt(63)), logits_of(model, text_prompt(63))) < LIMIT
    assert worst_error(engine.forward(text_prompt(63), chunk=7), logits_of(model, text_prompt(63))) < LIMIT
