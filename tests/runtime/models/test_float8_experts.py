"""MXFP4 experts that pass through FP8: the same model where blocks hold the same numbers, counted where they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from packed_checkpoints import write_pair
from rank_models import MIXTURE, MXFP4
from safetensors.torch import load_file, save_file

from day0.errors import InputError
from day0.runtime.engine.engine import Engine
from day0.runtime.models.decoder import Decoder
from day0.runtime.models.expert_weights import PackedExperts
from day0.runtime.quant.workspace import Workspace
from day0.runtime.skeleton import write_tiny
from day0.source.resolve import resolve

IDS = [(17 * place + 3) % 250 for place in range(19)]
EACH = 3 * (64 * 64 + 1)
"""Bytes of an expert as FP8: its three matrices are a block each."""


def workspace_of(engine: Engine) -> Workspace:
    assert isinstance(engine.model, Decoder)
    assert engine.model.workspace is not None
    return engine.model.workspace


def up_of(engine: Engine, expert: int) -> torch.Tensor:
    """The up projection of one expert of the first layer."""
    experts = engine.model.get_submodule("layers.0.ffn.experts")
    assert isinstance(experts, PackedExperts)
    (found,) = (one.up.clone() for one in experts.matrices([expert]))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pair(MIXTURE, MXFP4, tmp_path_factory.mktemp("model"))[0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kept", [0, 3 * EACH, 1 << 20])
def test_where_scales_allow_it_is_the_same_model(folder: Path, dtype: str, kept: int, make_engine: Any) -> None:
    plain: Engine = make_engine(folder, dtype=dtype)
    coded: Engine = make_engine(folder, dtype=dtype, expert_dtype="fp8", expert_cache_bytes=kept)
    for chunk in (19, 1):
        assert torch.equal(coded.forward(IDS, chunk=chunk), plain.forward(IDS, chunk=chunk))
    workspace = workspace_of(coded)
    assert workspace.encoded_blocks > 0
    assert workspace.rounded_blocks == 0
    assert coded.memory.workspace_bytes == 3 * 64 * 64 * workspace.dtype.itemsize + EACH
    assert coded.memory.expert_cache_bytes == min(kept, 12 * EACH) // EACH * EACH
    assert (workspace.hot.stats.hits > 0) == (kept > 0)


def test_biases_of_experts_are_not_asked_for_mxfp4(tmp_path: Path, make_engine: Any) -> None:
    """gpt-oss has them beside its packed matrices."""
    write_tiny(resolve("recipe:gpt-oss-120b"), tmp_path)
    plain, coded = make_engine(tmp_path), make_engine(tmp_path, expert_dtype="fp8")
    assert torch.equal(coded.forward(IDS), plain.forward(IDS))
    assert workspace_of(coded).encoded_blocks > 0


def test_a_block_of_wider_span_is_counted_and_rounded(folder: Path, tmp_path: Path, make_engine: Any) -> None:
    """One group of 32 lies 2^20 below the rest of its block, too small to be felt, so it is looked at itself."""
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if ".experts." in name and name.endswith("weight_scale")]:
        tensors[name].view(torch.uint8)[0, 0] -= 20
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    save_file(tensors, tmp_path / "model.safetensors")
    plain, coded = make_engine(tmp_path), make_engine(tmp_path, expert_dtype="fp8")
    coded.forward(IDS)
    workspace = workspace_of(coded)
    assert workspace.rounded_blocks == workspace.encoded_blocks > 0
    wanted, found = up_of(plain, 2), up_of(coded, 2)
    assert torch.equal(found[1:], wanted[1:]) and torch.equal(found[0, 32:], wanted[0, 32:])
    assert not torch.equal(found[0, :32], wanted[0, :32])
    assert (found - wanted).abs().max() <= wanted.abs().max() * 2.0**-18


def test_experts_that_come_and_go(tmp_path: Path, make_engine: Any) -> None:
    write_tiny(resolve("recipe:kimi-k3"), tmp_path)
    wanted = make_engine(tmp_path).forward(IDS)
    coded = make_engine(tmp_path, expert_dtype="fp8", offload="disk", expert_cache_bytes=1 << 24)
    assert torch.equal(coded.forward(IDS), wanted)
    assert torch.equal(coded.forward(IDS), wanted)
    assert workspace_of(coded).rounded_blocks == 0
    assert workspace_of(coded).hot.stats.hits > 0


@pytest.mark.parametrize("name", ["plain", "nvfp4", "no experts", "float16"])
def test_what_is_not_mxfp4_is_refused(name: str, folder: Path, tmp_path: Path, tiny: Any, make_engine: Any) -> None:
    settings = {"dtype": "float16"} if name == "float16" else {}
    if name == "no experts":
        folder = tiny("llama-3.1-8b")
    elif name == "nvfp4":
        groups = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}}}
        section = MXFP4 | {"format": "nvfp4-pack-quantized", "config_groups": groups}
        folder = write_pair(MIXTURE, section, tmp_path)[0]
    elif name == "plain":
        folder = tiny("qwen3-30b-a3b")
    with pytest.raises(InputError, match="MXFP4") as caught:
        make_engine(folder, expert_dtype="fp8", **settings)
    assert caught.value.where == "--expert-dtype"


def test_transformers_definition_is_refused(tiny: Any, make_engine: Any) -> None:
    with pytest.raises(InputError, match="holds its own experts"):
        make_engine(tiny("qwen3-30b-a3b"), expert_dtype="fp8", runtime="upstream")
