"""The tensors a profile must have, and how they compare with the headers of a checkpoint."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod
from operator import itemgetter

from day0.errors import CannotSay, Finding
from day0.profile.decoder_tensors import decoder_drafts
from day0.profile.draft import Draft
from day0.profile.families.family import Family
from day0.profile.families.table import FAMILIES
from day0.profile.layer_tensors import layer_drafts
from day0.profile.mtp_tensors import mtp_drafts
from day0.profile.packing import as_packed, one_by_one
from day0.profile.profile import ArchitectureProfile, LayerSpec, VisionSpec
from day0.profile.quantization import WeightFormat
from day0.profile.storage import as_stored
from day0.profile.stored_as_expected import stored_as_expected
from day0.profile.tensor_spec import TensorSpec
from day0.profile.tower_tensors import tower_tensors
from day0.profile.vision_tensors import vision_tensors
from day0.source.model_files import ModelFiles, TensorHeader

_CACHE_SCALES = (
    *(".k_scale", ".v_scale", ".kv_scale", ".q_scale", ".prob_scale", ".prob_output_scale"),
    *("k_proj.output_scale", "v_proj.output_scale"),
)
_LAYER_NUMBER = re.compile(r"(?<=layers\.|blocks\.)\d+")

__all__ = ["TensorComparison", "TensorSpec", "compare_tensors", "expected_tensors", "packed_matrices", "plain_tensors"]


def expected_tensors(profile: ArchitectureProfile) -> tuple[TensorSpec, ...]:
    """Every tensor that a checkpoint of this profile stores, in the order of execution.

    Raises CannotSay for a model that no family explains: its tensor names are unknown.
    """
    return tuple(
        replace(stored, layer=None, group="mtp") if ahead else stored
        for spec, ahead in plain_tensors(profile)
        for stored in as_packed(spec, profile.quantization)
    )


def plain_tensors(profile: ArchitectureProfile) -> Iterator[tuple[TensorSpec, bool]]:
    """The tensors before any is packed, and whether each belongs to multi-token prediction."""
    if profile.family is None:
        raise CannotSay(f"no family table explains model_type {profile.model_type!r}: its tensors are unknown")
    family = FAMILIES[profile.family]
    for spec in _tower_tensors(family, profile):
        yield spec, False
    for draft, layer in decoder_drafts(profile, family.storage):
        yield _named(family.names, profile, draft, layer), False
    for spec in _mtp_tensors(family, profile):
        yield spec, True


def _tower_tensors(family: Family, profile: ArchitectureProfile) -> Iterator[TensorSpec]:
    if isinstance(profile.vision, VisionSpec):
        yield from vision_tensors(profile.vision, profile.dtype)
    elif profile.vision is not None:
        yield from tower_tensors(profile.vision.stages, "vision", profile.dtype, family.names)
    if profile.audio is not None:
        yield from tower_tensors(profile.audio.stages, "audio", profile.dtype, family.names)


def packed_matrices(profile: ArchitectureProfile, layer: LayerSpec | None) -> Iterator[tuple[TensorSpec, WeightFormat]]:
    """The matrices of a decoder layer that are packed, each plain and with its format; None: those outside of layers.

    Experts stored apart are apart here too. Nothing for a model that no family explains.
    """
    if profile.quantization is None or profile.family is None:
        return
    family = FAMILIES[profile.family]
    drafts: Iterable[Draft]
    if layer is None:
        drafts = [draft for draft, _ in decoder_drafts(replace(profile, layers=()), family.storage)]
    else:
        drafts = as_stored(layer_drafts(profile, layer), family.storage)
    for draft in drafts:
        spec = _named(family.names, profile, draft, None if layer is None else layer.index)
        packing = profile.quantization.format_of(spec)
        if packing is not None:
            for matrix in one_by_one(spec) if packing.apart else (spec,):
                yield matrix, packing


def _mtp_tensors(family: Family, profile: ArchitectureProfile) -> Iterator[TensorSpec]:
    """Those of multi-token prediction, by the groups and numbers of the layers they resemble."""
    if profile.mtp is None:
        return
    for layer, drafts in groupby(mtp_drafts(profile, profile.mtp), itemgetter(1)):
        for draft in as_stored((draft for draft, _ in drafts), family.storage):
            yield _named(family.names, profile, draft, layer, "mtp.layers.{l}.")


def _named(
    names: Mapping[str, str],
    profile: ArchitectureProfile,
    draft: Draft,
    layer: int | None,
    prefix: str = "layers.{l}.",
) -> TensorSpec:
    prefix = "" if layer is None else prefix
    template = prefix + draft.path
    name = names.get(_of_kind(template, profile, layer)) or names[template]
    if layer is not None:
        name = name.replace("{l}", str(layer))
    return TensorSpec(
        name=name,
        path=template.replace("{l}", str(layer)),
        shape=draft.shape,
        dtype=draft.dtype or profile.dtype,
        group=draft.group,
        parameters=draft.num_parameters,
        layer=layer,
        experts=draft.experts,
        shard_axis=draft.shard_axis,
        shard_units=draft.shard_units,
        keep_float32=draft.keep_float32,
        zero_tail=draft.zero_tail,
        stacked=draft.stacked,
        input_first=draft.input_first,
        parts=tuple(((prefix + stem).replace("{l}", str(layer)), rows) for stem, rows in draft.parts),
        by_turns=draft.by_turns,
    )


def _of_kind(template: str, profile: ArchitectureProfile, layer: int | None) -> str:
    """The key of a name that holds only in layers of one kind of mixer: path@kind."""
    inside = layer is not None and template.startswith("layers.")
    return f"{template}@{profile.layers[layer].mixer.kind}" if layer is not None and inside else template


@dataclass(frozen=True, slots=True)
class TensorComparison:
    """Expected tensors against the headers: names on one side only, and what is wrong with those on both.

    `unexpected` and `missing` are sorted checkpoint names. `exact` says that names, shapes and dtypes are all as
    expected.
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    findings: tuple[Finding, ...]
    exact: bool = False

    @property
    def sound(self) -> bool:
        return not self.missing and not self.unexpected and not any(f.severity == "error" for f in self.findings)


def compare_tensors(profile: ArchitectureProfile, files: ModelFiles) -> TensorComparison:
    """Compare what the profile expects with what the headers hold.

    Raises CannotSay where the source has no headers or the family is unknown.
    """
    if files.tensors is None:
        raise CannotSay("there are no tensor headers to compare with", where=files.id)
    tensors = files.tensors
    specs = expected_tensors(profile)
    if stored_as_expected(specs, tensors):
        return TensorComparison((), (), (), exact=True)
    missing: list[str] = []
    differing: list[_Differing] = []
    for spec in specs:
        names = spec.names()
        for name, header in zip(names, map(tensors.get, names), strict=True):
            if header is None:
                missing.append(name)
            elif header.shape != spec.shape or header.dtype != spec.dtype:
                differing.append((name, spec, header))
    unexpected = _unexpected_names(tensors, specs, len(missing))
    findings = _shape_findings(differing) + _dtype_findings(differing)
    missing, left_out = _without_left_out_mtp(profile, missing)
    missing, towers_left_out = _without_left_out_towers(profile, missing)
    findings += left_out + towers_left_out
    if profile.tie_word_embeddings:
        unexpected, tied = _without_tied_head(profile, unexpected)
        findings += tied
    unexpected, unread = _without_unread(profile, unexpected)
    unexpected, scales = _without_cache_scales(unexpected)
    findings += unread + scales
    return TensorComparison(tuple(sorted(missing)), tuple(unexpected), tuple(findings))


_Differing = tuple[str, TensorSpec, TensorHeader]
"""A tensor that is stored otherwise than expected, by its checkpoint name."""


def _unexpected_names(tensors: Mapping[str, TensorHeader], specs: Sequence[TensorSpec], num_missing: int) -> list[str]:
    """The stored names that no spec has, sorted; where the numbers agree there is none, and no need to look."""
    distinct = len({spec.name for spec in specs}) == len(specs)
    if distinct and sum(spec.count for spec in specs) - num_missing == len(tensors):
        return []
    return sorted(tensors.keys() - {name for spec in specs for name in spec.names()})


def _shape_findings(differing: Sequence[_Differing]) -> list[Finding]:
    """One for each shape that a parameter has and should not have, whatever the layers and experts it has it in."""
    groups: dict[tuple[object, ...], list[_Differing]] = defaultdict(list)
    for name, spec, header in differing:
        if not _fits(spec, header.shape):
            groups[_LAYER_NUMBER.sub("", spec.path), spec.shape, header.shape].append((name, spec, header))
    findings = []
    for group in groups.values():
        name, spec, header = group[0]
        text = f"has shape {list(header.shape)}, the config asks for {list(spec.shape)}"
        where = f"{header.shard}: {_and_more(name, len(group))}"
        findings.append(Finding("tensor-shape", "error", where, text))
    return findings


def _fits(spec: TensorSpec, shape: tuple[int, ...]) -> bool:
    if shape == spec.shape or (spec.format and prod(shape) == prod(spec.shape) == 1):
        return True  # a number for a whole matrix is stored as a scalar or as a list of one
    # A padded tensor only has to hold its live part; that the tail is zero is checked when it is loaded.
    return (
        spec.zero_tail and len(shape) == len(spec.shape) and shape[0] >= spec.parameters and shape[1:] == spec.shape[1:]
    )


def _dtype_findings(differing: Sequence[_Differing]) -> list[Finding]:
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, spec, header in differing:
        if header.dtype != spec.dtype:
            groups[spec.dtype, header.dtype].append(name)
    return [_dtype_finding(want, have, names) for (want, have), names in groups.items()]


def _dtype_finding(want: str, have: str, names: list[str]) -> Finding:
    # A plain float can be loaded as another; packed bits cannot be read as anything else.
    packed = not (want.startswith(("F", "BF")) and have.startswith(("F", "BF"))) or "8" in want + have
    return Finding(
        "tensor-dtype",
        "error" if packed else "warning",
        _and_more(names[0], len(names)),
        f"stored as {have}, expected {want}",
        "" if packed else "loads, with the rounding of the stored dtype",
    )


def _and_more(name: str, count: int) -> str:
    return name if count == 1 else f"{name} and {count - 1:,} more"


def _without_left_out_mtp(profile: ArchitectureProfile, missing: list[str]) -> tuple[list[str], list[Finding]]:
    """A release may leave the predictor layers out altogether: the decoder is whole without them."""
    if profile.family is None or profile.mtp is None:
        return missing, []
    specs = _mtp_tensors(FAMILIES[profile.family], profile)
    names = {name for spec in specs for part in as_packed(spec, profile.quantization) for name in part.names()}
    if not names.issubset(missing):
        return missing, []
    note = Finding(
        "mtp-not-stored",
        "note",
        min(names),
        f"none of the {len(names)} tensors of multi-token prediction is stored",
        "the config announces its layers; speculative decoding with them is not possible from these files",
    )
    return [name for name in missing if name not in names], [note]


def _without_left_out_towers(profile: ArchitectureProfile, missing: list[str]) -> tuple[list[str], list[Finding]]:
    """A release may leave out a whole encoder, as of a model trained on with text alone: it answers to text."""
    assert profile.family is not None
    findings = []
    for kind, without in (("vision", replace(profile, audio=None)), ("audio", replace(profile, vision=None))):
        names = {name for spec in _tower_tensors(FAMILIES[profile.family], without) for name in spec.names()}
        if names and names.issubset(missing):
            missing = [name for name in missing if name not in names]
            text = f"none of the {len(names):,} tensors of the {kind} tower is stored"
            hint = f"the architecture has one: with these files it takes no {kind} input"
            findings.append(Finding("tower-not-stored", "warning", min(names), text, hint))
    return missing, findings


def _without_unread(profile: ArchitectureProfile, unexpected: list[str]) -> tuple[list[str], list[Finding]]:
    """Releases of a family may hold tensors that no layer reads, as copies of tables that are shared."""
    assert profile.family is not None
    known = "|".join(re.escape(name).replace(re.escape("{l}"), r"\d+") for name in FAMILIES[profile.family].unread)
    unread = [name for name in unexpected if re.fullmatch(known, name)]
    if not unread:
        return unexpected, []
    note = Finding(
        "tensor-not-read", "note", _and_more(unread[0], len(unread)), "stored, and read by no layer of this family"
    )
    return sorted(set(unexpected) - set(unread)), [note]


def _without_cache_scales(unexpected: list[str]) -> tuple[list[str], list[Finding]]:
    """Releases calibrated for a narrow key/value cache store scales for it, which a cache in full precision ignores."""
    scales = [name for name in unexpected if name.endswith(_CACHE_SCALES)]
    if not scales:
        return unexpected, []
    where = scales[0] + (f" and {len(scales) - 1} more" if len(scales) > 1 else "")
    note = Finding("cache-scales-stored", "note", where, "scales of a quantised key/value cache")
    return [name for name in unexpected if not name.endswith(_CACHE_SCALES)], [note]


def _without_tied_head(profile: ArchitectureProfile, unexpected: list[str]) -> tuple[list[str], list[Finding]]:
    """A tied checkpoint may store its head a second time; that copy is not used."""
    assert profile.family is not None
    head = FAMILIES[profile.family].names["lm_head.weight"]
    if head not in unexpected:
        return unexpected, []
    note = Finding("tied-head-stored", "note", head, "embeddings are tied; the stored head is not used")
    return [name for name in unexpected if name != head], [note]
