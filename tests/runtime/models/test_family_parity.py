"""Families of grouped-query decoders against transformers: float32 logits of tiny random models, variant by variant.

Weights are made and saved by transformers, in its own spelling of configs; norms, biases and sinks are drawn too, so
that a term left out shows. Publishers' spellings are tested with the readers (tests/profile).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from closeness import worst_error
from family_variants import SIZES, STORED_TURNED, TOWERS, VARIANTS
from safetensors.torch import load_file, save_file

from day0.plan.settings import EngineSettings
from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors
from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.load import load_engine
from day0.source.resolve import resolve

LIMIT = 1e-5
LENGTHS = (1, 17, 40)
"""Within one page, over its edge, and beyond every window and chunk of the configs."""


def prompt(length: int) -> list[int]:
    return [(91 * place + 7) % 256 for place in range(length)]


def config_of(variant: str) -> transformers.PreTrainedConfig:
    kind = variant.split()[0]
    text = SIZES | VARIANTS[variant]
    if kind in TOWERS:
        own = {"text_config": text, "vision_config": TOWERS[kind], "tie_word_embeddings": text["tie_word_embeddings"]}
        return transformers.AutoConfig.for_model(kind, **own)
    return transformers.AutoConfig.for_model(kind, **text)


def make_model(variant: str, folder: Path) -> transformers.PreTrainedModel:
    """A random model of a variant, saved into `folder`."""
    kind = variant.split()[0]
    classes = transformers.AutoModelForImageTextToText if kind in TOWERS else transformers.AutoModelForCausalLM
    torch.manual_seed(1)
    model = classes.from_config(config_of(variant), dtype=torch.float32, attn_implementation="eager").eval()
    for name, parameter in model.named_parameters():
        parameter.data = _drawn(name, parameter)
    for name, buffer in model.named_buffers():
        if "bias" in name or "scalar" in name:
            buffer.copy_(_drawn(name, buffer))
    model.save_pretrained(folder)
    if kind in STORED_TURNED:
        _turn(folder / "model.safetensors", STORED_TURNED[kind])
    return model


def _drawn(name: str, like: torch.Tensor) -> torch.Tensor:
    """Norms and scales near their starting value, small biases, matrices that keep the size of what they read."""
    noise = torch.randn(like.shape)
    if ("norm" in name and name.endswith("weight")) or "scalar" in name:
        return like.detach().mean().round() + 0.2 * noise
    if like.dim() == 1:
        return 0.3 * noise
    return noise if "embed" in name else noise / like.shape[-1] ** 0.5


def _turn(path: Path, endings: tuple[str, ...]) -> None:
    """Store matrices [experts, in, out], as the publisher does and transformers reads but does not write."""
    tensors = load_file(path)
    turned = {name: tensor.mT.contiguous() if name.endswith(endings) else tensor for name, tensor in tensors.items()}
    save_file(turned, path, metadata={"format": "pt"})


@torch.no_grad()
def logits_of(model: transformers.PreTrainedModel, ids: list[int]) -> torch.Tensor:
    return model(torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_agree(variant: str, tmp_path: Path) -> None:
    """Whole, in chunks, token by token, and beside others."""
    model = make_model(variant, tmp_path)
    engine = decoder_engine(tmp_path, max_model_len=64, page_size=16)
    wanted = {length: logits_of(model, prompt(length)) for length in LENGTHS}
    for length, logits in wanted.items():
        assert worst_error(engine.forward(prompt(length)), logits) < LIMIT, f"{length} tokens"
    assert worst_error(engine.forward(prompt(40), chunk=16), wanted[40]) < LIMIT, "chunks of a page"
    assert worst_error(engine.forward(prompt(17), chunk=1), wanted[17]) < LIMIT, "token by token"
    _check_batch(engine, wanted)


def decoder_engine(folder: Path, **settings: object) -> Engine:
    """An engine of our own blocks over a saved model."""
    files = resolve(str(folder))
    profile = read_profile(files)
    assert compare_tensors(profile, files).missing == ()
    assert profile.native
    options: dict[str, Any] = {"device": "cpu", "dtype": "float32", "runtime": "native"} | settings
    return load_engine(files, profile, EngineSettings(**options))


def _check_batch(engine: Engine, wanted: dict[int, torch.Tensor]) -> None:
    """Requests of every length at once, each answered as the whole forward says and as it would be alone."""
    params = SamplingParams(max_tokens=3, ignore_eos=True, logprobs=1)
    requests = [Request(str(length), tuple(prompt(length)), params) for length in LENGTHS]
    for request, found in zip(requests, engine.generate(requests), strict=True):
        alone = engine.generate([request])[0]
        assert found.token_ids == alone.token_ids
        assert found.logprobs == pytest.approx(alone.logprobs, abs=1e-5)
        assert found.token_ids[0] == int(wanted[len(request.prompt_ids)][-1].argmax())
