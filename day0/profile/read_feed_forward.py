"""Feed-forward blocks as configs spell them: dense gated MLPs and routed experts."""

from __future__ import annotations

from collections.abc import Mapping

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import (
    Activation,
    ActivationSpec,
    DenseFeedForward,
    FeedForward,
    RoutedExperts,
    RouterSpec,
    Scoring,
)

_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu2": "relu2",
    "situ": "situ",
}
MAX_EXPERTS = 1 << 16
"""More experts a layer than this are refused, as `read.MAX_LAYERS` refuses layers."""

_SCORINGS: Mapping[str, Scoring] = {"softmax": "softmax", "sigmoid": "sigmoid"}


def read_activation(reader: ConfigReader, key: str = "hidden_act", default: str = "silu") -> ActivationSpec:
    """The activation under `key`; for SiTU with its two bounds (null: 1 for the gate, none for the other)."""
    name = reader.choice(key, _ACTIVATIONS, default)
    if name != "situ":
        return ActivationSpec(name)
    return ActivationSpec(
        name,
        beta=reader.number("activation_situ_beta", 1.0),
        linear_beta=reader.optional_number("activation_situ_linear_beta"),
    )


def read_dense(
    reader: ConfigReader,
    index: int,
    *,
    bias_key: str | None = None,
    activation: str = "hidden_act",
    silent: str = "silu",
) -> DenseFeedForward:
    """One gated MLP of `intermediate_size`, the same in every layer; `silent` is the activation of silent configs."""
    del index
    bias = reader.flag(bias_key, False) if bias_key else False
    return DenseFeedForward(reader.integer("intermediate_size"), read_activation(reader, activation, silent), bias)


def read_mixtral_experts(reader: ConfigReader, index: int) -> RoutedExperts:
    """Mixtral: softmax over the chosen experts, which equals softmax over all followed by renormalisation."""
    del index
    router = RouterSpec(
        num_experts=read_num_experts(reader, "num_local_experts", "num_experts"),
        top_k=reader.integer("num_experts_per_tok"),
        scoring="softmax",
        renormalize=True,
    )
    return RoutedExperts(checked_router(reader, router), reader.integer("intermediate_size"), read_activation(reader))


def read_qwen_moe(reader: ConfigReader, index: int) -> FeedForward:
    """Qwen3-MoE: routed where `decoder_sparse_step` divides the layer's number and `mlp_only_layers` leaves it."""
    step = reader.integer("decoder_sparse_step", 1)
    dense_layers = reader.integers("mlp_only_layers", ())
    routed = index not in dense_layers and (index + 1) % step == 0
    # Read for every layer, so that a config's use of its keys does not depend on which layers are dense.
    dense_width = reader.integer("intermediate_size")
    router = RouterSpec(
        num_experts=read_num_experts(reader, "num_experts", "num_local_experts"),
        top_k=reader.integer("num_experts_per_tok"),
        scoring="softmax",
        renormalize=reader.flag("norm_topk_prob", False),
    )
    width = reader.integer("moe_intermediate_size")
    activation = read_activation(reader)
    if not routed:
        return DenseFeedForward(dense_width, activation)
    return RoutedExperts(checked_router(reader, router), width, activation)


def read_kimi_moe(reader: ConfigReader, index: int) -> FeedForward:
    """Kimi: leading dense layers, then routed experts (in a latent space for K3) beside one shared MLP."""
    activation = read_activation(reader)
    first, step = reader.integer("first_k_dense_replace", 0, minimum=0), reader.integer("moe_layer_freq", 1)
    dense_width = reader.integer("intermediate_size")
    if index < first or index % step:
        return DenseFeedForward(dense_width, activation)
    width = reader.integer("moe_intermediate_size")
    return RoutedExperts(
        router=checked_router(reader, _read_kimi_router(reader), "num_experts_per_token"),
        width=width,
        activation=activation,
        shared_width=width * reader.integer("num_shared_experts", 0, minimum=0),
        latent_dim=reader.optional_integer("routed_expert_hidden_size"),
        latent_norm=reader.flag("latent_moe_use_norm", False),
    )


def _read_kimi_router(reader: ConfigReader) -> RouterSpec:
    # "noaux_tc" is the choice by score plus a learnt bias, free of an auxiliary loss (DeepSeek-V3).
    method = reader.choice("topk_method", {"noaux_tc": "noaux_tc"}, "noaux_tc")
    groups, top_k = reader.integer("num_expert_group", 1), reader.integer("num_experts_per_token")
    grouped = reader.flag("use_grouped_topk", groups > 1)
    if not grouped:
        reader.ignore("topk_group")
    return RouterSpec(
        num_experts=read_num_experts(reader, "num_experts"),
        top_k=top_k,
        scoring=reader.choice("moe_router_activation_func", _SCORINGS, "sigmoid"),
        # A single expert keeps its score as weight: this line of models renormalises only among several.
        renormalize=reader.flag("moe_renormalize", True) and top_k > 1,
        scaling_factor=reader.number("routed_scaling_factor", 1.0),
        correction_bias=method == "noaux_tc",
        num_groups=groups if grouped else 1,
        topk_groups=reader.integer("topk_group", 1) if grouped else 1,
    )


def read_num_experts(reader: ConfigReader, *spellings: str) -> int:
    """The first spelling that is there: transformers 5 saves `num_experts` as `num_local_experts`."""
    key = next((spelling for spelling in spellings if reader.has(spelling)), spellings[0])
    return reader.integer(key, maximum=MAX_EXPERTS)


def checked_router(reader: ConfigReader, router: RouterSpec, top_k_key: str = "num_experts_per_tok") -> RouterSpec:
    """The router itself; raises InputError where its sizes contradict each other."""
    if router.num_experts % router.num_groups or router.topk_groups > router.num_groups:
        raise InputError(
            f"{router.num_experts} experts in {router.num_groups} groups, {router.topk_groups} of them chosen",
            where=reader.where("num_expert_group"),
        )
    eligible = router.num_experts // router.num_groups * router.topk_groups
    if router.top_k > eligible:
        raise InputError(f"each token chooses {router.top_k} of {eligible} experts", where=reader.where(top_k_key))
    return router
