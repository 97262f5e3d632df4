"""Attention with short convolutions as configs spell it."""

from __future__ import annotations

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.mixers_convolved import CompressedConvolutionalAttention, LogTemperature, RelativeConvolvedAttention
from day0.profile.profile import (
    ActivationSpec,
    BranchConvolution,
    DenseFeedForward,
    FeedForward,
    RoutedExperts,
    RouterMlp,
    RouterSpec,
)
from day0.profile.read_feed_forward import checked_router, read_activation, read_num_experts
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.read_positions import read_rope

_SLIDES = {"hybrid": False, "hybrid_sliding": True}


def read_cca(reader: ConfigReader, index: int) -> CompressedConvolutionalAttention:
    """ZAYA's attention; kinds of layer have rotary parameters of their own, over half of each head."""
    slides = read_layer_kind(reader, index, _SLIDES, lambda i: False)
    heads, kv_heads = reader.integer("num_attention_heads", 8), reader.integer("num_key_value_heads", 2)
    if heads % kv_heads:
        raise InputError(
            f"{heads} attention heads cannot share {kv_heads} key/value heads",
            where=reader.where("num_key_value_heads"),
        )
    width = reader.integer("head_dim", 128)
    section = reader.section("rope_parameters")
    if section is not None:
        section.ignore("rope_type")  # repeated outside of the kinds by the publisher
    kind, theta = ("hybrid_sliding", 1e4) if slides else ("hybrid", 5e6)
    return CompressedConvolutionalAttention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=width,
        rope=read_rope(reader, width, theta=theta, kind=kind, fraction=0.5),
        scale=width**-0.5,
        conv_kernels=(reader.integer("cca_time0", 2), reader.integer("cca_time1", 2)),
        bias=reader.flag("attention_bias", False),
        window=_window(reader, "sliding_window", slides),
    )


def _window(reader: ConfigReader, key: str, slides: bool) -> int | None:
    said = reader.optional_integer(key)
    if slides and said is None:
        raise InputError("is missing, but layers slide", where=reader.where(key))
    return said if slides else None


def read_zaya_experts(reader: ConfigReader, index: int) -> RoutedExperts:
    """ZAYA's routing: an MLP that carries its state from layer to layer, and one choice that computes nothing."""
    router = RouterSpec(
        num_experts=read_num_experts(reader, "num_experts", "num_local_experts"),
        top_k=reader.integer("num_experts_per_tok", 1),
        scoring="softmax",
        renormalize=False,
        correction_bias=True,
        mlp=RouterMlp(reader.integer("router_hidden_size", 256), carried=index > 0),
        skip=True,
    )
    width = reader.integer("moe_intermediate_size", 2048)
    return RoutedExperts(checked_router(reader, router), width, read_activation(reader))


def read_relative_attention(reader: ConfigReader, index: int) -> RelativeConvolvedAttention:
    """Inkling's attention, whose sliding layers have sizes and an extent of their own."""
    slides = _inkling_slides(reader, index)
    prefix = "swa_" if slides else ""
    heads = reader.integer(f"{prefix}num_attention_heads", 64)
    kv_heads = reader.integer(f"{prefix}num_key_value_heads", 16 if slides else 8)
    width = reader.integer(f"{prefix}head_dim", 128)
    window = reader.integer("sliding_window_size", 512)
    extent = reader.integer("rel_extent", 1024)
    floor, growth = reader.optional_integer("log_scaling_n_floor"), reader.number("log_scaling_alpha", 0.1)
    return RelativeConvolvedAttention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=width,
        # Queries and keys have a norm per head: the products are over channels, not over their root.
        scale=1.0 / width,
        conv_kernel=_inkling_taps(reader),
        relative_dim=reader.integer("d_rel", 16),
        relative_extent=window if slides else extent,
        window=window if slides else None,
        temperature=LogTemperature(floor, growth) if floor is not None and not slides else None,
    )


def _inkling_slides(reader: ConfigReader, index: int) -> bool:
    if reader.has("layer_types"):
        reader.ignore("local_layer_ids")
    return read_layer_kind(reader, index, _SLIDES, lambda i: _is_local(reader, i))


def _is_local(reader: ConfigReader, index: int) -> bool:
    """All but every sixth layer slide, unless a list says which."""
    return index in reader.integers("local_layer_ids") if reader.has("local_layer_ids") else bool((index + 1) % 6)


def _inkling_taps(reader: ConfigReader) -> int:
    key = "sconv_kernel_size" if reader.has("sconv_kernel_size") else "conv_kernel_size"
    return reader.integer(key, 4, minimum=2)


def read_inkling_convolution(reader: ConfigReader) -> BranchConvolution:
    return BranchConvolution(reader.integer("hidden_size"), _inkling_taps(reader))


def read_inkling_feed_forward(reader: ConfigReader, index: int) -> FeedForward:
    """Sigmoid routing that weighs routed and shared experts together; dense layers where the config has any."""
    activation = read_activation(reader)
    # Where the dense width has a key of its own, the plain one is the experts'.
    own_key = reader.has("dense_intermediate_size")
    dense_width = reader.integer("dense_intermediate_size" if own_key else "intermediate_size", 24576)
    width = reader.integer("intermediate_size" if own_key else "moe_intermediate_size", 3072)
    first = reader.integer("dense_mlp_idx", 0, minimum=0) if reader.has("dense_mlp_idx") else 0
    kinds = {"dense": True, "sparse": False}
    if read_layer_kind(reader, index, kinds, lambda i: i < first, "mlp_layer_types"):
        return inkling_dense(dense_width, activation)
    shared = reader.integer("n_shared_experts", 2)
    router = RouterSpec(
        num_experts=read_num_experts(reader, "n_routed_experts", "num_local_experts"),
        top_k=reader.integer("num_experts_per_tok", 6),
        scoring="sigmoid",
        renormalize=True,
        scaling_factor=reader.number("route_scale", 8.0),
        correction_bias=True,
        shared_choices=shared,
        global_scale=True,
    )
    return RoutedExperts(checked_router(reader, router), width, activation, shared_width=shared * width)


def inkling_dense(width: int, activation: ActivationSpec) -> DenseFeedForward:
    return DenseFeedForward(width, activation, global_scale=True)
