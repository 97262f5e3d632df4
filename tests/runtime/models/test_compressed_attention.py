"""DeepSeek-V4 against transformers: compressed attention, hyper-connections and tables of experts together."""

from __future__ import annotations

import pytest
import torch
from agreement import LIMIT, Pair, agrees_with_their_cache, batch_gives_what_each_gets_alone, chunks_give_the_whole
from closeness import worst_error
from latent_configs import DEEPSEEK_V4
from random_models import logits_of, make_v4, prompt

SPARSE, HEAVY = 4, 16


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, make_engine) -> Pair:
    folder = tmp_path_factory.mktemp("model")
    model = make_v4(DEEPSEEK_V4, folder)
    engine = make_engine(folder, debug=True)
    assert engine.profile.unused_config_keys == ()
    return model, engine


@pytest.mark.parametrize("length", [1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 24, 27, 28, 29, 63, 100])
def test_logits_agree(pair: Pair, length: int) -> None:
    """Around an entry of either kind, the window, a page, and the first length that leaves an entry unchosen (28)."""
    model, engine = pair
    wanted = logits_of(model, prompt(length))
    assert worst_error(engine.forward(prompt(length)), wanted) < LIMIT
    assert worst_error(engine.forward(prompt(length), chunk=16), wanted) < LIMIT


@pytest.mark.parametrize("chunk", [1, 3, 4, 5, 7, 15, 17, 62])
def test_chunks_and_decode_are_the_whole(pair: Pair, chunk: int) -> None:
    chunks_give_the_whole(pair[1], prompt(63), chunk)


def test_their_own_cache_gives_the_same(pair: Pair) -> None:
    agrees_with_their_cache(pair, prompt(63), prefill=20)


def test_a_batch_gives_what_each_gets_alone(pair: Pair) -> None:
    """Sequences that finish entries at different steps decode in one group."""
    _, engine = pair
    batch_gives_what_each_gets_alone(engine, [prompt(length) for length in (1, 2, 14, 15, 17, 40)], max_tokens=18)


@pytest.mark.parametrize(
    ("place", "from_token"),
    [
        ("layers.1.mixer.compressor.position_bias", SPARSE - 1),
        ("layers.1.mixer.indexer.compressor.position_bias", 7 * SPARSE - 1),
        ("layers.2.mixer.compressor.kv_proj.weight", HEAVY - 1),
        ("layers.0.mixer.sinks", 0),
        ("layers.0.mixer_res.base", 0),
        ("output_res.scale", 0),
        ("layers.0.ffn.router.table", 0),
    ],
)
def test_each_part_is_felt_from_where_it_counts(pair: Pair, place: str, from_token: int) -> None:
    """A part set to something else changes the numbers from its first token on and none before."""
    _, engine = pair
    before = engine.forward(prompt(63))
    parameter = engine.model.get_parameter(place)
    kept = parameter.clone()
    parameter.copy_(kept.roll(1, 0) if kept.dtype == torch.int64 else kept.flip(-1) * 2 + 0.3)
    after = engine.forward(prompt(63))
    parameter.copy_(kept)
    # Not bit for bit: later tokens that choose other experts change what an expert multiplies at once.
    assert from_token == 0 or worst_error(after[:from_token], before[:from_token]) < LIMIT
    assert worst_error(after[from_token:], before[from_token:]) > 1e-4
