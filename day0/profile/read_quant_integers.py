"""Packings of integers with input-first layouts: AWQ, GPTQ, and AutoRound, which writes either."""

from __future__ import annotations

import re
from dataclasses import replace

from day0.profile import packing_formats as formats
from day0.profile.packing_patterns import ModulePatterns, read_patterns
from day0.profile.quantization import PackingRule, WeightFormat
from day0.profile.read_quant_method import NotUnderstood, Packing, Section

_LEFT_OUT = "-:"


def read_awq(section: Section) -> Packing:
    version = section.word("version", "gemm").lower()
    if version != "gemm":
        raise NotUnderstood(f"AWQ in the {version} layout")
    packing = formats.awq(_bits(section), _group(section), zero_points=section.flag("zero_point", True))
    return Packing((PackingRule(packing, None, section.patterns("modules_to_not_convert")),))


def read_gptq(section: Section) -> Packing:
    """Every linear layer of the decoder's blocks; `dynamic` leaves modules out ("-:") or gives them other numbers."""
    layout = section.word("checkpoint_format", "gptq").lower()
    if layout not in ("gptq", "gptq_v2"):
        raise NotUnderstood(f"GPTQ in the {layout} layout")
    left_out, special = _dynamic(section)
    kept = section.patterns("modules_to_not_convert")
    ignore = read_patterns([*kept.entries, *left_out], section.where)
    rules = [
        PackingRule(_gptq(replace(section, values={**section.values, **inner.values})), names, ignore)
        for names, inner in special
    ]
    return Packing((*rules, PackingRule(_gptq(section), None, ignore, head=section.flag("lm_head", False))))


def read_auto_round(section: Section) -> Packing:
    """AutoRound packs as AWQ or GPTQ; modules that `extra_config` gives 16 bits stay as they are."""
    layout = section.word("packing_format", "auto_round:auto_gptq").lower()
    if section.word("data_type", "int") != "int":
        raise NotUnderstood(f"AutoRound of {section.word('data_type')}")
    extra = section.inner("extra_config")
    kept = []
    for module in extra.values if extra is not None else ():
        inner = extra.inner(module) if extra is not None else None
        bits = inner.integer("bits", section.integer("bits", 4)) if inner is not None else 16
        if bits >= 16:
            kept.append(module)
        elif inner is not None and bits != section.integer("bits", 4):
            raise NotUnderstood(f"AutoRound with {bits} bits for some modules")
    ignore = read_patterns(kept, f"{section.where}.extra_config")
    if "awq" in layout:
        packing = formats.awq(_bits(section), _group(section), zero_points=True)
    elif "gptq" in layout:
        packing = _gptq(section)
    else:
        raise NotUnderstood(f"AutoRound in the {layout} layout")
    return Packing((PackingRule(packing, None, ignore),))


def _bits(section: Section) -> int:
    bits = section.integer("bits", section.integer("w_bit", 4))
    if bits not in (2, 4, 8):
        raise NotUnderstood(f"{bits}-bit integers")
    return bits


def _group(section: Section) -> int:
    """AutoAWQ's first configs wrote q_group_size."""
    return section.group_size(section.integer("q_group_size", 128))


def _gptq(section: Section) -> WeightFormat:
    version = 2 if section.word("checkpoint_format", "gptq").lower() == "gptq_v2" else 1
    return formats.gptq(_bits(section), _group(section), version=version)


def _dynamic(section: Section) -> tuple[list[str], list[tuple[ModulePatterns, Section]]]:
    """Modules left out, and those with numbers of their own; keys are expressions found anywhere in a name."""
    where, dynamic = f"{section.where}.dynamic", section.inner("dynamic")
    left_out, special = [], []
    for key in dynamic.values if dynamic is not None else ():
        expression = f"re:.*(?:{re.sub('^[-+]:', '', key)})"
        inner = dynamic.inner(key) if dynamic is not None else None
        if key.startswith(_LEFT_OUT):
            left_out.append(expression)
        elif inner is not None:
            special.append((read_patterns([expression], where), inner))
    return left_out, special
