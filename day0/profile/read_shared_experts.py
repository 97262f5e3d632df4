"""Routed experts with shared ones beside them, as DeepSeek's line of configs spells them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import (
    ActivationSpec,
    DenseFeedForward,
    FeedForward,
    RoutedExperts,
    RouterSpec,
    Scoring,
)
from day0.profile.read_feed_forward import checked_router, read_activation, read_num_experts

_SCORINGS: Mapping[str, Scoring] = {"softmax": "softmax", "sigmoid": "sigmoid", "sqrtsoftplus": "sqrtsoftplus"}
_METHODS = {"greedy": "greedy", "group_limited_greedy": "group_limited_greedy", "noaux_tc": "noaux_tc"}
"""How experts are chosen: by score; within the groups with the best scores; by score plus a learnt bias, within the
groups whose best two are best, without an auxiliary loss in training (DeepSeek-V2, -V3)."""
_KINDS: Mapping[str, bool] = {"dense": False, "sparse": True, "moe": True, "hash_moe": True}


@dataclass(frozen=True, slots=True)
class ExpertDefaults:
    """What a family's experts are where its config is silent, as its reference code has it.

    `first_dense` is how many leading layers are dense, `method` a word of `topk_method`; without `bias` none is
    learnt even where the method would add one. `limit` None means that the family has no `swiglu_limit`;
    `limit_everywhere` clamps dense and shared MLPs too, not only the routed ones. `shared_width_key` names the width
    of one shared expert where it is not that of a routed one. `hash_layers` None means that no layer routes by hash;
    else so many of the first do, and every layer is routed.
    """

    first_dense: int = 0
    scoring: Scoring = "sigmoid"
    method: str = "noaux_tc"
    bias: bool = True
    groups: int = 1
    topk_groups: int = 1
    renormalize: bool = True
    scaling: float = 1.0
    shared: int = 1
    limit: float | None = None
    limit_everywhere: bool = True
    shared_width_key: str | None = None
    hash_layers: int | None = None


def read_shared_experts(reader: ConfigReader, index: int, *, defaults: ExpertDefaults) -> FeedForward:
    """Dense layers first, then routed experts beside shared ones that work as one MLP."""
    routed = is_routed(reader, index, defaults)
    plain = read_activation(reader)
    limited = _limited(reader, plain, defaults)
    # V4's layers are all routed, and it has no key for a dense width.
    dense_width = reader.integer("intermediate_size") if defaults.hash_layers is None else 0
    if not routed:
        return DenseFeedForward(dense_width, limited if defaults.limit_everywhere else plain)
    width = reader.integer("moe_intermediate_size")
    shared_width = _shared_width(reader, width, defaults)
    hashed = defaults.hash_layers is not None and _is_hashed(reader, index, defaults.hash_layers)
    return RoutedExperts(
        router=checked_router(reader, _read_router(reader, defaults, hashed=hashed)),
        width=width,
        activation=limited,
        shared_width=shared_width,
        shared_activation=None if defaults.limit_everywhere or limited == plain else plain,
    )


def is_routed(reader: ConfigReader, index: int, defaults: ExpertDefaults) -> bool:
    """Whether a layer has experts: by `mlp_layer_types`, else after the leading dense layers at a period or by a list.

    Layers that predict further tokens come after the decoder's own and have experts.
    """
    layers = reader.integer("num_hidden_layers")
    if reader.has("mlp_layer_types"):
        reader.ignore("first_k_dense_replace", "moe_layer_freq", "num_hash_layers")
        words = reader.words("mlp_layer_types")
        if len(words) != layers:
            raise InputError(f"{len(words)} entries for {layers} layers", where=reader.where("mlp_layer_types"))
        unknown = sorted(set(words) - set(_KINDS))
        if unknown:
            raise InputError(
                f"layer kind {unknown[0]!r} is not known here",
                where=reader.where("mlp_layer_types"),
                hint=f"known: {', '.join(_KINDS)}",
            )
        return index >= layers or _KINDS[words[index]]
    if defaults.hash_layers is not None:
        return True
    first = reader.integer("first_k_dense_replace", defaults.first_dense, minimum=0)
    if isinstance(reader.values.get("moe_layer_freq"), list):
        listed = reader.integers("moe_layer_freq")
        if len(listed) != layers:
            raise InputError(f"{len(listed)} entries for {layers} layers", where=reader.where("moe_layer_freq"))
        return index >= layers or (index >= first and listed[index] != 0)
    period = reader.integer("moe_layer_freq", 1)
    return index >= layers or (index >= first and index % period == 0)


def _is_hashed(reader: ConfigReader, index: int, default: int) -> bool:
    if reader.has("mlp_layer_types"):
        words = reader.words("mlp_layer_types")
        return index < len(words) and words[index] == "hash_moe"
    return index < reader.integer("num_hash_layers", default, minimum=0)


def _read_router(reader: ConfigReader, defaults: ExpertDefaults, *, hashed: bool) -> RouterSpec:
    method = reader.choice("topk_method", _METHODS, defaults.method)
    grouped = method != "greedy"
    top_k = reader.integer("num_experts_per_tok")
    groups = reader.optional_integer("n_group") or defaults.groups
    best = reader.optional_integer("topk_group") or min(defaults.topk_groups, groups)
    return RouterSpec(
        num_experts=read_num_experts(reader, "n_routed_experts", "num_local_experts", "num_experts"),
        top_k=top_k,
        scoring=reader.choice("scoring_func", _SCORINGS, defaults.scoring),
        renormalize=reader.flag("norm_topk_prob", defaults.renormalize),
        scaling_factor=reader.number("routed_scaling_factor", defaults.scaling),
        correction_bias=method == "noaux_tc" and defaults.bias and not hashed,
        num_groups=groups if grouped else 1,
        topk_groups=best if grouped else 1,
        best_of_group=method == "group_limited_greedy",
        hash_rows=reader.integer("vocab_size") if hashed else 0,
    )


def _shared_width(reader: ConfigReader, width: int, defaults: ExpertDefaults) -> int:
    count = reader.integer("n_shared_experts", defaults.shared, minimum=0)
    each = reader.integer(defaults.shared_width_key, width) if defaults.shared_width_key else width
    return count * each


def _limited(reader: ConfigReader, plain: ActivationSpec, defaults: ExpertDefaults) -> ActivationSpec:
    """Clamped before the gate where the config gives a limit; one at or below zero is none."""
    if defaults.limit is None:
        return plain
    limit = reader.number("swiglu_limit", defaults.limit)
    return ActivationSpec(plain.name, limit=limit) if limit > 0 else plain
