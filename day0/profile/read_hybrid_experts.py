"""Feed-forward blocks of hybrid models as configs spell them."""

from __future__ import annotations

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import (
    Activation,
    ActivationSpec,
    DenseFeedForward,
    FeedForward,
    RoutedExperts,
    RouterSpec,
)
from day0.profile.read_feed_forward import checked_router, read_activation, read_num_experts


def read_qwen_hybrid_experts(
    reader: ConfigReader, index: int, *, experts: int, top_k: int, placed: bool
) -> FeedForward:
    """Softmax routing beside one gated shared expert; the arguments are what a silent config means.

    With `placed` (Qwen3-Next) some layers may be dense and `norm_topk_prob` is read; without (Qwen3.5) every layer is
    routed and the weights always add up to 1.
    """
    activation = read_activation(reader)
    if placed:
        step, dense = reader.integer("decoder_sparse_step", 1), reader.integers("mlp_only_layers", ())
        width = reader.integer("intermediate_size", 5632)
        if index in dense or (index + 1) % step:
            return DenseFeedForward(width, activation)
    router = RouterSpec(
        num_experts=read_num_experts(reader, "num_experts", "num_local_experts") if _says_experts(reader) else experts,
        top_k=reader.integer("num_experts_per_tok", top_k),
        scoring="softmax",
        renormalize=reader.flag("norm_topk_prob", True) if placed else True,
    )
    return RoutedExperts(
        router=checked_router(reader, router),
        width=reader.integer("moe_intermediate_size", 512),
        activation=activation,
        shared_width=reader.integer("shared_expert_intermediate_size", 512, minimum=0),
        shared_gate=True,
    )


def _says_experts(reader: ConfigReader) -> bool:
    return reader.has("num_experts") or reader.has("num_local_experts")


def read_lfm2_dense(reader: ConfigReader, index: int) -> DenseFeedForward:
    """LFM2: the width is two thirds of the config's, times a factor, rounded up to a multiple."""
    del index
    # The publisher's first word for the width counts before the usual one.
    key = "block_ff_dim" if reader.has("block_ff_dim") else "intermediate_size"
    reader.ignore("intermediate_size")
    width = reader.integer(key, 12288)
    if reader.flag("block_auto_adjust_ff_dim", True):
        width = int(2 * width / 3)
        multiple = reader.integer("block_multiple_of", 256)
        if "block_ffn_dim_multiplier" not in reader.values or reader.has("block_ffn_dim_multiplier"):
            width = int(reader.number("block_ffn_dim_multiplier", 1.0) * width)
            width = -(-width // multiple) * multiple
    return DenseFeedForward(width, ActivationSpec("silu"))


def read_lfm2_experts(reader: ConfigReader, index: int) -> FeedForward:
    """LFM2-MoE: leading dense layers, then sigmoid routing with a learnt bias on the choice."""
    dense_width = reader.integer("intermediate_size", 7168)
    if index < reader.integer("num_dense_layers", 2, minimum=0):
        return DenseFeedForward(dense_width, ActivationSpec("silu"))
    router = RouterSpec(
        num_experts=read_num_experts(reader, "num_experts", "num_local_experts"),
        top_k=reader.integer("num_experts_per_tok", 4),
        scoring="sigmoid",
        renormalize=reader.flag("norm_topk_prob", True),
        scaling_factor=reader.number("routed_scaling_factor", 1.0),
        correction_bias=reader.flag("use_expert_bias", True),
    )
    width = reader.integer("moe_intermediate_size", 1792)
    return RoutedExperts(checked_router(reader, router), width, ActivationSpec("silu"))


def read_jamba_feed_forward(reader: ConfigReader, index: int) -> FeedForward:
    """Jamba: experts every `expert_layer_period` layers from `expert_layer_offset` on, dense between; one width."""
    width, activation = reader.integer("intermediate_size", 14336), read_activation(reader)
    period, offset = reader.integer("expert_layer_period", 2), reader.integer("expert_layer_offset", 1, minimum=0)
    if offset >= period:
        raise InputError(f"must be less than the period {period}", where=reader.where("expert_layer_offset"))
    experts = read_num_experts(reader, "num_experts", "num_local_experts") if _says_experts(reader) else 16
    router = RouterSpec(experts, reader.integer("num_experts_per_tok", 2), scoring="softmax", renormalize=False)
    # One expert is no choice: such configs have dense layers only.
    if index % period != offset or experts == 1:
        return DenseFeedForward(width, activation)
    return RoutedExperts(checked_router(reader, router), width, activation)


_PLAIN_ACTIVATIONS: dict[str, Activation] = {"relu2": "relu2", "silu": "silu", "gelu": "gelu"}


def read_nemotron_h_mlp(reader: ConfigReader) -> DenseFeedForward:
    """An MLP without a gate, squared ReLU inside."""
    activation = ActivationSpec(reader.choice("mlp_hidden_act", _PLAIN_ACTIVATIONS, "relu2"))
    return DenseFeedForward(
        reader.integer("intermediate_size", 21504), activation, reader.flag("mlp_bias", False), gated=False
    )


def read_nemotron_h_experts(reader: ConfigReader) -> RoutedExperts:
    """Nemotron 3: DeepSeek-V3's routing over experts without a gate, in a latent space where the config has one."""
    top_k = reader.integer("num_experts_per_tok", 2)
    router = RouterSpec(
        num_experts=read_num_experts(reader, "n_routed_experts"),
        top_k=top_k,
        scoring="sigmoid",
        renormalize=reader.flag("norm_topk_prob", True),
        scaling_factor=reader.number("routed_scaling_factor", 1.0),
        correction_bias=True,
        num_groups=reader.integer("n_group", 1),
        topk_groups=reader.integer("topk_group", 1),
    )
    if reader.flag("mlp_bias", False):
        raise InputError("routed layers with biases are not known here", where=reader.where("mlp_bias"))
    shared = reader.integer("n_shared_experts", 1, minimum=0)
    return RoutedExperts(
        router=checked_router(reader, router),
        width=reader.integer("moe_intermediate_size", 7688),
        activation=ActivationSpec(reader.choice("mlp_hidden_act", _PLAIN_ACTIVATIONS, "relu2")),
        # The one shared MLP has the width given for it, however many experts it stands for.
        shared_width=reader.integer("moe_shared_expert_intermediate_size", 7688) if shared else 0,
        latent_dim=reader.optional_integer("moe_latent_size"),
        gated=False,
    )


def read_bailing_experts(reader: ConfigReader, index: int) -> FeedForward:
    """Ling: leading dense layers, then grouped sigmoid routing with a learnt bias beside shared experts."""
    activation = read_activation(reader)
    dense_width = reader.integer("intermediate_size")
    width = reader.integer("moe_intermediate_size")
    routed, shared_ones = (_clamped(reader, index, key, activation) for key in _LIMIT_KEYS)
    if index < reader.integer("first_k_dense_replace", 0, minimum=0):
        return DenseFeedForward(dense_width, activation)
    # Each size has two names: the publisher's, and those under which transformers saves it.
    top_k_key = "num_experts_per_token" if reader.has("num_experts_per_token") else "num_experts_per_tok"
    group_key = "num_expert_group" if reader.has("num_expert_group") else "n_group"
    sum_key = "moe_renormalize" if reader.has("moe_renormalize") else "norm_topk_prob"
    shared_key = "num_shared_experts" if reader.has("num_shared_experts") else "n_shared_experts"
    top_k = reader.integer(top_k_key)
    router = RouterSpec(
        num_experts=read_num_experts(reader, "num_experts", "num_local_experts"),
        top_k=top_k,
        scoring=reader.choice("score_function", {"sigmoid": "sigmoid", "softmax": "softmax"}, "sigmoid"),
        # A single expert keeps its score as weight.
        renormalize=reader.flag(sum_key, True) and top_k > 1,
        scaling_factor=reader.number("routed_scaling_factor", 1.0),
        correction_bias=reader.flag("moe_router_enable_expert_bias", True),
        num_groups=reader.integer(group_key, 8),
        topk_groups=reader.integer("topk_group", 4),
    )
    shared = reader.integer(shared_key, 0, minimum=0)
    return RoutedExperts(
        router=checked_router(reader, router, top_k_key),
        width=width,
        activation=routed,
        shared_width=shared * reader.integer("moe_shared_expert_intermediate_size", width),
        shared_activation=shared_ones if shared_ones != routed else None,
    )


_LIMIT_KEYS = ("expert_swiglu_limit_list", "share_expert_swiglu_limit_list")
"""Ling 3 was trained with clamps in its last layers, which the publisher's own modelling code does not read."""


def _clamped(reader: ConfigReader, index: int, key: str, plain: ActivationSpec) -> ActivationSpec:
    """The activation with the limit that the list under `key` has for this layer; 0 or null is no limit."""
    if not reader.has(key):
        return plain
    limits = reader.values[key]
    if not isinstance(limits, list) or len(limits) <= index:
        raise InputError(f"has no entry for layer {index}", where=reader.where(key))
    limit = limits[index] or 0
    if isinstance(limit, bool) or not isinstance(limit, int | float) or limit < 0:
        raise InputError(f"must be a limit, got {limit!r}", where=f"{reader.where(key)}[{index}]")
    return ActivationSpec("silu_clamped", limit=float(limit)) if limit else plain
