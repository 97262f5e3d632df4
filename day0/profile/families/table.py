"""The families day0 knows, and which of them a config belongs to."""

from __future__ import annotations

from collections.abc import Mapping

from day0.profile.families.family import Family
from day0.profile.families.grouped_query import LLAMA, MIXTRAL, QWEN3, QWEN3_MOE
from day0.profile.families.kimi import KIMI_K3
from day0.profile.families.mamba_hybrid import MAMBA_HYBRIDS
from day0.profile.families.qwen_hybrid import QWEN_HYBRIDS

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        *(LLAMA, QWEN3, MIXTRAL, QWEN3_MOE, KIMI_K3),
        *QWEN_HYBRIDS,
        *MAMBA_HYBRIDS,
    )
}


def find_family(model_type: str, architectures: tuple[str, ...]) -> Family | None:
    """The family of a config: by `model_type`, else (where that is absent) by the first known architecture."""
    for family in FAMILIES.values():
        if model_type in family.model_types:
            return family
    if not model_type:
        for family in FAMILIES.values():
            if set(architectures) & set(family.architectures):
                return family
    return None
