"""Deliberate mistakes, each one that a port has made: the comparison with the numpy decoder must notice them all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from closeness import relative_error
from kimi_k3_numpy import KimiK3
from torch.nn import functional

from day0.errors import InputError
from day0.plan.settings import EngineSettings
from day0.profile.profile import AttentionResidual
from day0.profile.read import read_profile
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.load import load_engine
from day0.runtime.ops import activation, causal_conv1d, kda, latent_attention, norm, residual, router
from day0.runtime.ops.registry import choose_operators
from day0.source.resolve import resolve

IDS = [(37 * place + 11) % 320 for place in range(40)]
LIMIT = 1e-4
NOTICED = 1e-2
"""A mistake must move the logits a hundred times further than the limit of the comparison."""


@pytest.fixture(scope="module")
def wanted(tiny_kimi_k3: Path) -> torch.Tensor:
    return torch.from_numpy(KimiK3(tiny_kimi_k3).forward(IDS)["logits"])


def test_without_a_mistake_the_comparison_passes(tiny_kimi_k3: Path, wanted: torch.Tensor, make_engine) -> None:
    assert relative_error(make_engine(tiny_kimi_k3).forward(IDS), wanted) < LIMIT


# Operators replaced: name -> (operator, what is computed instead).


def recurrence(*, decay: str = "before", delta: str = "decayed", scaled: bool = True, transposed: bool = False):
    """The delta rule with one step out of place."""

    def run(q, k, v, g, beta, state, scale):
        outputs = []
        for t in range(q.shape[1]):
            fade = g[:, t].exp()[..., None]
            old = state
            if decay == "before":
                state = state * fade
            predicted = torch.einsum("nhkv,nhk->nhv", state if delta == "decayed" else old, k[:, t])
            written = beta[:, t, :, None] * (v[:, t] - predicted)
            state = state + torch.einsum("nhk,nhv->nhkv", k[:, t], written)
            if decay == "after":
                state = state * fade
            read = state.transpose(2, 3) if transposed else state
            outputs.append(torch.einsum("nhkv,nhk->nhv", read, q[:, t]) * (scale if scaled else 1.0))
        return torch.stack(outputs, dim=1), state

    return run


def gated(x, weight, gate, eps, kind, *, before: bool = False, silu: bool = False):
    assert kind == "sigmoid"
    factor = functional.silu(gate.float()) if silu else torch.sigmoid(gate.float())
    if before:
        return norm.rms_norm(x.float() * factor, weight, eps)
    return norm.rms_norm(x.float(), weight, eps) * factor


def mix(candidates, weight, query, eps, *, normed=False, weighted=True, scaled=False, raw_scores=False):
    """An attention residual's read with one part wrong."""
    stacked = torch.stack(list(candidates), dim=1)
    plain = stacked * torch.rsqrt(stacked.square().mean(-1, keepdim=True) + eps)
    direction = query * (weight if weighted else 1.0) / (query.shape[0] ** 0.5 if scaled else 1.0)
    shares = torch.softmax((stacked if raw_scores else plain) @ direction, dim=-1)
    return torch.einsum("tc,tcw->tw", shares, plain if normed else stacked), shares


def rotated_latent(q_latent, q_rope, cache, slots, context, scale):
    """Rotary positions on the slice that has none; the cache is left as it is, so only the queries turn."""
    positions = context[:, None] + torch.arange(q_rope.shape[1])
    half = q_rope.shape[-1] // 2
    angle = positions[..., None, None] * 10000.0 ** -(torch.arange(half) / half)
    first, second = q_rope[..., :half], q_rope[..., half:]
    turned = torch.cat((first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()), -1)
    return latent_attention.paged_mla_attention(q_latent, turned, cache, slots, context, scale)


def chosen_and_weighed(logits, top_k, renormalize, scaling_factor, bias=None, *_, by_score=False, biased_weights=False):
    scores = torch.sigmoid(logits)
    ids = router._top_k(scores if by_score else scores + bias, top_k)
    return router._weigh(scores + bias if biased_weights else scores, ids, renormalize, scaling_factor), ids


def softmax_router(logits, top_k, renormalize, scaling_factor, bias=None, *_):
    return router.moe_router_topk_softmax(logits, top_k, renormalize, scaling_factor, bias)


def clamped_softplus(z, a_log, dt_bias, b, lower_bound):
    g, beta = kda.kda_gate(z, a_log, dt_bias, b, None)
    return g.clamp(min=lower_bound), beta


REPLACED: dict[str, tuple[str, Callable]] = {
    "silu instead of situ": ("situ_and_mul", lambda g, u, beta, linear_beta: activation.silu_and_mul(g, u)),
    "gate and up swapped": ("situ_and_mul", lambda g, u, **betas: activation.situ_and_mul(u, g, **betas)),
    "sigmoid of the bounded gate": (
        "situ_and_mul",
        lambda g, u, beta, linear_beta: (
            beta * (g / beta).tanh() * (beta * (g / beta).tanh()).sigmoid() * linear_beta * (u / linear_beta).tanh()
        ),
    ),
    "attention residual without its norm weight": ("attention_residual_mix", lambda *a: mix(*a, weighted=False)),
    "attention residual scaled by sqrt(width)": ("attention_residual_mix", lambda *a: mix(*a, scaled=True)),
    "attention residual scored on raw candidates": ("attention_residual_mix", lambda *a: mix(*a, raw_scores=True)),
    "attention residual of normed candidates": ("attention_residual_mix", lambda *a: mix(*a, normed=True)),
    "no attention residual": (
        "attention_residual_mix",
        lambda candidates, *a: (sum(candidates), residual.attention_residual_mix(candidates, *a)[1]),
    ),
    "convolution flipped": ("causal_conv1d", lambda x, w, *a: causal_conv1d.causal_conv1d(x, w.flip(1), *a)),
    "convolution forgets its past": (
        "causal_conv1d",
        lambda x, w, *a: causal_conv1d.causal_conv1d(x, torch.cat((0 * w[:, :-1], w[:, -1:]), 1), *a),
    ),
    "queries and keys not of unit length": ("l2_norm", lambda x, eps: x.float()),
    "epsilon in the mean, not in the sum": ("l2_norm", lambda x, eps: norm.l2_norm(x, eps) * x.shape[-1] ** 0.5),
    "softplus gate": ("kda_gate", lambda z, a, d, b, bound: kda.kda_gate(z, a, d, b, None)),
    "bound taken for a clamp": ("kda_gate", clamped_softplus),
    "write strength without sigmoid": ("kda_gate", lambda z, a, d, b, bound: (kda.kda_gate(z, a, d, b, bound)[0], b)),
    "decay after the update": ("kda_chunk", recurrence(decay="after")),
    "delta of the undecayed state": ("kda_chunk", recurrence(delta="old")),
    "recurrence without scale": ("kda_chunk", recurrence(scaled=False)),
    "state read transposed": ("kda_chunk", recurrence(transposed=True)),
    "output gate silu": ("gated_rms_norm", lambda *a: gated(*a, silu=True)),
    "gate before norm": ("gated_rms_norm", lambda *a: gated(*a, before=True)),
    "latent attention rotated": ("paged_mla_attention", rotated_latent),
    "latent attention scaled by the unrotated width alone": (
        "paged_mla_attention",
        lambda *a: latent_attention.paged_mla_attention(*a[:-1], 24**-0.5),
    ),
    "latent attention not gated": ("sigmoid_gate", lambda x, gate: x),
    "router softmax": ("moe_router_topk_sigmoid_bias", softmax_router),
    "no correction bias": ("moe_router_topk_sigmoid_bias", lambda *a: chosen_and_weighed(*a, by_score=True)),
    "weights from biased scores": (
        "moe_router_topk_sigmoid_bias",
        lambda *a: chosen_and_weighed(*a, biased_weights=True),
    ),
}


@pytest.mark.parametrize("mistake", REPLACED)
def test_operator_replaced(tiny_kimi_k3: Path, wanted: torch.Tensor, make_engine, mistake: str) -> None:
    ops = choose_operators(torch.device("cpu"), torch.float32).replaced(*REPLACED[mistake])
    logits = make_engine(tiny_kimi_k3, ops=ops).forward(IDS)
    assert torch.isfinite(logits).all()
    assert relative_error(logits, wanted) > NOTICED


# Tensors edited after loading.


def swap_nibbles(parameters: dict[str, torch.Tensor]) -> None:
    for name, tensor in parameters.items():
        if name.endswith(".packed"):
            tensor.copy_((tensor << 4) | (tensor >> 4))


def shift_scales(parameters: dict[str, torch.Tensor]) -> None:
    for name, tensor in parameters.items():
        if name.endswith(".scale"):
            tensor.sub_(1)


def swap_gate_and_up(parameters: dict[str, torch.Tensor]) -> None:
    for name, gate in parameters.items():
        if ".experts.gate." in name:
            up = parameters[name.replace(".gate.", ".up.")]
            kept = gate.clone()
            gate.copy_(up)
            up.copy_(kept)


def values_before_keys(parameters: dict[str, torch.Tensor]) -> None:
    for name, tensor in parameters.items():
        if name.endswith("kv_b_proj.weight"):
            heads = tensor.unflatten(0, (6, 24 + 16))
            tensor.copy_(torch.cat((heads[:, 24:], heads[:, :24]), dim=1).flatten(0, 1))


def decay_shared_by_heads(parameters: dict[str, torch.Tensor]) -> None:
    for name, tensor in parameters.items():
        if name.endswith("A_log"):
            tensor.fill_(float(tensor[0]))


def swap_two_layers(parameters: dict[str, torch.Tensor]) -> None:
    for name, tensor in parameters.items():
        if name.startswith("layers.1."):
            other = parameters[name.replace("layers.1.", "layers.2.", 1)]
            kept = tensor.clone()
            tensor.copy_(other)
            other.copy_(kept)


@pytest.mark.parametrize(
    "edit",
    [swap_nibbles, shift_scales, swap_gate_and_up, values_before_keys, decay_shared_by_heads, swap_two_layers],
    ids=lambda edit: edit.__name__,
)
def test_tensors_edited(tiny_kimi_k3: Path, wanted: torch.Tensor, make_engine, edit: Callable) -> None:
    engine: Engine = make_engine(tiny_kimi_k3)
    edit(dict(engine.model.named_parameters()))
    assert relative_error(engine.forward(IDS), wanted) > NOTICED


# The description of the model changed.


@pytest.mark.parametrize("block", [2, 4, 9])
def test_blocks_of_another_size(tiny_kimi_k3: Path, wanted: torch.Tensor, block: int) -> None:
    files = resolve(str(tiny_kimi_k3))
    profile = read_profile(files)
    layers = tuple(replace(layer, residual=AttentionResidual(block)) for layer in profile.layers)
    profile = replace(profile, layers=layers, residual=AttentionResidual(block))
    engine = load_engine(files, profile, EngineSettings(device="cpu", dtype="float32"))
    assert relative_error(engine.forward(IDS), wanted) > NOTICED


def test_a_looser_epsilon_in_the_latent_norms(tiny_kimi_k3: Path, wanted: torch.Tensor, make_engine) -> None:
    engine: Engine = make_engine(tiny_kimi_k3)
    for layer in (3, 7, 8):
        engine.model.layers[layer].mixer.kv_a_norm.eps = 1e-2
    assert relative_error(engine.forward(IDS), wanted) > 10 * LIMIT


def edited_config(folder: Path, tmp_path: Path, **linear: list[int]) -> Path:
    copy = tmp_path / "edited"
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    config["text_config"]["linear_attn_config"] |= linear
    (copy / "config.json").write_text(json.dumps(config))
    return copy


def test_layer_lists_that_count_from_zero_are_refused(tiny_kimi_k3: Path, tmp_path: Path, make_engine) -> None:
    folder = edited_config(tiny_kimi_k3, tmp_path, kda_layers=[0, 1, 2, 4, 5, 6], full_attn_layers=[3, 7, 8])
    with pytest.raises(InputError, match=r"must name each of the layers 1\.\.9 once") as caught:
        make_engine(folder)
    assert "linear_attn_config.kda_layers" in caught.value.where


def test_a_layer_of_the_other_kind_lacks_its_tensors(tiny_kimi_k3: Path, tmp_path: Path, make_engine) -> None:
    # Every fourth layer is full attention, but the last is too: a rule in place of the lists mislabels it.
    folder = edited_config(tiny_kimi_k3, tmp_path, kda_layers=[1, 2, 3, 5, 6, 7, 9], full_attn_layers=[4, 8])
    with pytest.raises(InputError, match="lacks 12 tensors"):
        make_engine(folder)
