"""Rotations that follow the length of a sequence (LongRoPE, dynamic NTK) against transformers, and across the switch.

transformers turns all rows of a call by the longest of them; of a cache it reads keys that turned by other frequencies
before. So its whole forward of one sequence is what is held to here, and what our cached decode must equal.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from closeness import worst_error

from day0.errors import InputError
from day0.runtime.batch import Completion, Request, SamplingParams
from day0.runtime.engine.engine import Engine
from tests.runtime.models.test_transformers_parity import edited_config, logits_of, make_model, prompt

LIMIT = 1e-5
SWITCH = 24
PHI3: dict[str, Any] = {
    "model_type": "phi3", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0,
    "original_max_position_embeddings": SWITCH, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "architectures": ["Phi3ForCausalLM"],
}  # fmt: skip
LONGROPE = {"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.2], "long_factor": [1.5, 2.0, 3.0, 5.0]}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
PHIMOE: dict[str, Any] = PHI3 | {
    "model_type": "phimoe", "architectures": ["PhimoeForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2,
    "head_dim": 8, "rope_scaling": LONGROPE | {"short_mscale": 1.2, "long_mscale": 1.4,
                                               "original_max_position_embeddings": SWITCH},
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "phi3": PHI3 | {"rope_scaling": LONGROPE},
    "phi3 attention factor": PHI3 | {"rope_scaling": LONGROPE | {"attention_factor": 1.4}},
    "phi3 a share of the channels": PHI3 | {
        "hidden_size": 64, "partial_rotary_factor": 0.5, "rope_scaling": LONGROPE
    },
    "llama dynamic": {"max_position_embeddings": SWITCH, "rope_scaling": DYNAMIC},
}  # fmt: skip


def made(name: str, folder: Path) -> Any:
    config = MODELS[name]
    return make_model(edited_config("llama") | config if name.startswith("llama") else config, folder)


def whole(model: Any, ids: list[int]) -> torch.Tensor:
    """Logits of one forward. transformers keeps a stretched base for later calls until one is short: this one is."""
    logits_of(model, ids[:1])
    return logits_of(model, ids)


@pytest.mark.parametrize("name", MODELS)
def test_logits_agree_at_every_length(name: str, tmp_path: Path, make_engine) -> None:
    model, engine = made(name, tmp_path), make_engine(tmp_path)
    assert isinstance(engine, Engine) and not engine.limits, "runs through our own blocks"
    for length in (1, SWITCH - 1, SWITCH, SWITCH + 1, 63, 100, SWITCH):
        ids = prompt(length)
        wanted = whole(model, ids)
        assert worst_error(engine.forward(ids), wanted) < LIMIT, f"{length} tokens"
        assert worst_error(engine.forward(ids, chunk=16), wanted) < LIMIT, f"{length} tokens in chunks"
    assert worst_error(engine.forward(prompt(SWITCH + 2), chunk=1), whole(model, prompt(SWITCH + 2))) < LIMIT


def greedy(model: Any, ids: list[int], count: int) -> tuple[int, ...]:
    """What a whole forward for each token says."""
    known = list(ids)
    for _ in range(count):
        known.append(int(whole(model, known)[-1].argmax()))
    return tuple(known[len(ids) :])


def answers(engine: Engine, lengths: tuple[int, ...], count: int) -> list[Completion]:
    params = SamplingParams(max_tokens=count, ignore_eos=True, logprobs=0)
    return engine.generate([Request(str(length), tuple(prompt(length)), params) for length in lengths])


@pytest.mark.parametrize("name", ["phi3", "llama dynamic"])
def test_decoding_across_the_switch_is_the_whole_forward(name: str, tmp_path: Path, make_engine) -> None:
    """In company of every age, with pages of a prefix that others computed before and after the switch."""
    model = made(name, tmp_path)
    engine = make_engine(tmp_path, max_model_len=2 * SWITCH, max_num_batched_tokens=32, page_size=4, debug=True)
    lengths = (5, SWITCH - 3, SWITCH, SWITCH + 1, 38)
    wanted = [greedy(model, prompt(length), 8) for length in lengths]
    for _ in range(2):
        assert [answer.token_ids for answer in answers(engine, lengths, 8)] == wanted
    assert answers(engine, (SWITCH - 3,), 8)[0].reused > 0, "the short one's pages are found again"
    assert engine.stats().pages_free == engine.stats().pages_total


@pytest.mark.parametrize("name", ["phi3", "llama dynamic"])
def test_keys_of_another_era_are_other_keys(name: str, tmp_path: Path, make_engine) -> None:
    """transformers' cached step across the switch is not its whole forward, which shows that this test can fail."""
    model, ids = made(name, tmp_path), prompt(SWITCH + 1)
    with torch.no_grad():
        before = model(torch.tensor([ids[:-1]]), use_cache=True)
        step = model(torch.tensor([ids[-1:]]), past_key_values=before.past_key_values).logits[0, -1]
    wanted = whole(model, ids)[-1]
    assert float((step - wanted).abs().max() / wanted.abs().max()) > 1e-3
    engine = make_engine(tmp_path, max_model_len=2 * SWITCH)
    first, second = answers(engine, (SWITCH,), 2)[0].logprobs
    (alone,) = answers(engine, (SWITCH,), 1)[0].logprobs
    assert first == alone and second != first


def test_phi_3_5_moe_has_magnitudes_of_its_own(tmp_path: Path, make_engine) -> None:
    """Up to the switch; beyond it transformers 5 keeps Phi-3.5-MoE's short factors, and the publisher does not."""
    model, engine = make_model(PHIMOE, tmp_path), make_engine(tmp_path)
    assert worst_error(engine.forward(prompt(SWITCH)), whole(model, prompt(SWITCH))) < LIMIT
    both = {"short_factor": LONGROPE["long_factor"], "short_mscale": 1.4}
    long = make_model(PHIMOE | {"rope_scaling": PHIMOE["rope_scaling"] | both}, tmp_path)
    assert worst_error(engine.forward(prompt(40)), whole(long, prompt(40))) < LIMIT


def test_a_divisor_is_missing(tmp_path: Path, make_engine) -> None:
    make_model(PHI3 | {"rope_scaling": LONGROPE}, tmp_path)
    config = (tmp_path / "config.json").read_text().replace("[1.5, 2.0, ", "[1.5, ")
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(InputError, match=r"must be 4 positive numbers.*got 3"):
        make_engine(tmp_path)
