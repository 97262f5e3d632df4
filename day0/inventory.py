"""Profile -> the operators a model needs, each with its concrete shapes, phases and layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from day0.operators import OPERATORS, Phase
from day0.profile.profile import (
    ActivationSpec,
    ArchitectureProfile,
    AttentionResidual,
    DenseFeedForward,
    GroupedQueryAttention,
    KimiDeltaAttention,
    LatentAttention,
    LayerSpec,
    QuantizationSpec,
    RopeSpec,
    RoutedExperts,
    VisionSpec,
)
from day0.profile.vision_tensors import CHANNELS

Fact = int | float | str | bool | None

DTYPE_WORDS: Mapping[str, str] = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
"""What operators call the dtypes that safetensors headers name."""


@dataclass(frozen=True, slots=True)
class OperatorNeed:
    """One operator at one set of sizes. `layers` are decoder layers, empty for what stands outside of them.

    `shapes` gives every axis that the model fixes, `attributes` every scalar parameter of the operator, and
    `used_for` the places by our parameter paths, relative to the layer.
    """

    name: str
    layers: tuple[int, ...]
    phases: tuple[Phase, ...]
    shapes: Mapping[str, int]
    attributes: Mapping[str, Fact]
    dtype: str
    used_for: tuple[str, ...]

    @property
    def facts(self) -> dict[str, Fact]:
        """Everything that a constraint may be put on."""
        return {**self.shapes, **self.attributes, "dtype": self.dtype}


@dataclass(frozen=True, slots=True)
class _Use:
    """One place where an operator is used, with every axis and attribute of its contract."""

    operator: str
    place: str
    facts: tuple[tuple[str, Fact], ...]


@dataclass(slots=True)
class _Places:
    """Where one operator at one set of facts is used; dicts keep the order of the forward pass."""

    layers: dict[int, None] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    phases: set[Phase] = field(default_factory=set)


def operators_needed(profile: ArchitectureProfile) -> tuple[OperatorNeed, ...]:
    """All needs in the order of the forward pass; places that differ in nothing but layer or name are one need."""
    gathered: dict[tuple[str, tuple[tuple[str, Fact], ...]], _Places] = {}
    for layer, use in _all_uses(profile):
        places = gathered.setdefault((use.operator, use.facts), _Places())
        places.names[use.place] = None
        if layer is not None:
            places.layers[layer] = None
        places.phases |= _phases(use)
    dtype = DTYPE_WORDS[profile.dtype]
    return tuple(_need(operator, facts, places, dtype) for (operator, facts), places in gathered.items())


def layer_operators(profile: ArchitectureProfile, layer: LayerSpec) -> tuple[str, ...]:
    """Names of the operators of one layer, each once, in the order of the forward pass."""
    return tuple(dict.fromkeys(use.operator for use in _layer_uses(profile, layer)))


def _need(operator: str, facts: tuple[tuple[str, Fact], ...], places: _Places, dtype: str) -> OperatorNeed:
    contract = OPERATORS[operator]
    return OperatorNeed(
        name=operator,
        layers=tuple(places.layers),
        phases=tuple(phase for phase in contract.phases if phase in places.phases),
        shapes={name: value for name, value in facts if name in contract.model_axes and isinstance(value, int)},
        attributes={name: value for name, value in facts if name in contract.attributes},
        dtype=dtype,
        used_for=tuple(places.names),
    )


def _phases(use: _Use) -> set[Phase]:
    """Images are only ever part of a prompt, whatever else their operators serve."""
    phases = set(OPERATORS[use.operator].phases)
    return phases & {"prefill"} if use.place.startswith("vision.") else phases


def _use(operator: str, place: str, **facts: Fact) -> _Use:
    contract = OPERATORS[operator]
    wanted = {*contract.model_axes, *contract.attributes}
    assert facts.keys() == wanted, f"{operator} wants {sorted(wanted)}, given {sorted(facts)}"
    return _Use(operator, place, tuple(facts.items()))


def _all_uses(profile: ArchitectureProfile) -> Iterator[tuple[int | None, _Use]]:
    hidden, vocab = profile.hidden_size, profile.vocab_size
    if not profile.layers:
        return
    yield None, _use("embedding_lookup", "embed", vocab=vocab, width=hidden)
    if profile.vision is not None:
        for use in _vision(profile.vision):
            yield None, use
    for layer in profile.layers:
        for use in _layer_uses(profile, layer):
            yield layer.index, use
    if isinstance(profile.residual, AttentionResidual):
        yield None, _residual_mix("output_res", profile, profile.residual)
    yield None, _use("rms_norm", "norm", width=hidden, eps=profile.norm_eps)
    yield None, _use("lm_head", "lm_head", vocab=vocab, width=hidden)
    yield None, _use("sampling", "sampling", vocab=vocab)


def _layer_uses(profile: ArchitectureProfile, layer: LayerSpec) -> Iterator[_Use]:
    hidden, eps = profile.hidden_size, profile.norm_eps
    yield from _residual_read("mixer_res", profile, layer)
    yield _use("rms_norm", "mixer_norm", width=hidden, eps=eps)
    match layer.mixer:
        case GroupedQueryAttention():
            yield from _grouped_query(layer.mixer, hidden, eps)
        case LatentAttention():
            yield from _latent(layer.mixer, hidden)
        case KimiDeltaAttention():
            yield from _kimi_delta(layer.mixer, hidden)
    yield _use("residual_add", "mixer", width=hidden)
    yield from _residual_read("ffn_res", profile, layer)
    yield _use("rms_norm", "ffn_norm", width=hidden, eps=eps)
    match layer.feed_forward:
        case DenseFeedForward():
            yield from _gated_mlp("ffn", hidden, layer.feed_forward)
        case RoutedExperts():
            yield from _routed(layer.feed_forward, hidden, eps, DTYPE_WORDS[profile.dtype], profile.quantization)
    yield _use("residual_add", "ffn", width=hidden)


def _residual_read(place: str, profile: ArchitectureProfile, layer: LayerSpec) -> Iterator[_Use]:
    # The first layer's mixer reads the embedding itself: there is nothing to mix yet.
    if isinstance(layer.residual, AttentionResidual) and (layer.index > 0 or place != "mixer_res"):
        yield _residual_mix(place, profile, layer.residual)


def _residual_mix(place: str, profile: ArchitectureProfile, spec: AttentionResidual) -> _Use:
    return _use(
        "attention_residual_mix",
        place,
        width=profile.hidden_size,
        eps=profile.norm_eps,
        block_size=spec.block_size,
    )


def _linear(place: str, in_features: int, out_features: int, *, bias: bool = False) -> _Use:
    return _use("linear", place, in_features=in_features, out_features=out_features, bias=bias)


def _grouped_query(spec: GroupedQueryAttention, hidden: int, eps: float) -> Iterator[_Use]:
    heads, kv_heads, dim = spec.num_heads, spec.num_kv_heads, spec.head_dim
    yield _linear("mixer.q_proj", hidden, heads * dim, bias=spec.qkv_bias)
    for axis in "kv":
        yield _linear(f"mixer.{axis}_proj", hidden, kv_heads * dim, bias=spec.qkv_bias)
    if spec.qk_norm:
        yield _use("qk_norm", "mixer.qk_norm", heads=heads, kv_heads=kv_heads, head_dim=dim, eps=eps)
    if spec.rope is not None:
        yield from _rotary(spec.rope, dim, q=heads, k=kv_heads)
    for plane in spec.cache_planes():
        yield _use("paged_cache_write", f"mixer.cache.{plane.name}", width=plane.elements)
    yield _use(
        "paged_gqa_attention",
        "mixer.attention",
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        scale=spec.scale,
        window=spec.window,
    )
    yield _linear("mixer.o_proj", heads * dim, hidden, bias=spec.o_bias)


def _rotary(spec: RopeSpec, head_dim: int, **heads: int) -> Iterator[_Use]:
    """The table once, then the rotation of each kind of head."""
    pairs = spec.dim // 2
    yield _use("rope_table", "mixer.rope", rope_pairs=pairs, theta=spec.theta, scaling=spec.scaling)
    for kind, count in heads.items():
        yield _use("rope", f"mixer.rope.{kind}", heads=count, head_dim=head_dim, rope_pairs=pairs, layout=spec.layout)


def _latent(spec: LatentAttention, hidden: int) -> Iterator[_Use]:
    heads, latent, rope_dim = spec.num_heads, spec.kv_lora_rank, spec.qk_rope_head_dim
    value, query, eps = heads * spec.v_head_dim, heads * spec.qk_head_dim, spec.latent_norm_eps
    if spec.q_lora_rank is None:
        yield _linear("mixer.q_proj", hidden, query)
    else:
        yield _linear("mixer.q_a_proj", hidden, spec.q_lora_rank)
        yield _use("rms_norm", "mixer.q_a_norm", width=spec.q_lora_rank, eps=eps)
        yield _linear("mixer.q_b_proj", spec.q_lora_rank, query)
    yield _linear("mixer.kv_a_proj", hidden, latent + rope_dim)
    yield _use("rms_norm", "mixer.kv_a_norm", width=latent, eps=eps)
    if spec.rope is not None:
        yield from _rotary(spec.rope, rope_dim, q=heads, k=1)
    for plane in spec.cache_planes():
        yield _use("paged_cache_write", f"mixer.cache.{plane.name}", width=plane.elements)
    yield _use(
        "head_linear", "mixer.kv_b_proj.keys", heads=heads, in_features=spec.qk_nope_head_dim, out_features=latent
    )
    yield _use(
        "paged_mla_attention",
        "mixer.attention",
        heads=heads,
        latent_dim=latent,
        rope_dim=rope_dim,
        cached_dim=latent + rope_dim,
        scale=spec.scale,
    )
    yield _use("head_linear", "mixer.kv_b_proj.values", heads=heads, in_features=latent, out_features=spec.v_head_dim)
    if spec.output_gate:
        yield _linear("mixer.g_proj", hidden, value)
        yield _use("sigmoid_gate", "mixer.gate", width=value)
    yield _linear("mixer.o_proj", value, hidden)


def _kimi_delta(spec: KimiDeltaAttention, hidden: int) -> Iterator[_Use]:
    heads, dim, width, taps = spec.num_heads, spec.head_dim, spec.width, spec.conv_kernel
    for axis in "qkv":
        yield _linear(f"mixer.{axis}_proj", hidden, width)
    for axis in "qkv":
        yield _use("causal_conv1d", f"mixer.{axis}_conv", width=width, taps=taps, past_taps=taps - 1, activation="silu")
    for axis in "qk":
        yield _use("l2_norm", f"mixer.{axis}_norm", heads=heads, head_dim=dim)
    yield _linear("mixer.f_a_proj", hidden, dim)
    yield _linear("mixer.f_b_proj", dim, width)
    yield _linear("mixer.b_proj", hidden, heads)
    yield _use("kda_gate", "mixer.decay", heads=heads, head_dim=dim, lower_bound=spec.gate_lower_bound)
    for operator in ("kda_chunk", "kda_recurrent"):
        yield _use(operator, "mixer.delta", heads=heads, head_dim=dim, value_dim=dim, scale=dim**-0.5)
    if spec.full_rank_gate:
        yield _linear("mixer.g_proj", hidden, width)
    else:
        yield _linear("mixer.g_a_proj", hidden, dim)
        yield _linear("mixer.g_b_proj", dim, width)
    yield _use("gated_rms_norm", "mixer.o_norm", heads=heads, head_dim=dim, eps=spec.norm_eps, activation="sigmoid")
    yield _linear("mixer.o_proj", width, hidden)


def _gated_activation(place: str, width: int, activation: ActivationSpec) -> _Use:
    match activation.name:
        case "silu":
            return _use("silu_and_mul", place, width=width)
        case "situ":
            return _use("situ_and_mul", place, width=width, beta=activation.beta, linear_beta=activation.linear_beta)
        case _:
            form = "tanh" if activation.name == "gelu_tanh" else "erf"
            return _use("gelu_and_mul", place, width=width, approximate=form)


def _gated_mlp(place: str, hidden: int, spec: DenseFeedForward) -> Iterator[_Use]:
    yield _linear(f"{place}.gate_proj", hidden, spec.width, bias=spec.bias)
    yield _linear(f"{place}.up_proj", hidden, spec.width, bias=spec.bias)
    yield _gated_activation(f"{place}.activation", spec.width, spec.activation)
    yield _linear(f"{place}.down_proj", spec.width, hidden, bias=spec.bias)


def _routed(
    spec: RoutedExperts, hidden: int, eps: float, dtype: str, quantization: QuantizationSpec | None
) -> Iterator[_Use]:
    experts_read = hidden if spec.latent_dim is None else spec.latent_dim
    packed = quantization if quantization is not None and "routed_experts" in quantization.targets else None
    yield _linear("ffn.router", hidden, spec.router.num_experts)
    yield _router(spec)
    if spec.latent_dim is not None:
        yield _linear("ffn.latent_down", hidden, spec.latent_dim)
    if packed is not None:
        yield _dequantize("ffn.experts.gate", spec.width, experts_read, packed)
        yield _dequantize("ffn.experts.up", spec.width, experts_read, packed)
        yield _dequantize("ffn.experts.down", experts_read, spec.width, packed)
    yield _use(
        "routed_experts",
        "ffn.experts",
        experts=spec.router.num_experts,
        top_k=spec.router.top_k,
        expert_in=experts_read,
        expert_width=spec.width,
        activation=spec.activation.name,
        weight_format=packed.format if packed is not None else dtype,
    )
    if spec.latent_dim is not None:
        if spec.latent_norm:
            yield _use("rms_norm", "ffn.latent_norm", width=spec.latent_dim, eps=eps)
        yield _linear("ffn.latent_up", spec.latent_dim, hidden)
    if spec.shared_width:
        yield from _gated_mlp("ffn.shared", hidden, DenseFeedForward(spec.shared_width, spec.activation))
        yield _use("residual_add", "ffn.shared", width=hidden)


def _router(spec: RoutedExperts) -> _Use:
    router = spec.router
    common: dict[str, Fact] = {
        "experts": router.num_experts,
        "top_k": router.top_k,
        "renormalize": router.renormalize,
        "scaling_factor": router.scaling_factor,
        "correction_bias": router.correction_bias,
        "num_groups": router.num_groups,
        "topk_groups": router.topk_groups,
    }
    name = "moe_router_topk_softmax" if router.scoring == "softmax" else "moe_router_topk_sigmoid_bias"
    return _use(name, "ffn.router", **common)


def _dequantize(place: str, rows: int, columns: int, packing: QuantizationSpec) -> _Use:
    return _use(
        f"{packing.format}_dequantize",
        place,
        rows=rows,
        columns=columns,
        row_bytes=columns // 2,
        row_groups=columns // packing.group_size,
        group_size=packing.group_size,
    )


def _vision(spec: VisionSpec) -> Iterator[_Use]:
    hidden, heads, dim, joined = spec.hidden_size, spec.num_heads, spec.head_dim, spec.merged_size
    yield _use(
        "vision_patch_embed",
        "vision.tower.patch_embed",
        width=hidden,
        patch_values=CHANNELS * spec.patch_size**2,
    )
    rows, columns = spec.position_grid
    yield _use(
        "vision_position_embed",
        "vision.tower.patch_embed.positions",
        grid_rows=rows,
        grid_columns=columns,
        width=hidden,
    )
    block = "vision.tower.blocks"
    yield _use("rms_norm", f"{block}.norms", width=hidden, eps=spec.norm_eps)
    yield _linear(f"{block}.attention.qkv", hidden, 3 * spec.qkv_size)
    yield _use("vision_rope_2d", f"{block}.attention.rope", heads=heads, head_dim=dim, rope_pairs=dim // 2)
    yield _use("vision_attention", f"{block}.attention", heads=heads, head_dim=dim, scale=dim**-0.5)
    yield _linear(f"{block}.attention.out", spec.qkv_size, hidden)
    yield _use("residual_add", block, width=hidden)
    yield _linear(f"{block}.mlp.up", hidden, spec.mlp_width)
    yield _use("gelu", f"{block}.mlp.activation", width=spec.mlp_width, approximate="tanh")
    yield _linear(f"{block}.mlp.down", spec.mlp_width, hidden)
    yield _use("patch_merge", "vision.projector.merge", width=hidden, cell=spec.merge[0] * spec.merge[1])
    yield _linear("vision.projector.up", joined, joined)
    yield _use("gelu", "vision.projector.activation", width=joined, approximate="erf")
    yield _linear("vision.projector.down", joined, spec.text_hidden_size)
    yield _use("rms_norm", "vision.projector.norm", width=spec.text_hidden_size, eps=spec.projector_norm_eps)
    yield _use("embedding_scatter", "vision.embeddings", width=spec.text_hidden_size)
