"""Decoders of linear mixers against transformers: float32 logits of tiny random models, stored as their publishers do.

We write the checkpoint under the published names and layouts, and transformers reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from closeness import relative_error, worst_error
from linear_models import CONFIGS, config_of, prompt, write_model

from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.engine import Engine
from day0.runtime.models.support import missing_part
from day0.runtime.ops.registry import KERNELS, choose_operators

LIMIT = 1e-5
CHUNKED = {name: "day0-chunked" for name, kernels in KERNELS.items() if kernels[0].provider == "day0-chunked"}
COMPUTED = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
"""Buffers that follow from the numbers of head and layer; published checkpoints do not hold them."""


def read_by_transformers(folder: Path) -> transformers.PreTrainedModel:
    model, found = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    missing = [name for name in found["missing_keys"] if not name.endswith(COMPUTED)]
    assert not missing and not found["unexpected_keys"] and not found["mismatched_keys"]
    return model.eval()


@torch.no_grad()
def logits_of(model: transformers.PreTrainedModel, ids: list[int]) -> torch.Tensor:
    return model(torch.tensor([ids]), use_cache=False).logits[0]


Model = tuple[transformers.PreTrainedModel, Engine, Path]


@pytest.fixture(scope="module", params=CONFIGS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, make_engine: Any) -> Model:
    folder = tmp_path_factory.mktemp("model")
    profile = write_model(config_of(request.param), folder)
    assert profile.native and missing_part(profile) is None
    assert profile.unused_config_keys == ()
    return read_by_transformers(folder), make_engine(folder), folder


def test_logits_agree(model: Model, make_engine: Callable[..., Engine]) -> None:
    theirs, engine, folder = model
    chunked = make_engine(folder, ops=choose_operators(torch.device("cpu"), torch.float32, forced=CHUNKED))
    for length in (1, 3, 17, 70):
        wanted = logits_of(theirs, prompt(length))
        assert worst_error(engine.forward(prompt(length)), wanted) < LIMIT, f"{length} tokens"
        assert worst_error(chunked.forward(prompt(length)), wanted) < LIMIT, f"{length} tokens in chunks of operators"
    for chunk in (1, 7, 16):
        assert worst_error(chunked.forward(prompt(70), chunk=chunk), wanted) < LIMIT, f"chunks of {chunk}"


def test_a_batch_gives_what_each_gets_alone(model: Model) -> None:
    theirs, engine, _ = model
    params = SamplingParams(max_tokens=6, ignore_eos=True, logprobs=1)
    requests = [Request(str(length), tuple(prompt(length)), params) for length in (1, 5, 17, 40)]
    for request, beside in zip(requests, engine.generate(requests), strict=True):
        alone = engine.generate([request])[0]
        assert beside.token_ids == alone.token_ids
        assert beside.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
    ids = prompt(17)
    for token in engine.generate([Request("a", tuple(ids), params)])[0].token_ids:
        assert token == int(logits_of(theirs, ids)[-1].argmax())
        ids.append(token)


def test_bfloat16_keeps_states_in_float32(model: Model, make_engine: Callable[..., Engine]) -> None:
    theirs, _, folder = model
    engine = make_engine(folder, dtype="bfloat16")
    found = engine.forward(prompt(40), chunk=16)
    assert relative_error(found, logits_of(theirs, prompt(40))) < 0.2
    kept = {state.name: state.dtype for layer in engine.profile.layers for state in layer.state_shapes()}
    assert kept.get("recurrent", "float32") == "float32"


def test_a_bound_on_step_sizes_that_transformers_forgets_when_it_decodes(
    tmp_path: Path, make_engine: Callable[..., Engine]
) -> None:
    """Its full forward bounds the steps of Mamba-2, its cached decode does not: the two differ, ours do not."""
    write_model(config_of("bamba") | {"time_step_limit": [0.0, 0.2]}, tmp_path)
    theirs, engine = read_by_transformers(tmp_path), make_engine(tmp_path)
    whole = logits_of(theirs, prompt(12))
    with torch.no_grad():
        first = theirs(torch.tensor([prompt(11)]), use_cache=True)
        cached = theirs(torch.tensor([prompt(12)[11:]]), past_key_values=first.past_key_values, use_cache=True)
    assert worst_error(cached.logits[0, -1], whole[-1]) > 1e-2
    assert worst_error(engine.forward(prompt(12)), whole) < LIMIT
    assert worst_error(engine.forward(prompt(12), chunk=1), whole) < LIMIT


def test_a_state_kept_the_other_way_round_is_noticed(tmp_path: Path, make_engine: Callable[..., Engine]) -> None:
    """With keys and values of the same width only the numbers show it; here the shapes do, at the first step."""
    write_model(config_of("qwen3_next"), tmp_path)
    ops = choose_operators(torch.device("cpu"), torch.float32)
    recurrent = ops["gated_delta_recurrent"]

    def turned(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        *rows, state, scale = arguments
        output, new_state = recurrent(*rows, state, scale)
        return output, new_state.mT

    engine = make_engine(tmp_path, ops=ops.replaced("gated_delta_recurrent", turned))
    with pytest.raises(RuntimeError, match="shape"):
        engine.forward(prompt(3), chunk=1)
