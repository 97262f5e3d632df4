"""What `day0 inspect` says, as one record: the JSON of the contract, which the text report reads as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from day0.coverage import Coverage, Evidence, Status, Verdict
from day0.errors import Finding, Severity
from day0.inventory import Fact, Inventory
from day0.operators import Phase
from day0.profile.cache_sizes import CacheSizes, cache_sizes
from day0.profile.header_counts import count_elements
from day0.profile.likeness import Likeness
from day0.profile.parameters import ParameterCounts, count_parameters, stored_formats, weight_formats
from day0.profile.profile import ArchitectureProfile, AudioTower, RoutedExperts, VisionSpec, VisionTower
from day0.profile.sketch import Sketch
from day0.profile.tensor_patterns import TensorPattern, group_tensors
from day0.profile.tensors import TensorComparison, expected_tensors
from day0.report.inspect_diff import ProfileDiff
from day0.source.model_files import ModelFiles

SCHEMA = "day0.inspect/1"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """`native` says that the reference runtime has every part of the model's decoder.

    `likeness` is for a model_type that no family has: the nearest one, what agrees and what differs.
    """

    id: str
    revision: str | None
    source: str
    architectures: tuple[str, ...]
    model_type: str
    family: str | None
    nearest_family: str | None
    likeness: Likeness | None
    native: bool


@dataclass(frozen=True, slots=True)
class WeightFacts:
    """Bytes and tensors as the headers say ("headers"), or as the profile expects them ("profile").

    None is for what neither knows.
    """

    bytes: int | None
    tensors: int | None
    shards: int
    formats: dict[str, int]
    counted_from: str


@dataclass(frozen=True, slots=True)
class LayerFacts:
    index: int
    mixer: str
    ffn: str
    residual: str
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LayerCounts:
    mixer: dict[str, int]
    ffn: dict[str, int]


@dataclass(frozen=True, slots=True)
class ContextFacts:
    max_position: int | None
    source_field: str | None


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """One need and its verdict."""

    name: str
    layers: tuple[int, ...]
    phases: tuple[Phase, ...]
    shapes: Mapping[str, int]
    attributes: Mapping[str, Fact]
    dtype: str
    used_for: tuple[str, ...]
    status: Status
    provider: str | None
    reason: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class InspectDocument:
    """Field by field the document of the contract. What a source cannot tell is None."""

    schema: str
    model: ModelFacts
    params: ParameterCounts | None
    weights: WeightFacts
    layers: tuple[LayerFacts, ...]
    layer_counts: LayerCounts
    experts: dict[str, int] | None
    cache: CacheSizes | None
    context: ContextFacts
    vision: dict[str, Any] | None
    audio: dict[str, Any] | None
    mtp: dict[str, Any] | None
    quantization: dict[str, Any] | None
    device: str
    operators: tuple[OperatorFacts, ...]
    coverage: dict[Status, int]
    findings: tuple[Finding, ...]
    unused_config_keys: tuple[str, ...]
    defaulted_config_keys: tuple[str, ...]
    unexpected_tensors: tuple[str, ...]
    missing_tensors: tuple[str, ...]
    unexplained: tuple[TensorPattern, ...]
    diff: ProfileDiff | None
    scaffold: dict[str, Any] | None
    trace: dict[str, Any] | None
    next: tuple[str, ...]
    seconds: float


def model_facts(files: ModelFiles, profile: ArchitectureProfile) -> ModelFacts:
    """A model that a known family does not explain to the end has no family, only a nearest one."""
    likeness = profile.likeness
    return ModelFacts(
        id=files.id,
        revision=files.revision,
        source=files.source,
        architectures=profile.architectures,
        model_type=profile.model_type,
        family=profile.family if likeness is None or likeness.whole else None,
        nearest_family=likeness.family if likeness is not None else None,
        likeness=likeness,
        native=profile.native and sizes_known(profile),
    )


def sizes_known(profile: ArchitectureProfile) -> bool:
    """Whether the profile's own sizes can be trusted: a known family whose packing was understood."""
    return profile.family is not None and not any(f.code == "quantization-not-read" for f in profile.findings)


def parameter_facts(
    profile: ArchitectureProfile, sketched: Sketch | None = None, unexplained: Sequence[TensorPattern] = ()
) -> ParameterCounts | None:
    """By the family's table, else by the elements of the headers.

    What a family does not explain of a model that was read with its table for likeness counts as "other".
    """
    if profile.family is None:
        return sketched.params if sketched is not None else None
    counts = count_parameters(profile)
    if profile.likeness is None or not unexplained:
        return counts
    extra = sum(count_elements(unexplained).values())
    groups = counts.groups | {"other": counts.groups["other"] + extra}
    return ParameterCounts(
        counts.total + extra, counts.active + extra, counts.active_without_input_embedding + extra, groups
    )


def weight_facts(
    files: ModelFiles, profile: ArchitectureProfile, comparison: TensorComparison | None = None
) -> WeightFacts:
    """From the headers where there are any, else from the profile, else unknown."""
    if files.tensors is not None:
        as_expected = comparison is not None and comparison.exact
        formats = Counter(weight_formats(profile) if as_expected else stored_formats(profile, files.tensors))
        return WeightFacts(
            sum(formats.values()), len(files.tensors), len(files.shards), dict(formats.most_common()), "headers"
        )
    if not sizes_known(profile):
        return WeightFacts(None, None, 0, {}, "nothing")
    by_format = Counter(weight_formats(profile))
    tensors = sum(spec.count for spec in expected_tensors(profile))
    return WeightFacts(by_format.total(), tensors, 0, dict(by_format.most_common()), "profile")


def layer_facts(
    profile: ArchitectureProfile, inventory: Inventory, sketched: Sketch | None = None
) -> tuple[LayerFacts, ...]:
    """Of the profile, or as far as tensor names and config fields tell; operators are known for the former only."""
    if sketched is not None:
        return tuple(LayerFacts(seen.index, seen.mixer, seen.feed_forward, "unknown", ()) for seen in sketched.layers)
    return tuple(
        LayerFacts(
            layer.index,
            layer.mixer.kind,
            layer.feed_forward.kind,
            layer.residual.kind,
            inventory.layers[layer.index],
        )
        for layer in profile.layers
    )


def layer_counts(layers: Sequence[LayerFacts]) -> LayerCounts:
    return LayerCounts(
        dict(Counter(layer.mixer for layer in layers)),
        dict(Counter(layer.ffn for layer in layers)),
    )


def expert_facts(profile: ArchitectureProfile) -> dict[str, int] | None:
    """Sizes of the routed layers, None for a dense model; layers that differ are told by the largest."""
    routed = [layer.feed_forward for layer in profile.layers if isinstance(layer.feed_forward, RoutedExperts)]
    if not routed:
        return None
    largest = max(routed, key=lambda spec: spec.router.num_experts)
    return {
        "layers": len(routed),
        "routed": largest.router.num_experts,
        "top_k": largest.router.top_k,
        "width": largest.width,
        "shared_width": largest.shared_width,
        "reads": largest.latent_dim or profile.hidden_size,
    }


def cache_facts(profile: ArchitectureProfile) -> CacheSizes | None:
    return cache_sizes(profile) if profile.layers else None


def context_facts(profile: ArchitectureProfile) -> ContextFacts:
    return ContextFacts(profile.max_position, profile.max_position_field)


def vision_facts(profile: ArchitectureProfile) -> dict[str, Any] | None:
    """The tower's sizes; what parts a tower is made of shows in the operators."""
    return _tower_facts(profile.vision)


def audio_facts(profile: ArchitectureProfile) -> dict[str, Any] | None:
    return _tower_facts(profile.audio)


def _tower_facts(spec: VisionSpec | VisionTower | AudioTower | None) -> dict[str, Any] | None:
    if spec is None:
        return None
    facts = {name: value for name, value in asdict(spec).items() if name not in ("stages", "placeholders")}
    if isinstance(spec, VisionTower):
        facts["placeholders"] = dict(spec.placeholders)
    return {"native": isinstance(spec, VisionSpec), **facts}


def mtp_facts(profile: ArchitectureProfile, params: ParameterCounts | None) -> dict[str, Any] | None:
    """Layers that predict further ahead; their parameters are not part of the total."""
    if profile.mtp is None:
        return None
    return {
        "layers": len(profile.mtp.layers),
        "shares_embedding": profile.mtp.shares_embedding,
        "params": params.groups["mtp"] if params else None,
    }


def quantization_facts(profile: ArchitectureProfile) -> dict[str, Any] | None:
    """The one packing that was read, the section it came from, and what became of each parameter group."""
    packing = profile.quantization
    if packing is None:
        return None
    groups = {
        found.group: [*(one.name for one in found.formats), *(["plain"] if found.plain else [])]
        for found in packing.groups
    }
    return {"method": packing.method, "section": packing.section, "groups": groups, "kv_cache": packing.kv_cache}


def operator_facts(coverage: Coverage) -> tuple[OperatorFacts, ...]:
    return tuple(_operator(verdict) for verdict in coverage.verdicts)


def _operator(verdict: Verdict) -> OperatorFacts:
    need = verdict.need
    return OperatorFacts(
        name=need.name,
        layers=need.layers,
        phases=need.phases,
        shapes=need.shapes,
        attributes=need.attributes,
        dtype=need.dtype,
        used_for=need.used_for,
        status=verdict.status,
        provider=verdict.provider,
        reason=verdict.reason,
        evidence=verdict.evidence,
    )


def unexplained_tensors(
    files: ModelFiles, comparison: TensorComparison | None, sketched: Sketch | None
) -> tuple[TensorPattern, ...]:
    """What no family's table explains, by pattern: of an unknown family every tensor."""
    if sketched is not None:
        return sketched.patterns
    if files.tensors is None or comparison is None or not comparison.unexpected:
        return ()
    return group_tensors(files.tensors, comparison.unexpected)


def all_findings(
    files: ModelFiles,
    profile: ArchitectureProfile,
    comparison: TensorComparison | None,
    inventory: Inventory,
    unexplained: Sequence[TensorPattern] = (),
    audited: Sequence[Finding] = (),
) -> tuple[Finding, ...]:
    """Findings of the road so far, the gravest first."""
    found = [*files.findings, *profile.findings, *(comparison.findings if comparison else ())]
    found += audited
    found += inventory.findings
    if comparison and comparison.missing:
        found.append(_names_finding("tensors-missing", "expected and not there", comparison.missing))
    if comparison and comparison.unexpected:
        size = sum(pattern.bytes for pattern in unexplained)
        held = f" ({size:,} bytes)" if unexplained else ""
        found.append(_names_finding("tensors-unexpected", f"there and not expected{held}", comparison.unexpected))
    if profile.unused_config_keys:
        text = f"config keys that nobody read: {_some(profile.unused_config_keys, 12)}"
        # Of a model that no family claims, a key that nobody knows may be what is new about it.
        severity: Severity = "warning" if profile.likeness is None else "error"
        found.append(Finding("config-keys-unused", severity, files.config_name, text))
    order = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(found, key=lambda finding: order[finding.severity]))


def _names_finding(code: str, text: str, names: tuple[str, ...]) -> Finding:
    return Finding(code, "error", "tensors", f"{len(names)} {text}: {_some(names, 3)}")


def _some(names: tuple[str, ...], limit: int) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
