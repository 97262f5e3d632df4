"""Latent attention decoders against transformers: float32 logits of tiny random models, config by config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agreement import LIMIT, Pair, agrees_with_their_cache, batch_gives_what_each_gets_alone
from closeness import worst_error
from latent_configs import AXK1, DEEPSEEK_V2, DEEPSEEK_V3, GLM4_MOE_LITE, KIMI_K2, MINICPM3, MISTRAL4, YARN, YOUTU
from random_models import logits_of, make_model, prompt

from day0.runtime.engine.engine import Engine

MODELS: dict[str, dict[str, Any]] = {
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v3 without query latent": DEEPSEEK_V3 | {"q_lora_rank": None},
    "deepseek_v3 biases": DEEPSEEK_V3 | {"attention_bias": True},
    "deepseek_v3 one group of experts": DEEPSEEK_V3 | {"n_group": 1, "topk_group": 1},
    "deepseek_v3 weights as they are": DEEPSEEK_V3 | {"norm_topk_prob": False},
    "deepseek_v3 neighbours not paired": DEEPSEEK_V3 | {"rope_interleave": False},
    "deepseek_v3 no scaling": DEEPSEEK_V3 | {"rope_scaling": None},
    "deepseek_v3 unequal magnitudes": DEEPSEEK_V3 | {"rope_scaling": YARN | {"mscale": 0.5, "mscale_all_dim": 0.8}},
    "deepseek_v3 two dense layers": DEEPSEEK_V3 | {"first_k_dense_replace": 2},
    "kimi_k2": KIMI_K2,
    "deepseek_v2": DEEPSEEK_V2,
    "deepseek_v2 greedy": DEEPSEEK_V2 | {"topk_method": "greedy", "n_group": 1, "topk_group": 1, "q_lora_rank": None},
    "glm4_moe_lite": GLM4_MOE_LITE,
    "youtu": YOUTU,
    "minicpm3": MINICPM3,
    "mistral4": MISTRAL4,
    "axk1": AXK1,
}


@pytest.mark.parametrize("name", MODELS)
def test_logits_agree(name: str, tmp_path: Path, make_engine) -> None:
    model = make_model(MODELS[name], tmp_path)
    if name == "axk1":  # transformers adds a bias to the choice of experts that the releases do not have
        for buffer, values in model.named_buffers():
            if buffer.endswith("e_score_correction_bias"):
                values.zero_()
    engine: Engine = make_engine(tmp_path)
    assert engine.profile.unused_config_keys == ()
    for length in (1, 16, 63):
        wanted = logits_of(model, prompt(length))
        assert worst_error(engine.forward(prompt(length)), wanted) < LIMIT, f"{length} tokens"
    for chunk in (1, 7, 16):
        assert worst_error(engine.forward(prompt(63), chunk=chunk), wanted) < LIMIT, f"chunks of {chunk}"


@pytest.fixture(scope="module", params=["deepseek_v3", "deepseek_v2", "glm4_moe_lite"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, make_engine) -> Pair:
    folder = tmp_path_factory.mktemp("model")
    return make_model(MODELS[request.param], folder), make_engine(folder)


def test_their_own_cache_gives_the_same(pair: Pair) -> None:
    agrees_with_their_cache(pair, prompt(63), prefill=20)


def test_a_batch_gives_what_each_gets_alone(pair: Pair) -> None:
    _, engine = pair
    batch_gives_what_each_gets_alone(engine, [prompt(length) for length in (1, 15, 16, 17, 63)], max_tokens=9)


@pytest.mark.parametrize("part", ["kv_b_proj", "q_a_norm", "kv_a_norm"])
def test_a_wrong_weight_is_noticed(part: str, tmp_path: Path, make_engine) -> None:
    model = make_model(DEEPSEEK_V3, tmp_path)
    engine: Engine = make_engine(tmp_path)
    weight = getattr(engine.model.layers[1].mixer, part).weight
    weight.copy_(weight.roll(1, dims=0))
    assert worst_error(engine.forward(prompt(17)), logits_of(model, prompt(17))) > 100 * LIMIT
