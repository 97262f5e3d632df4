"""Every switch of the Kimi line thrown: runtime against the numpy decoder, on checkpoints of the edited config."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from closeness import relative_error
from kimi_k3_numpy import KimiK3

from day0.profile.families.table import FAMILIES
from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors
from day0.runtime.ops.registry import choose_operators
from day0.runtime.skeleton import write_tiny
from day0.source.resolve import resolve

IDS = [(61 * place + 3) % 320 for place in range(33)]
ABSENT = object()

# "linear." stands for the section of the delta attention.
VARIANTS: dict[str, dict[str, Any]] = {
    "low-rank output gate": {"linear.use_full_rank_gate": False},
    "softplus decay gate": {"linear.gate_lower_bound": None},
    "plain queries": {"q_lora_rank": ABSENT},
    "no gate on latent attention": {"mla_use_output_gate": False},
    "rotated latent attention": {"mla_use_nope": False, "rope_theta": 100.0},
    "plain residual": {"attn_res_block_size": ABSENT},
    "experts at full width": {"routed_expert_hidden_size": ABSENT},
    "no norm in the latent": {"latent_moe_use_norm": False},
    "no shared experts": {"num_shared_experts": 0},
    "one expert": {"num_experts_per_token": 1},
    "scaled, not renormalised": {"moe_renormalize": False, "routed_scaling_factor": 2.5},
    "softmax router": {"moe_router_activation_func": "softmax"},
    "limited groups": {"num_expert_group": 4, "topk_group": 2},
    "every second layer routed": {"moe_layer_freq": 2},
    "three dense layers": {"first_k_dense_replace": 3},
    "silu": {"hidden_act": "silu"},
    "unbounded up branch": {"activation_situ_linear_beta": None},
    "plain weights": {"quantization_config": ABSENT},
    "longer convolution": {"linear.short_conv_kernel_size": 6},
}
# Shrinking sets these whatever the model says; a variant's own word comes after.
SHRUNK = {"num_experts_per_token"}


@pytest.fixture
def make_variant(tmp_path: Path, monkeypatch):
    """Write the checkpoint of a variant; gives its folder."""

    def make(edits: dict[str, Any]) -> Path:
        files = resolve("recipe:kimi-k3")
        config = copy.deepcopy(dict(files.config))
        del config["vision_config"]
        text = config["text_config"]
        for path, value in edits.items():
            section = text["linear_attn_config"] if path.startswith("linear.") else text
            key = path.removeprefix("linear.")
            if value is ABSENT:
                section.pop(key)
            else:
                section[key] = value
        if SHRUNK & edits.keys():
            tiny = {**FAMILIES["kimi_k3"].tiny, **{f"text_config.{key}": edits[key] for key in SHRUNK & edits.keys()}}
            monkeypatch.setattr("day0.runtime.skeleton.find_family", lambda *a: replace(FAMILIES["kimi_k3"], tiny=tiny))
        write_tiny(replace(files, config=config), tmp_path / "model")
        return tmp_path / "model"

    return make


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_layers(make_variant, make_engine, variant: str) -> None:
    folder = make_variant(VARIANTS[variant])
    files = resolve(str(folder))
    assert compare_tensors(read_profile(files), files).sound
    wanted = KimiK3(folder).forward(IDS)["logits"]
    assert relative_error(make_engine(folder).forward(IDS, chunk=7), wanted) < 1e-4
    chunked = choose_operators(torch.device("cpu"), torch.float32, forced={"kda_chunk": "day0-chunked"})
    assert relative_error(make_engine(folder, ops=chunked).forward(IDS), wanted) < 1e-4


def test_a_variant_differs_from_the_rest(make_variant, tiny_kimi_k3: Path) -> None:
    """The numpy decoder heeds the switch: with another word for it the numbers are others."""
    folder = make_variant({"num_expert_group": 4, "topk_group": 2})
    decoder = KimiK3(folder)
    limited = decoder.forward(IDS)["logits"]
    decoder.config = decoder.config | {"topk_group": 4}
    assert relative_error(decoder.forward(IDS)["logits"], limited) > 1e-2
