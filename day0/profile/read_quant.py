"""How the weights are packed, from the config's quantisation section wherever it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from day0.errors import Finding, InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.family import Family
from day0.profile.quantization import QuantizationSpec
from day0.profile.read_quant_integers import read_auto_round, read_awq, read_gptq
from day0.profile.read_quant_method import NotUnderstood, Packing, Section, cache_dtype
from day0.profile.read_quant_modelopt import read_mixed_fp8, read_modelopt
from day0.profile.read_quant_tensors import read_compressed_tensors, read_fbgemm, read_fp8, read_mxfp4

_SECTIONS = ("quantization_config", "compression_config")
_MODELOPT_FILE = "hf_quant_config.json"

_METHODS: Mapping[str, Callable[[Section], Packing]] = {
    "compressed-tensors": read_compressed_tensors,
    "fp8": read_fp8,
    "fbgemm_fp8": read_fbgemm,
    "mxfp4": read_mxfp4,
    "modelopt": read_modelopt,
    "awq": read_awq,
    "gptq": read_gptq,
    "auto-round": read_auto_round,
}
_ALIASES = {
    "modelopt_fp4": "modelopt",
    "modelopt_fp8": "modelopt",
    "modelopt_mixed": "modelopt",
    "intel/auto-round": "auto-round",
    "auto_round": "auto-round",
    "compressed_tensors": "compressed-tensors",
}


@dataclass(frozen=True, slots=True)
class Quantization:
    """What was read: None for weights that are not packed, or not understood (then a finding says so)."""

    spec: QuantizationSpec | None
    findings: tuple[Finding, ...] = ()


def read_quantization(
    top: ConfigReader, text: ConfigReader, family: Family, extras: Mapping[str, Mapping[str, Any]]
) -> Quantization:
    """How a release of `family` is packed.

    A method that is not understood gives no spec and an error finding: sizes would be those of unpacked weights. So
    do two sections that contradict each other. Raises InputError where a section is malformed.
    """
    sections = _sections(top, text, family, extras)
    if not sections:
        return Quantization(None)
    section = sections[0]
    others = [other for other in sections[1:] if _contradict(section, other)]
    if others:
        return Quantization(None, (_conflict(section, others[0]),))
    method = _method(section)
    try:
        packing = _read(method, section)
    except NotUnderstood as reason:
        return Quantization(None, (_not_read(section, method, str(reason)),))
    if family.quantized == ("routed_experts",):
        packing = replace(packing, rules=tuple(replace(rule, experts=True) for rule in packing.rules))
    caches = (packing.kv_cache, *(cache_dtype(other.values.get("kv_cache_quant_algo")) for other in sections))
    spec = QuantizationSpec(method, section.where, packing.rules, next(filter(None, caches), None))
    return Quantization(spec, tuple(_kv_finding(spec)))


def _read(method: str, section: Section) -> Packing:
    if method == "fp8" and "quantized_layers" in section.values:
        return read_mixed_fp8(section, read_fp8(section))
    reader = _METHODS.get(method)
    if reader is None:
        raise NotUnderstood("a method that is not read yet")
    return reader(section)


def _sections(
    top: ConfigReader, text: ConfigReader, family: Family, extras: Mapping[str, Mapping[str, Any]]
) -> list[Section]:
    """Every section there is, the whole model's first; ModelOpt describes its packing in a file of its own as well."""
    found = []
    expert_dtype = text.word("expert_dtype") if text.has("expert_dtype") else ""
    for reader in {id(top): top, id(text): text}.values():
        for key in _SECTIONS:
            inner = reader.section(key)
            if inner is not None and inner.values:
                inner.ignore_all()
                where = f"{inner.file_name}: {inner.prefix.rstrip('.')}"
                found.append(Section(inner.values, where, family.block_scale, expert_dtype))
    beside = extras.get(_MODELOPT_FILE, {}).get("quantization")
    if beside is not None:
        if not isinstance(beside, Mapping):
            raise InputError("must be an object", where=f"{_MODELOPT_FILE}: quantization")
        values = {"quant_method": "modelopt", **beside}
        found.append(Section(values, f"{_MODELOPT_FILE}: quantization", family.block_scale, expert_dtype))
    return found


def _method(section: Section) -> str:
    """The packing method; ModelOpt's sections may leave it out and name their algorithm instead."""
    values = section.values
    default = "modelopt" if "quant_algo" in values else "unknown"
    method = section.word("quant_method", default).lower()
    return _ALIASES.get(method, method)


def _contradict(one: Section, other: Section) -> bool:
    """Whether two sections describe different packings: other values, or for ModelOpt's file another algorithm."""
    if not other.where.startswith(_MODELOPT_FILE):
        return one.values != other.values
    algorithms = [str(section.values.get("quant_algo") or "").upper() for section in (one, other)]
    return all(algorithms) and algorithms[0] != algorithms[1]


def _conflict(one: Section, other: Section) -> Finding:
    return Finding(
        "quantization-conflict",
        "error",
        one.where,
        f"describes another packing than {other.where}",
        "which of them holds is not known: engines read one or the other",
    )


def _not_read(section: Section, method: str, reason: str) -> Finding:
    return Finding(
        "quantization-not-read",
        "error",
        section.where,
        f"quantisation {method!r} is not understood: {reason}",
        "sizes from the profile are those of unpacked weights; the headers' own bytes are exact",
    )


def _kv_finding(spec: QuantizationSpec) -> list[Finding]:
    if spec.kv_cache is None:
        return []
    text = f"the release is made for a key/value cache in {spec.kv_cache}"
    return [Finding("kv-cache-quantized", "note", spec.section, text, f"plan it with --kv-dtype {spec.kv_cache}")]
