"""What feed-forward blocks need: dense gated MLPs and routed experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.inventory.linear_mixers import linear_map_feed_forward
from day0.inventory.norms import norm
from day0.inventory.routers import router
from day0.inventory.use import DTYPE_WORDS, Fact, Use, linear, use
from day0.profile.mixers_linear import LinearMap
from day0.profile.profile import ActivationSpec, ArchitectureProfile, DenseFeedForward, RoutedExperts


def dense(spec: DenseFeedForward, profile: ArchitectureProfile) -> Iterator[Use]:
    yield from _mlp("ffn", profile.hidden_size, spec)


def _mlp(place: str, hidden: int, spec: DenseFeedForward) -> Iterator[Use]:
    if spec.gated:
        yield linear(f"{place}.gate_proj", hidden, spec.width, bias=spec.bias)
    yield linear(f"{place}.up_proj", hidden, spec.width, bias=spec.bias)
    activation = _gated_activation if spec.gated else _plain_activation
    if spec.gate_scale != 1.0:
        yield use("constant_scale", f"{place}.gate_scale", width=spec.width, factor=spec.gate_scale)
    yield activation(f"{place}.activation", spec.width, spec.activation)
    yield linear(f"{place}.down_proj", spec.width, hidden, bias=spec.bias)
    if spec.down_scale != 1.0:
        yield use("constant_scale", f"{place}.down_scale", width=hidden, factor=spec.down_scale)
    if spec.global_scale:
        yield use("learnt_scale", f"{place}.global_scale", width=hidden, single=1)


def _plain_activation(place: str, width: int, activation: ActivationSpec) -> Use:
    if activation.name in ("relu2", "silu"):
        return use(activation.name, place, width=width)
    return use("gelu", place, width=width, approximate="tanh" if activation.name == "gelu_tanh" else "erf")


def _gated_activation(place: str, width: int, activation: ActivationSpec) -> Use:
    match activation.name:
        case "silu" if activation.limit is not None:
            return use("clamped_silu_and_mul", place, width=width, limit=activation.limit)
        case "silu":
            return use("silu_and_mul", place, width=width)
        case "silu_clamped":
            return use("silu_clamped_and_mul", place, width=width, limit=activation.limit)
        case "swiglu_oai":
            return use("swiglu_oai_and_mul", place, width=width, alpha=activation.alpha, limit=activation.limit)
        case "situ":
            return use("situ_and_mul", place, width=width, beta=activation.beta, linear_beta=activation.linear_beta)
        case _:
            form = "tanh" if activation.name == "gelu_tanh" else "erf"
            return use("gelu_and_mul", place, width=width, approximate=form)


def routed(spec: RoutedExperts, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden = profile.hidden_size
    experts_read = hidden if spec.latent_dim is None else spec.latent_dim
    if spec.parallel is not None:
        yield from _parallel(spec.parallel, profile)
    yield from router(spec.router, hidden, profile.norm_eps)
    if spec.latent_dim is not None:
        yield linear("ffn.latent_down", hidden, spec.latent_dim)
        if spec.latent_input_norm:
            yield _norm("ffn.latent_input_norm", spec.latent_dim, profile)
    yield from _experts(spec, experts_read, profile)
    if spec.latent_dim is not None:
        if spec.latent_norm:
            yield _norm("ffn.latent_norm", spec.latent_dim, profile)
        yield linear("ffn.latent_up", spec.latent_dim, hidden)
    if spec.shared_width:
        yield from _shared(spec, hidden)
    if spec.parallel is not None:
        yield norm("ffn.experts_post_norm", profile)
        yield use("residual_add", "ffn.experts", width=hidden)


def _norm(place: str, width: int, profile: ArchitectureProfile) -> Use:
    """A norm of the model's kind over other channels than the model's own."""
    plus_one = profile.norm_kind == "rms_plus_one"
    return use("rms_norm_plus_one" if plus_one else "rms_norm", place, width=width, eps=profile.norm_eps)


def _parallel(spec: DenseFeedForward, profile: ArchitectureProfile) -> Iterator[Use]:
    """The MLP beside the experts, normed on its own; what the experts read is normed apart."""
    yield from _mlp("ffn.parallel", profile.hidden_size, spec)
    yield norm("ffn.parallel_post_norm", profile)
    yield norm("ffn.experts_norm", profile)


def _experts(spec: RoutedExperts, experts_read: int, profile: ArchitectureProfile) -> Iterator[Use]:
    facts: dict[str, Fact] = {
        "experts": spec.router.num_experts,
        "top_k": spec.router.top_k,
        "expert_in": experts_read,
        "expert_width": spec.width,
        "activation": _activation_words(spec.activation),
        "weight_format": _weight_format(profile),
    }
    if spec.expert_norm:
        yield use("normed_routed_experts", "ffn.experts", eps=profile.norm_eps, **facts)
    elif spec.bias:
        yield use("biased_routed_experts", "ffn.experts", **facts)
    elif spec.weights_on_input:
        yield use("input_weighted_experts", "ffn.experts", **facts)
    else:
        yield use("routed_experts" if spec.gated else "routed_experts_ungated", "ffn.experts", **facts)


def _weight_format(profile: ArchitectureProfile) -> str:
    """How most routed experts are stored."""
    packing = profile.quantization.of("routed_experts") if profile.quantization is not None else None
    return packing.name if packing is not None else DTYPE_WORDS[profile.dtype]


def _shared(spec: RoutedExperts, hidden: int) -> Iterator[Use]:
    activation = spec.shared_activation or spec.activation
    shared = DenseFeedForward(spec.shared_width, activation, spec.shared_bias, spec.gated)
    yield from _mlp("ffn.shared", hidden, shared)
    if spec.shared_gate:
        yield linear("ffn.shared_gate", hidden, 1)
        yield use("token_sigmoid_gate", "ffn.shared_gate", width=hidden)
    yield use("residual_add", "ffn.shared", width=hidden)


def _activation_words(spec: ActivationSpec) -> str:
    """The nonlinearity with its bound, for experts, which have it inside."""
    name = spec.name if spec.alpha is None else f"{spec.name} of {spec.alpha:g}"
    return name if spec.limit is None else f"{name} clamped at {spec.limit:g}"


FEED_FORWARD_RULES: Mapping[type, Callable[[Any, ArchitectureProfile], Iterator[Use]]] = {
    DenseFeedForward: dense,
    RoutedExperts: routed,
    LinearMap: linear_map_feed_forward,
}
"""Called with the spec and the profile it is part of."""
