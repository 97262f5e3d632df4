"""Mixtures of experts of many lines: which layers are routed, how experts are scored, what stands beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.feed_forward import DenseFeedForward, RoutedExperts, RouterSpec, Scoring
from day0.profile.read_feed_forward import checked_router, read_activation, read_num_experts
from day0.profile.read_layer_kinds import read_layer_kind

RoutedRule = Callable[[ConfigReader, int], bool]

_ROUTED = {"sparse": True, "dense": False}


def routed_everywhere(reader: ConfigReader, index: int) -> bool:
    del reader, index
    return True


def routed_by_words(default: RoutedRule) -> RoutedRule:
    """`mlp_layer_types` says "sparse" or "dense" for each layer; without it, `default` decides."""
    return lambda reader, index: read_layer_kind(
        reader, index, _ROUTED, lambda layer: default(reader, layer), "mlp_layer_types"
    )


def routed_after(first: int, key: str = "first_k_dense_replace") -> RoutedRule:
    """Dense in the first layers, as many as `key` says; then routed in every `moe_layer_freq`-th."""

    def rule(reader: ConfigReader, index: int) -> bool:
        step = reader.integer("moe_layer_freq", 1) if "moe_layer_freq" in reader.values else 1
        return index >= reader.integer(key, first, minimum=0) and index % step == 0

    return rule


def routed_by_marks(reader: ConfigReader, index: int) -> bool:
    """`moe_layer_freq` as a list of 0 and 1, one for each layer (MiMo V2)."""
    marks, layers = reader.integers("moe_layer_freq"), reader.integer("num_hidden_layers")
    if len(marks) != layers:
        raise InputError(f"{len(marks)} entries for {layers} layers", where=reader.where("moe_layer_freq"))
    return marks[index] != 0


def routed_by_step(dense: tuple[int, ...] = ()) -> RoutedRule:
    """Routed where `decoder_sparse_step` divides the layer's number from 1, but in `mlp_only_layers` (Qwen2-MoE)."""

    def rule(reader: ConfigReader, index: int) -> bool:
        only_dense = reader.integers("mlp_only_layers", dense)
        return (index + 1) % reader.integer("decoder_sparse_step", 1) == 0 and index not in only_dense

    return rule


@dataclass(frozen=True, slots=True)
class ExpertLine:
    """How a line of models spells its experts, and what it has where configs are silent.

    `experts`, `width`, `top_k`, `shared` are keys. `shared_is_width` says that `shared` is a width and not a number of
    experts of the routed width. `renormalize` None means that `norm_topk_prob` decides, False by default.
    """

    experts: tuple[str, ...] = ("n_routed_experts", "num_experts", "num_local_experts")
    top_k: str = "num_experts_per_tok"
    width: str = "moe_intermediate_size"
    shared: str | None = None
    shared_default: int = 0
    shared_is_width: bool = False
    shared_gate: bool = False
    routed: RoutedRule = routed_everywhere
    scoring: Scoring = "softmax"
    renormalize: bool | None = None
    renormalize_default: bool = False
    correction_bias: bool = False
    grouped: bool = False
    scaling: str | None = None
    activation: str = "hidden_act"


def read_expert_line(reader: ConfigReader, index: int, *, line: ExpertLine) -> DenseFeedForward | RoutedExperts:
    """The feed-forward of layer `index`: a dense MLP of `intermediate_size`, or routed experts."""
    activation = read_activation(reader, line.activation)
    routed = line.routed(reader, index)
    # Read for every layer, so that a config's use of its keys does not depend on which layers are dense.
    dense_width = reader.optional_integer("intermediate_size")
    if not routed:
        return DenseFeedForward(reader.integer("intermediate_size"), activation)
    router = read_router(reader, line)
    width = reader.integer(line.width, dense_width) if dense_width else reader.integer(line.width)
    return RoutedExperts(
        router=router,
        width=width,
        activation=activation,
        shared_width=_shared_width(reader, line, width),
        shared_gate=line.shared_gate,
    )


def _shared_width(reader: ConfigReader, line: ExpertLine, width: int) -> int:
    if line.shared is None:
        return 0
    size = reader.integer(line.shared, line.shared_default, minimum=0)
    return size if line.shared_is_width else size * width


def read_router(reader: ConfigReader, line: ExpertLine) -> RouterSpec:
    """The router by the line's keys; raises InputError where its sizes contradict each other."""
    renormalize = line.renormalize
    if renormalize is None:
        renormalize = reader.flag("norm_topk_prob", line.renormalize_default)
    groups = reader.integer("n_group", 1) if line.grouped else 1
    spec = RouterSpec(
        num_experts=read_num_experts(reader, *line.experts),
        top_k=reader.integer(line.top_k),
        scoring=line.scoring,
        renormalize=renormalize,
        scaling_factor=reader.number(line.scaling, 1.0) if line.scaling is not None else 1.0,
        correction_bias=line.correction_bias,
        num_groups=groups,
        topk_groups=reader.integer("topk_group", 1) if line.grouped else 1,
    )
    return checked_router(reader, spec, line.top_k)
