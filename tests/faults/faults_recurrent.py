"""Faults of mixers with a state, of residuals beyond a sum, and of latent attention."""

from __future__ import annotations

from typing import Any

import torch
from fault_switches import (
    configured,
    edited,
    exchanged,
    forgets_between_steps,
    operator,
    weights,
    within,
    without_reset,
    zeroed,
)  # fmt: skip
from hunting import Fault
from torch import Tensor
from torch.nn import functional

from day0.runtime.ops import causal_conv1d, gated_deltanet, hyper_connections, kda, norm, residual, rope

K3, NEXT, V4, GLM = "kimi-k3", "qwen3-next-80b-a3b", "deepseek-v4-pro", "glm-5.2"


def transposed(state_of: Any) -> Any:
    def run(*arguments: Any) -> tuple[Tensor, Tensor]:
        output, state = state_of(*arguments)
        return output, state.transpose(-1, -2).contiguous()

    return run


def late_taps(x: Tensor, weight: Tensor, *rest: Any) -> Any:
    return causal_conv1d.causal_conv1d(x, weight.roll(1, dims=1), *rest)


def reversed_taps(x: Tensor, weight: Tensor, *rest: Any) -> Any:
    return causal_conv1d.causal_conv1d(x, weight.flip(1), *rest)


def short_past(x: Tensor, weight: Tensor, state: Tensor, *rest: Any) -> Any:
    """A past that is handed on one input short."""
    output, past = causal_conv1d.causal_conv1d(x, weight, state, *rest)
    return output, past.roll(1, dims=-1)


def no_activation(x: Tensor, weight: Tensor, state: Tensor, activation: Any) -> Any:
    return causal_conv1d.causal_conv1d(x, weight, state, None)


def unbounded(z: Tensor, a_log: Tensor, dt_bias: Tensor, b: Tensor, lower_bound: Any) -> Any:
    return kda.kda_gate(z, a_log, dt_bias, b, None)


def without_bias(z: Tensor, a_log: Tensor, dt_bias: Tensor, *rest: Any) -> Any:
    return kda.kda_gate(z, a_log, 0 * dt_bias, *rest)


def decay_sign(*arguments: Any) -> Any:
    decay, beta = kda.kda_gate(*arguments)
    return -decay, beta


def beta_unsquashed(z: Tensor, a_log: Tensor, dt_bias: Tensor, b: Tensor, bound: Any) -> Any:
    return kda.kda_gate(z, a_log, dt_bias, b, bound)[0], functional.softplus(b.float())


def undecayed(q: Tensor, k: Tensor, v: Tensor, g: Tensor, *rest: Any) -> Any:
    return kda.kda_recurrent(q, k, v, 0 * g, *rest)


def undelta(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, scale: float) -> Any:
    """Linear attention that only adds and never takes back what it had stored."""
    outputs = []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[..., None]
        state = state + (k[:, t] * beta[:, t, :, None])[..., None] * v[:, t, ..., None, :]
        outputs.append(torch.einsum("nhkv,nhk->nhv", state, q[:, t]) * scale)
    return torch.stack(outputs, dim=1), state


def unscaled(*arguments: Any) -> Any:
    return kda.kda_chunk(*arguments[:-1], 1.0)


def silu_gate(x: Tensor, weight: Tensor, gate: Tensor, eps: float, kind: str) -> Tensor:
    return norm.gated_rms_norm(x, weight, gate, eps, "silu")


def gate_first(x: Tensor, weight: Tensor, gate: Tensor, eps: float, kind: str) -> Tensor:
    return norm.rms_norm(x * functional.silu(gate), weight, eps)


def heads_in_turn(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
    """Key heads repeated as 0 1 0 1 in place of 0 0 1 1."""
    times = v.shape[2] // k.shape[2]
    return gated_deltanet.gated_delta_recurrent(q.repeat(1, 1, times, 1), k.repeat(1, 1, times, 1), v, *rest)


def unweighed_mix(candidates: Any, weight: Tensor, query: Tensor, eps: float) -> Any:
    return residual.attention_residual_mix(candidates, torch.ones_like(weight), query, eps)


def mix_of_normed(candidates: Any, weight: Tensor, query: Tensor, eps: float) -> Any:
    _, shares = residual.attention_residual_mix(candidates, weight, query, eps)
    normed = torch.stack([norm.unit_rms_norm(one, eps) for one in candidates], dim=1)
    return (shares[..., None] * normed).sum(1), shares


def mean_mix(candidates: Any, weight: Tensor, query: Tensor, eps: float) -> Any:
    return residual.attention_residual_mix(candidates, weight, 0 * query, eps)


def once_balanced(streams: Tensor, *rest: Any) -> Any:
    *fixed, _, write_scale = rest
    return hyper_connections.hyper_connection_read(streams, *fixed, 1, write_scale)


def turned_mixing(streams: Tensor, branch: Tensor, shares: Tensor, iterations: Any) -> Tensor:
    count = streams.shape[1]
    mixing = shares[:, 2 * count :].unflatten(-1, (count, count)).mT.flatten(1)
    return hyper_connections.hyper_connection_write(
        streams, branch, torch.cat((shares[:, : 2 * count], mixing), dim=-1), iterations
    )


def lost_streams(streams: Tensor, *rest: Any) -> Tensor:
    return hyper_connections.hyper_connection_join(streams * torch.tensor([1.0, 0, 0, 0])[:, None], *rest)


def larger_blocks(config: dict[str, Any]) -> None:
    config.get("text_config", config)["attn_res_block_size"] = 4


def whole_heads(config: dict[str, Any]) -> None:
    config["partial_rotary_factor"] = 1.0


def swapped_rows(matrix: Tensor) -> Tensor:
    """Values before keys in every head's rows."""
    heads = matrix.unflatten(0, (8, -1))
    return torch.cat((heads[:, 24:], heads[:, :24]), dim=1).flatten(0, 1)


FAULTS: tuple[Fault, ...] = (
    Fault("state-transposed", "keys and values of the state exchanged, both of one size", K3, layer=0,
          point="mixer.state", kind="transposed", **operator("kda_chunk", transposed(kda.kda_chunk))),
    Fault("state-transposed-decode", "the same in decoding alone", K3, layer=0, point="mixer.state",
          kind="transposed", step=1, **operator("kda_recurrent", transposed(kda.kda_recurrent))),
    Fault("state-kept-after-abort", "a state slot is lent with what another prompt left in it", K3, layer=0,
          point="mixer.q_conv", kind="stale", source="gdn-trim-leaves-state",
          **edited(without_reset("recurrent", "conv"), "engine")),
    Fault("state-kept-recurrent", "the recurrent state alone is not cleared", NEXT, layer=0, point="mixer.attention",
          kind="stale", **edited(without_reset("recurrent"), "engine")),
    Fault("state-lost-between-chunks", "each chunk of a prompt begins without a state", K3, layer=0,
          point="mixer.state", kind="other", chunk=9, source="kda-chunked-vs-oneshot",
          **edited(forgets_between_steps("recurrent"), "engine")),
    Fault("conv-past-lost", "each chunk's convolution begins with zeros", NEXT, layer=0, point="mixer.q_conv",
          kind="other", chunk=9, **edited(forgets_between_steps("conv"), "engine")),
    Fault("conv-off-by-one", "taps of the convolution one place late", K3, layer=0, point="mixer.q_conv",
          kind="other", **operator("causal_conv1d", late_taps)),
    Fault("conv-reversed", "taps of the convolution in the reverse order", NEXT, layer=0, point="mixer.q_conv",
          kind="other", **operator("causal_conv1d", reversed_taps)),
    Fault("conv-past-turned", "inputs of the past handed on out of order", K3, layer=0, point="mixer.conv_state",
          kind="permutation", **operator("causal_conv1d", short_past)),
    Fault("conv-not-activated", "no activation behind the convolution", K3, layer=0, point="mixer.q_conv",
          kind="other", **operator("causal_conv1d", no_activation)),
    Fault("decay-bound-missing", "the decay without its lower bound", K3, layer=0, point="mixer.decay",
          kind="other", **operator("kda_gate", unbounded)),
    Fault("decay-bias-dropped", "the decay without its bias", K3, layer=0, point="mixer.decay", kind="other",
          **operator("kda_gate", without_bias)),
    Fault("decay-sign", "states grow in place of decaying", K3, layer=0, point="mixer.decay", kind="sign",
          **operator("kda_gate", decay_sign)),
    Fault("beta-softplus", "the write strength is not between 0 and 1", K3, layer=0, point="mixer.beta",
          kind="other", **operator("kda_gate", beta_unsquashed)),
    Fault("delta-without-decay", "states do not decay", K3, layer=0, point="mixer.state", kind="other",
          **operator("kda_chunk", undecayed)),
    Fault("delta-without-delta", "states only add", K3, layer=0, point="mixer.state", kind="other",
          **operator("kda_chunk", undelta)),
    Fault("delta-unscaled", "queries of the recurrence without their factor", K3, layer=0, point="mixer.attention",
          kind="scale", **operator("kda_chunk", unscaled)),
    Fault("delta-not-unit", "keys of the recurrence not brought to unit length", NEXT, layer=0, point="mixer.state",
          kind="scale", **operator("l2_norm", lambda x, eps: x)),
    Fault("delta-heads-in-turn", "key heads repeated in turn", NEXT, layer=0, point="mixer.state", kind="other",
          source="gdn-kv-head-broadcast-order", **operator("gated_delta_chunk", heads_in_turn)),
    Fault("delta-b-and-a-exchanged", "write strength and decay read each other's rows", NEXT, layer=1,
          point="mixer.decay_in", kind="other", source="gdn-ba-tp-midpoint",
          **edited(exchanged(("layers.1.mixer.in_b_proj.weight", "layers.1.mixer.in_a_proj.weight")))),
    Fault("delta-gate-kind", "silu in place of sigmoid in the output gate", K3, layer=0, point="mixer.gated",
          kind="other", **operator("gated_rms_norm", silu_gate)),
    Fault("delta-gate-first", "gated before the norm", NEXT, layer=0, point="mixer.gated", kind="scale",
          **operator("gated_rms_norm", gate_first)),
    Fault("norm-shift-twice", "one added to norm weights that have it already", NEXT, layer=1, point="mixer_in",
          kind="scale", source="num-norm-shift-twice",
          **edited(weights(lambda w: w + 1, "layers.1.mixer_norm.weight"))),
    Fault("rope-partial-ignored", "whole heads rotated in place of a quarter", NEXT, layer=3, point="mixer.q",
          kind="rotary layout", source="rope-partial-legacy-dim", **configured(whole_heads)),
    Fault("mix-unweighed", "scores of the residual mix without the norm's weight", K3, layer=0,
          point="ffn_mix_weights", kind="other", **operator("attention_residual_mix", unweighed_mix)),
    Fault("mix-of-normed", "the mix is of normed candidates", K3, layer=0, point="ffn_mix", kind="other",
          **operator("attention_residual_mix", mix_of_normed)),
    Fault("mix-mean", "the query of the residual mix is not loaded", K3, layer=4, point="mixer_mix_weights",
          kind="stale", **edited(within("layers.4.mixer_res", "attention_residual_mix", mean_mix), "operator")),
    Fault("block-boundary-off", "a block of residuals one branch longer", K3, layer=3, point="ffn_mix_weights",
          kind="shape", **configured(larger_blocks)),
    Fault("mla-gate-dropped", "latent attention without its output gate", K3, layer=3, point="mixer_out",
          kind="other", **operator("sigmoid_gate", lambda x, gate: x)),
    Fault("mla-latent-norm", "the latent is not normed", K3, layer=3, point="mixer.latent", kind="scale",
          **edited(within("layers.3.mixer.kv_a_norm", "rms_norm", lambda x, w, e: x), "operator")),
    Fault("mla-values-first", "rows of keys and values in the wrong order", GLM, layer=0, point="mixer.k_nope",
          kind="other", **edited(weights(swapped_rows, "layers.0.mixer.kv_b_proj.weight"))),
    Fault("streams-mixed-once", "the mixing matrix normalised once only", V4, layer=0, point="mixer_mix_weights",
          kind="other", source="residual-mhc-kernel-wrong", **operator("hyper_connection_read", once_balanced)),
    Fault("streams-mixing-transposed", "streams mixed by the transposed matrix", V4, layer=0, point="output",
          kind="other", source="residual-mhc-kernel-wrong", **operator("hyper_connection_write", turned_mixing)),
    Fault("streams-lost-at-the-end", "one of the streams alone reaches the head", V4, layer=None, point="norm",
          kind="other", source="pp-residual-not-sent", **operator("hyper_connection_join", lost_streams)),
    Fault("shared-kv-not-turned-back", "values of the shared cache stay rotated", V4, layer=0,
          point="mixer.attention", kind="rotary layout",
          **operator("rope_tail", lambda x, c, s, layout, inverse=False: (
              x if inverse else rope.rope_tail(x, c, s, layout)))),
    Fault("shared-kv-sinks", "sinks of the shared cache not loaded", V4, layer=1, point="mixer.attention",
          kind="scale", **edited(weights(lambda s: s - 1e4, "layers.1.mixer.sinks"))),
    Fault("kda-output-norm", "the output norm's weight not loaded", K3, layer=5, point="mixer.gated",
          kind="missing term", **edited(zeroed("layers.5.mixer.o_norm.weight"))),
)  # fmt: skip
