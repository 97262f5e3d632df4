"""Weights into a transformers model: all of them, in the dtype asked for, and never from a pickle."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from day0.errors import CannotSay, InputError
from day0.runtime.upstream.definition import find_definition
from day0.runtime.upstream.load import load_model
from day0.source.resolve import resolve


@pytest.fixture
def changed(made, tmp_path: Path) -> Callable[..., Path]:
    """`changed(change, **config)`: a copy of the tiny gpt2 with other tensors or another config."""

    def make(change=None, **config: object) -> Path:
        folder = shutil.copytree(made("gpt2").folder, tmp_path / "changed")
        shard = folder / "model.safetensors"
        tensors = load_file(shard)
        if change is not None:
            change(tensors)
        save_file(tensors, shard, metadata={"format": "pt"})
        stored = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(stored | config))
        return folder

    return make


def model_of(folder: Path):
    files = resolve(str(folder))
    definition = find_definition(files, trust_remote_code=False)
    return load_model(files, definition, torch.float32, torch.device("cpu"))


def test_every_parameter_is_what_was_saved(made) -> None:
    model, account = model_of(made("jamba").folder)
    wanted = made("jamba").model.state_dict()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in model.state_dict().items())
    assert (account.unexpected, account.packing) == ((), None)


def test_a_missing_tensor_is_named_and_not_made_up(changed) -> None:
    with pytest.raises(InputError, match=r"lacks 1 tensors of transformers' model: .*h\.1\.mlp\.c_fc\.bias"):
        model_of(changed(lambda tensors: tensors.pop("transformer.h.1.mlp.c_fc.bias")))


def test_a_tensor_of_another_shape_is_named(changed) -> None:
    def cut(tensors: dict[str, torch.Tensor]) -> None:
        tensors["transformer.ln_f.weight"] = tensors["transformer.ln_f.weight"][:-1].clone()

    with pytest.raises(InputError, match=r"ln_f\.weight has shape \[31\], the config asks for \[32\]"):
        model_of(changed(cut))


def test_a_tensor_that_nothing_takes_is_kept_in_the_account(changed) -> None:
    _, account = model_of(changed(lambda tensors: tensors.update({"transformer.extra": torch.ones(2)})))
    assert account.unexpected == ("transformer.extra",)


def test_pickles_are_not_read(made) -> None:
    files = resolve(str(made("gpt2").folder))
    definition = find_definition(files, trust_remote_code=False)
    with pytest.raises(InputError, match=r"pickles .* are never read"):
        load_model(replace(files, tensors=None), definition, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("method", ["unheard-of", "awq"])
def test_packed_weights_that_cannot_be_read_here_are_refused_by_name(method: str, changed) -> None:
    # Passed over, bits would be taken for numbers.
    section = {"quant_method": method, "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}
    with pytest.raises(CannotSay, match="unheard-of" if method == "unheard-of" else "does not load the model"):
        model_of(changed(quantization_config=section))


def test_the_dtype_and_its_limits_are_honoured(made, upstream) -> None:
    engine = upstream(made("gpt2").folder, dtype="bfloat16")
    assert {p.dtype for p in engine.model.parameters()} == {torch.bfloat16}
    assert engine.memory.weight_bytes >= sum(p.nbytes for p in engine.model.parameters())
    with pytest.raises(InputError, match="cache in the dtype of the model"):
        upstream(made("gpt2").folder, kv_dtype="bfloat16")
