"""The packing of a profile as it is: what its config declares, corrected by what the headers of its files show."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from day0.errors import Finding
from day0.profile.packing import first_name, one_by_one, part_name
from day0.profile.profile import ArchitectureProfile
from day0.profile.quantization import GroupPacking, QuantizationSpec, StoredPart, WeightFormat, is_linear, is_matrix
from day0.profile.tensor_spec import TensorSpec
from day0.profile.tensors import plain_tensors
from day0.source.model_files import TensorHeader

_PLAIN = ("BF16", "F16", "F32", "F64")
_NAMED = 3
"""Names given as examples in a finding."""

Headers = Mapping[str, TensorHeader]


def settle_packing(profile: ArchitectureProfile, tensors: Headers | None) -> ArchitectureProfile:
    """The profile with its packing worked out for every matrix, and what there is to say about it.

    Where there are headers, they decide whether a matrix is packed: lists in configs are known to be wrong.
    """
    if profile.quantization is None:
        return profile
    specs = [replace(spec, group="mtp") if ahead else spec for spec, ahead in plain_tensors(profile)]
    matrices = [spec for spec in specs if is_matrix(spec)]
    quantization = profile.quantization
    findings: list[Finding] = []
    if tensors is not None:
        quantization, differing = _as_stored(quantization, matrices, tensors)
        findings += _differing_findings(quantization, differing)
    quantization = replace(quantization, groups=tuple(_groups(quantization, matrices)))
    findings += _idle_findings(quantization, specs)
    if profile.native and not quantization.native:
        findings.append(_not_native(quantization))
    return replace(
        profile,
        quantization=quantization,
        native=profile.native and quantization.native,
        findings=(*profile.findings, *findings),
    )


@dataclass(slots=True)
class _Differing:
    """Matrices that are stored otherwise than the config says, by checkpoint name."""

    plain: list[str] = field(default_factory=list)
    packed: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)


def _as_stored(
    quantization: QuantizationSpec, matrices: Sequence[TensorSpec], tensors: Headers
) -> tuple[QuantizationSpec, _Differing]:
    """The packing corrected by the headers. One expert speaks for all; the comparison looks at each."""
    known = tuple(dict.fromkeys(rule.format for rule in quantization.rules))
    declared = {spec.name: quantization.declared(spec) for spec in matrices}
    found = dict(_look(matrices, known, declared, tensors))
    # A release stores scales as it likes: what most matrices of a format show is what the format is here.
    seen: dict[WeightFormat, Counter[WeightFormat]] = defaultdict(Counter)
    for name, packing in found.items():
        base = declared[name]
        if packing is not None and base is not None and packing.name == base.name:
            seen[base][packing] += 1
    usual = {base: counts.most_common(1)[0][0] for base, counts in seen.items()}
    rules = tuple(replace(rule, format=usual.get(rule.format, rule.format)) for rule in quantization.rules)
    differing, stored = _Differing(), {}
    for spec in matrices:
        if spec.name not in found:
            continue
        base, packing = declared[spec.name], found[spec.name]
        if packing != (usual.get(base, base) if base is not None else None):
            stored[spec.name] = packing
        _note(differing, spec, quantization, packing)
    return replace(quantization, rules=rules, stored=stored), differing


def _note(
    differing: _Differing, spec: TensorSpec, quantization: QuantizationSpec, packing: WeightFormat | None
) -> None:
    """Compare with what the config's own lists say, without what the family is known to leave plain."""
    rules = tuple(replace(rule, experts=False) for rule in quantization.rules)
    base = replace(quantization, rules=rules).declared(spec) if is_linear(spec) else quantization.declared(spec)
    if packing is None and base is not None:
        differing.plain.append(spec.name)
    elif packing is not None and base is None:
        differing.packed.append(spec.name)
    elif packing is not None and base is not None and packing.name != base.name:
        differing.other.append(spec.name)


def _look(
    matrices: Iterable[TensorSpec],
    known: tuple[WeightFormat, ...],
    declared: Mapping[str, WeightFormat | None],
    tensors: Headers,
) -> Iterator[tuple[str, WeightFormat | None]]:
    """(name, format or None for plain) of every matrix that the headers show in a way that is understood."""
    for spec in matrices:
        base = declared[spec.name]
        candidates = known if base is None else (base, *(packing for packing in known if packing != base))
        packing = next((found for one in candidates if (found := _found(spec, one, tensors)) is not None), None)
        header = tensors.get(first_name(spec))
        if packing is not None:
            yield spec.name, packing
        elif header is not None and header.dtype in _PLAIN:
            yield spec.name, None


def _found(spec: TensorSpec, packing: WeightFormat, tensors: Headers) -> WeightFormat | None:
    """The format as this matrix is stored in it, None where it is not; a stack may be stored one by one."""
    for apart in (packing.apart, not packing.apart) if spec.stacked else (packing.apart,):
        name = first_name(next(iter(one_by_one(spec)))) if apart else first_name(spec)
        parts = tuple(_stored_parts(name, packing, tensors))
        if parts and all(part.optional or part.role in {p.role for p in parts} for part in packing.parts):
            return replace(packing, parts=parts, apart=apart)
    return None


def _stored_parts(name: str, packing: WeightFormat, tensors: Headers) -> Iterator[StoredPart]:
    """The parts that are there, spelled and typed as they are; nothing where the first has another dtype."""
    for index, part in enumerate(packing.parts):
        leaf = next((leaf for leaf in part.leaves if part_name(name, leaf) in tensors), None)
        if leaf is None:
            continue
        header = tensors[part_name(name, leaf)]
        if index == 0 and header.dtype != part.dtype:
            return
        # Scales come in any dtype that holds them; numbers are what the format says.
        dtype = part.dtype if index == 0 else header.dtype
        axes = part.axes if header.shape else ()
        yield replace(part, leaves=(leaf,), dtype=dtype, axes=axes, optional=False, counted=True)


def _groups(quantization: QuantizationSpec, matrices: Iterable[TensorSpec]) -> Iterator[GroupPacking]:
    """What became of each parameter group that has packed matrices."""
    counts: dict[str, Counter[WeightFormat | None]] = defaultdict(Counter)
    for spec in matrices:
        counts[spec.group][quantization.format_of(spec)] += spec.total_parameters
    for group, found in counts.items():
        formats = tuple(packing for packing, _ in found.most_common() if packing is not None)
        if formats:
            yield GroupPacking(group, formats, None in found)


def _differing_findings(quantization: QuantizationSpec, differing: _Differing) -> Iterator[Finding]:
    for names, text in (
        (differing.plain, "stored plain although the section packs them"),
        (differing.packed, "stored packed although the section leaves them plain"),
        (differing.other, "packed in another format than the section says"),
    ):
        if names:
            message = f"{len(names)} matrices are {text}: {_some(names)}"
            yield Finding("quantization-differs", "note", quantization.section, message, "what is stored counts")


def _idle_findings(quantization: QuantizationSpec, specs: Sequence[TensorSpec]) -> Iterator[Finding]:
    """Entries of lists that name nothing: a module meant to stay plain may have been packed, or the other way round."""
    names = {name for spec in specs for name in (first_name(spec), first_name(spec).rpartition(".")[0])}
    names |= {first_name(next(iter(one_by_one(spec)))).removesuffix(".weight") for spec in specs if spec.stacked}
    names.add("language_model.lm_head")  # a tied head is stored nowhere and left out by name all the same
    lists = {id(found): found for rule in quantization.rules for found in (rule.ignore, rule.names) if found}
    idle = [entry for found in lists.values() for entry in found.idle(names) if entry != "Linear"]
    if idle:
        message = f"{len(idle)} entries of its lists name no module of this model: {_some(idle)}"
        yield Finding("quantization-entry-idle", "note", quantization.section, message)


def _not_native(quantization: QuantizationSpec) -> Finding:
    packed = "; ".join(map(str, quantization.groups))
    return Finding(
        "quantization-not-native",
        "note",
        quantization.section,
        f"the reference runtime does not read this packing ({packed})",
        "plan it for another engine; inspect and plan know its sizes",
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
