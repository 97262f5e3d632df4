"""Packings of ModelOpt releases: one algorithm for all linear layers, or one for each that is listed."""

from __future__ import annotations

from collections import defaultdict

from day0.profile import packing_formats as formats
from day0.profile.packing_patterns import ModulePatterns, read_patterns
from day0.profile.quantization import PackingRule, WeightFormat
from day0.profile.read_quant_method import NotUnderstood, Packing, Section, cache_dtype

_MIXED = "MIXED_PRECISION"
_UNPACKED = ("", "NONE", "NO_QUANTIZATION")
_AWQ_GROUP = 128


def read_modelopt(section: Section) -> Packing:
    """From `quantization_config` or `hf_quant_config.json`; they spell the list of left-out modules differently."""
    algorithm = section.word("quant_algo").upper()
    ignore = section.patterns("exclude_modules", "ignore")
    cache = cache_dtype(section.values.get("kv_cache_quant_algo") or section.values.get("kv_cache_scheme"))
    if algorithm == _MIXED:
        return Packing(_listed(section, ignore), cache)
    if algorithm in _UNPACKED:
        return Packing((), cache)
    # ModelOpt leaves the head alone unless told otherwise; a list that does not name it says that it was told.
    rule = PackingRule(_algorithm(section, algorithm), None, ignore, head=bool(ignore.entries))
    return Packing((rule,), cache)


def read_mixed_fp8(section: Section, rest: Packing) -> Packing:
    """A release whose own FP8 was kept for all that ModelOpt did not list; its left-out modules are FP8 too."""
    plain = tuple(PackingRule(rule.format, rule.names, experts=rule.experts) for rule in rest.rules)
    return Packing((*_listed(section, section.patterns("exclude_modules", "ignore")), *plain), rest.kv_cache)


def _listed(section: Section, ignore: ModulePatterns) -> tuple[PackingRule, ...]:
    """One rule for each algorithm, over the modules that have it."""
    layers = section.inner("quantized_layers")
    if layers is None:
        raise NotUnderstood(f"{_MIXED} without quantized_layers")
    names: dict[WeightFormat, list[str]] = defaultdict(list)
    known: dict[str, WeightFormat] = {}
    for module in layers.values:
        layer = layers.inner(module)
        if layer is None:
            continue
        key = repr(sorted(layer.values.items(), key=str))
        if key not in known:
            known[key] = _algorithm(layer, layer.word("quant_algo").upper())
        names[known[key]].append(module)
    return tuple(PackingRule(packing, read_patterns(found, layers.where), ignore) for packing, found in names.items())


def _algorithm(section: Section, algorithm: str) -> WeightFormat:
    match algorithm:
        case "FP8":
            return formats.fp8_tensor("weight_scale F32", "input_scale F32")
        case "FP8_PER_CHANNEL_PER_TOKEN":
            return formats.fp8_channel("F32", axes="out")
        case "FP8_PB_WO":
            return formats.fp8_block(128, 128, "weight_scale", "F32", apart=True)
        case "NVFP4" | "NVFP4_AWQ" | "W4A16_NVFP4":
            _check_group(section)
            return formats.modelopt_nvfp4(activations=algorithm != "W4A16_NVFP4")
        case "MXFP8":
            return formats.mxfp8()
        case "W4A16_AWQ" | "INT4_AWQ" | "W4A8_AWQ":
            group = section.group_size(_AWQ_GROUP) or _AWQ_GROUP
            return formats.modelopt_int4(group, fp8_activations=algorithm == "W4A8_AWQ")
        case "W4A8_MXFP4_FP8" | "MXFP4":
            return formats.mxfp4()
    raise NotUnderstood(f"algorithm {algorithm or 'not given'}")


def _check_group(section: Section) -> None:
    size = section.group_size(formats.NV_GROUP)
    if size != formats.NV_GROUP:
        raise section.wrong("group_size", f"{formats.NV_GROUP} for NVFP4", size)
