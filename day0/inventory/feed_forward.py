"""What feed-forward blocks need: dense gated MLPs and routed experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.inventory.linear_mixers import linear_map_feed_forward
from day0.inventory.use import DTYPE_WORDS, Fact, Use, linear, use
from day0.profile.mixers_linear import LinearMap
from day0.profile.profile import ActivationSpec, ArchitectureProfile, DenseFeedForward, QuantizationSpec, RoutedExperts


def dense(spec: DenseFeedForward, profile: ArchitectureProfile) -> Iterator[Use]:
    yield from _mlp("ffn", profile.hidden_size, spec)


def _mlp(place: str, hidden: int, spec: DenseFeedForward) -> Iterator[Use]:
    if spec.gated:
        yield linear(f"{place}.gate_proj", hidden, spec.width, bias=spec.bias)
    yield linear(f"{place}.up_proj", hidden, spec.width, bias=spec.bias)
    activation = _gated_activation if spec.gated else _plain_activation
    yield activation(f"{place}.activation", spec.width, spec.activation)
    yield linear(f"{place}.down_proj", spec.width, hidden, bias=spec.bias)


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
        case "situ":
            return use("situ_and_mul", place, width=width, beta=activation.beta, linear_beta=activation.linear_beta)
        case _:
            form = "tanh" if activation.name == "gelu_tanh" else "erf"
            return use("gelu_and_mul", place, width=width, approximate=form)


def routed(spec: RoutedExperts, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden, quantization = profile.hidden_size, profile.quantization
    experts_read = hidden if spec.latent_dim is None else spec.latent_dim
    packed = quantization if quantization is not None and "routed_experts" in quantization.targets else None
    yield linear("ffn.router", hidden, spec.router.num_experts)
    yield _router(spec)
    if spec.latent_dim is not None:
        yield linear("ffn.latent_down", hidden, spec.latent_dim)
    if packed is not None:
        yield _dequantize("ffn.experts.gate", spec.width, experts_read, packed)
        yield _dequantize("ffn.experts.up", spec.width, experts_read, packed)
        yield _dequantize("ffn.experts.down", experts_read, spec.width, packed)
    yield use(
        "routed_experts" if spec.gated else "routed_experts_ungated",
        "ffn.experts",
        experts=spec.router.num_experts,
        top_k=spec.router.top_k,
        expert_in=experts_read,
        expert_width=spec.width,
        activation=_activation_words(spec.activation),
        weight_format=packed.format if packed is not None else DTYPE_WORDS[profile.dtype],
    )
    if spec.latent_dim is not None:
        if spec.latent_norm:
            yield use("rms_norm", "ffn.latent_norm", width=spec.latent_dim, eps=profile.norm_eps)
        yield linear("ffn.latent_up", spec.latent_dim, hidden)
    if spec.shared_width:
        activation = spec.shared_activation or spec.activation
        shared = DenseFeedForward(spec.shared_width, activation, spec.shared_bias, spec.gated)
        yield from _mlp("ffn.shared", hidden, shared)
        if spec.shared_gate:
            yield linear("ffn.shared_gate", hidden, 1)
            yield use("token_sigmoid_gate", "ffn.shared_gate", width=hidden)
        yield use("residual_add", "ffn.shared", width=hidden)


def _activation_words(spec: ActivationSpec) -> str:
    """The nonlinearity with its bound, for experts, which have it inside."""
    return spec.name if spec.limit is None else f"{spec.name} clamped at {spec.limit:g}"


def _router(spec: RoutedExperts) -> Use:
    router = spec.router
    if router.hash_rows:
        return use(
            "moe_router_hash",
            "ffn.router",
            experts=router.num_experts,
            top_k=router.top_k,
            table_rows=router.hash_rows,
            scoring=router.scoring,
            renormalize=router.renormalize,
            scaling_factor=router.scaling_factor,
        )
    common: dict[str, Fact] = {
        "experts": router.num_experts,
        "top_k": router.top_k,
        "renormalize": router.renormalize,
        "scaling_factor": router.scaling_factor,
        "correction_bias": router.correction_bias,
        "num_groups": router.num_groups,
        "topk_groups": router.topk_groups,
    }
    if router.best_of_group:
        return use("moe_router_group_best_softmax", "ffn.router", **common)
    return use(_ROUTERS[router.scoring], "ffn.router", **common)


_ROUTERS: Mapping[str, str] = {
    "softmax": "moe_router_topk_softmax",
    "sigmoid": "moe_router_topk_sigmoid_bias",
    "sqrtsoftplus": "moe_router_topk_sqrtsoftplus_bias",
    "sparsemixer": "moe_router_sparsemixer",
}


def _dequantize(place: str, rows: int, columns: int, packing: QuantizationSpec) -> Use:
    return use(
        f"{packing.format}_dequantize",
        place,
        rows=rows,
        columns=columns,
        row_bytes=columns // 2,
        row_groups=columns // packing.group_size,
        group_size=packing.group_size,
    )


FEED_FORWARD_RULES: Mapping[type, Callable[[Any, ArchitectureProfile], Iterator[Use]]] = {
    DenseFeedForward: dense,
    RoutedExperts: routed,
    LinearMap: linear_map_feed_forward,
}
"""Called with the spec and the profile it is part of."""
