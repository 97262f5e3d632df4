"""Profile -> the operators a model needs, each with its concrete shapes, phases and layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from day0.errors import Finding
from day0.inventory.convolved import branch_convolution
from day0.inventory.ends import after_branches, embeddings, logits
from day0.inventory.feed_forward import FEED_FORWARD_RULES
from day0.inventory.mixers import MIXER_RULES
from day0.inventory.norms import LAYER_NORMS, last_norm, layer_norm
from day0.inventory.packing import packed_weights
from day0.inventory.residuals import hyper_connection_join, hyper_connection_read, hyper_connection_write
from day0.inventory.towers import tower
from day0.inventory.use import DTYPE_WORDS, Fact, Facts, Use, use
from day0.inventory.vision import vision
from day0.inventory.watch import Watch
from day0.inventory.ways_back import WAYS_BACK, plain_way_back
from day0.operators import OPERATORS, Phase
from day0.profile.profile import (
    ArchitectureProfile,
    AttentionResidual,
    AudioTower,
    HyperConnections,
    LayerSpec,
    NoFeedForward,
    NoMixer,
    VisionSpec,
    VisionTower,
)


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


@dataclass(slots=True)
class _Places:
    """Where one operator at one set of facts is used; dicts keep the order of the forward pass."""

    layers: dict[int, None] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    phases: set[Phase] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a walk through a model finds.

    `needs` stand in the order of the forward pass; places that differ in nothing but layer or name are one need.
    `layers` has the names of each decoder layer's operators, each once. `findings` are what the profile says and no
    rule reads: the needs may then not be all.
    """

    needs: tuple[OperatorNeed, ...]
    layers: Mapping[int, tuple[str, ...]]
    findings: tuple[Finding, ...]


def take_inventory(profile: ArchitectureProfile) -> Inventory:
    """Walk through the model once, from the embedding to the logits."""
    watch = Watch()
    gathered: dict[tuple[str, Facts], _Places] = {}
    layers: dict[int, dict[str, None]] = {layer.index: {} for layer in profile.layers}
    for layer, used in _all_uses(profile, watch):
        places = gathered.setdefault((used.operator, used.facts), _Places())
        places.names[used.place] = None
        if layer is not None:
            places.layers[layer] = None
            layers[layer][used.operator] = None
        places.phases |= _phases(used)
    dtype = DTYPE_WORDS[profile.dtype]
    return Inventory(
        tuple(_need(operator, facts, places, dtype) for (operator, facts), places in gathered.items()),
        {layer: tuple(operators) for layer, operators in layers.items()},
        _findings(profile, watch),
    )


def operators_needed(profile: ArchitectureProfile) -> tuple[OperatorNeed, ...]:
    """The needs alone."""
    return take_inventory(profile).needs


def layer_operators(profile: ArchitectureProfile, layer: LayerSpec) -> tuple[str, ...]:
    """Names of the operators of one layer, each once, in the order of the forward pass."""
    watch = Watch()
    uses = (*packed_weights(profile, layer), *_layer_uses(watch.see("profile", profile), layer, watch))
    return tuple(dict.fromkeys(used.operator for used in uses))


def inventory_findings(profile: ArchitectureProfile) -> tuple[Finding, ...]:
    """The findings alone."""
    return take_inventory(profile).findings


def _findings(profile: ArchitectureProfile, watch: Watch) -> tuple[Finding, ...]:
    parts = [*_parts_without_rule(profile), *(f"{path} = {value}" for path, value in watch.unread())]
    return tuple(
        Finding("operators-incomplete", "error", part, "no rule of the inventory reads this", _INCOMPLETE_HINT)
        for part in parts
    )


_INCOMPLETE_HINT = "it may take operators that are not listed; add a rule in day0/inventory"


def _parts_without_rule(profile: ArchitectureProfile) -> Iterator[str]:
    parts: dict[str, None] = {}
    for layer in profile.layers:
        for part, spec, rules in (
            ("mixer", layer.mixer, (NoMixer, *MIXER_RULES)),
            ("feed_forward", layer.feed_forward, (NoFeedForward, *FEED_FORWARD_RULES)),
            ("residual", layer.residual, (AttentionResidual, HyperConnections, *WAYS_BACK)),
        ):
            if type(spec) not in rules:
                parts[f"{part}.{spec.kind}"] = None
        parts |= dict.fromkeys(f"norm {norm}" for norm in layer.norms if norm not in LAYER_NORMS)
    yield from parts


def _need(operator: str, facts: Facts, places: _Places, dtype: str) -> OperatorNeed:
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


def _phases(used: Use) -> set[Phase]:
    """Images and sounds are only ever part of a prompt, whatever else their operators serve."""
    phases = set(OPERATORS[used.operator].phases)
    return phases & {"prefill"} if used.place.startswith(("vision.", "audio.")) else phases


def _all_uses(profile: ArchitectureProfile, watch: Watch) -> Iterator[tuple[int | None, Use]]:
    if not profile.layers:
        return
    seen: ArchitectureProfile = watch.see("profile", profile)
    for used in embeddings(seen):
        yield None, used
    for used in _tower_uses(profile, watch):
        yield None, used
    for layer in seen.layers:
        for used in packed_weights(profile, layer):
            yield layer.index, used
        for used in _layer_uses(seen, layer, watch):
            yield layer.index, used
    if isinstance(profile.residual, AttentionResidual):
        yield None, _residual_mix("output_res", seen, profile.residual)
    if isinstance(profile.residual, HyperConnections):
        yield None, hyper_connection_join(watch.see("residual", profile.residual), seen.hidden_size)
    yield None, last_norm(seen)
    for used in packed_weights(profile, None):
        yield None, used
    for used in logits(seen):
        yield None, used


def _tower_uses(profile: ArchitectureProfile, watch: Watch) -> Iterator[Use]:
    """Those of the encoders. A tower of parts has a rule for every part, and its other fields only describe it."""
    watch.note("profile", "vision")
    watch.note("profile", "audio")
    if isinstance(profile.vision, VisionSpec):
        yield from vision(watch.see("profile.vision", profile.vision))
    for spec in (profile.vision, profile.audio):
        if isinstance(spec, VisionTower | AudioTower):
            yield from tower(spec, profile)


def _layer_uses(profile: ArchitectureProfile, layer: LayerSpec, watch: Watch) -> Iterator[Use]:
    for branch, path, spec, rules in (
        ("mixer", f"mixer.{layer.mixer.kind}", layer.mixer, MIXER_RULES),
        ("ffn", f"feed_forward.{layer.feed_forward.kind}", layer.feed_forward, FEED_FORWARD_RULES),
    ):
        rule = rules.get(type(spec))
        if rule is not None:
            yield from _branch(branch, rule(watch.see(path, spec), profile), profile, layer, watch)
    yield from after_branches(profile, layer)


def _branch(
    name: str, inside: Iterator[Use], profile: ArchitectureProfile, layer: LayerSpec, watch: Watch
) -> Iterator[Use]:
    """One branch with what stands around it: the read of the residual stream, norms, and the way back."""
    residual = watch.see("residual", layer.residual)
    # The first layer's mixer reads the embedding itself: there is nothing to mix yet.
    if isinstance(layer.residual, AttentionResidual) and (layer.index, name) != (0, "mixer"):
        yield _residual_mix(f"{name}_res", profile, residual)
    if isinstance(layer.residual, HyperConnections):
        yield hyper_connection_read(name, residual, profile.hidden_size)
    yield from layer_norm(f"{name}_norm", profile, layer)
    yield from inside
    if layer.convolution is not None:
        yield branch_convolution(name, layer.convolution)
    yield from layer_norm(f"{name}_post_norm", profile, layer)
    if isinstance(layer.residual, HyperConnections):
        yield hyper_connection_write(name, residual, profile.hidden_size)
    else:
        way_back = WAYS_BACK.get(type(layer.residual), plain_way_back)
        yield way_back(name, residual, profile.hidden_size)


def _residual_mix(place: str, profile: ArchitectureProfile, spec: AttentionResidual) -> Use:
    return use(
        "attention_residual_mix",
        place,
        width=profile.hidden_size,
        eps=profile.norm_eps,
        block_size=spec.block_size,
    )
