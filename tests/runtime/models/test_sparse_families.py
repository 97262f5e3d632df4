"""Sparse attention as other families have it: gates, sinks, several streams, and pools of tokens that share a key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agreement import LIMIT, Pair, agrees_with_their_cache, batch_gives_what_each_gets_alone
from closeness import worst_error
from latent_configs import AXK2, GLM5_NEXT, HY_V4
from random_models import logits_of, make_model, text_prompt

from day0.runtime.engine.engine import Engine

POOL, TOP_K = 4, 16


def published(name: str) -> str:
    """What Hunyuan 4 calls a tensor; transformers turns some of the names round when it saves them."""
    name = name.replace("hc_pre.hc_head.", "hc_head.")
    for branch in ("attn", "mlp"):
        name = name.replace(f"hc_pre.hc_{branch}_layer.", f"hc_{branch}_layer.hc_pre.")
    return name.replace("mlp.linear_gate", "mlp.gate_proj").replace("experts.linear_gate", "experts.gate_proj")


@pytest.mark.parametrize(("config", "rename"), [(AXK2, str), (HY_V4, published)], ids=["axk2", "hy_v4"])
def test_logits_agree(config: dict[str, Any], rename: Any, tmp_path: Path, make_engine) -> None:
    model = make_model(config, tmp_path, rename=rename)
    engine: Engine = make_engine(tmp_path, debug=True)
    assert engine.profile.unused_config_keys == ()
    for length in (1, 23, 24, 25, 63):
        wanted = logits_of(model, text_prompt(length))
        assert worst_error(engine.forward(text_prompt(length)), wanted) < LIMIT, f"{length} tokens"
    for chunk in (1, 7, 25):
        assert worst_error(engine.forward(text_prompt(63), chunk=chunk), wanted) < LIMIT, f"chunks of {chunk}"


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory, make_engine) -> Pair:
    folder = tmp_path_factory.mktemp("model")
    whole = {
        "model_type": "glm5_next",
        "architectures": ["Glm5NextForConditionalGeneration"],
        "text_config": GLM5_NEXT,
        "vision_config": {
            "hidden_size": 32,
            "depth": 1,
            "num_heads": 2,
            "intermediate_size": 48,
            "out_hidden_size": 64,
        },
        **{f"{kind}_token_id": number for number, kind in enumerate(("image", "video"), 5)},
    }
    model = make_model(whole, folder)
    (folder / "config.json").write_text(json.dumps(GLM5_NEXT))
    return model, make_engine(folder, debug=True)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 15, 16, 17, 19, 20, 21, 63])
def test_pools_agree(pooled: Pair, length: int) -> None:
    """Around one pool, a page, the choice, and the first length that leaves a pool unchosen (20)."""
    model, engine = pooled
    wanted = logits_of(model, text_prompt(length))
    for chunk in (length, 1, 7, 16):
        assert worst_error(engine.forward(text_prompt(length), chunk=chunk), wanted) < LIMIT, f"chunks of {chunk}"


def test_pools_agree_with_their_cache(pooled: Pair) -> None:
    agrees_with_their_cache(pooled, text_prompt(41), prefill=18)


def test_pools_in_a_batch(pooled: Pair) -> None:
    """Sequences that finish pools at different steps decode in one group."""
    _, engine = pooled
    batch_gives_what_each_gets_alone(engine, [text_prompt(length) for length in (1, 2, 15, 18, 40)], max_tokens=9)


def test_the_pooling_is_felt(pooled: Pair) -> None:
    """Not before a pool is left out: what pools and their tail hold together is everything until then."""
    _, engine = pooled
    first_left_out = TOP_K + POOL - 1
    before = engine.forward(text_prompt(63))
    bias = engine.model.layers[1].mixer.indexer.pool_bias
    kept = bias.clone()
    bias.copy_(kept.flip(0) * 3)
    after = engine.forward(text_prompt(63))
    bias.copy_(kept)
    assert worst_error(after[:first_left_out], before[:first_left_out]) < LIMIT
    assert worst_error(after[first_left_out:], before[first_left_out:]) > 1e-3
