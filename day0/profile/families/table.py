"""The families day0 knows, and which of them a config belongs to."""

from __future__ import annotations

from collections.abc import Mapping

from day0.profile.families.deepseek import DEEPSEEKS
from day0.profile.families.deepseek_v4 import DEEPSEEK_V4
from day0.profile.families.family import Family
from day0.profile.families.grouped_query import LLAMA, MIXTRAL, QWEN3, QWEN3_MOE
from day0.profile.families.kimi import KIMI_K3
from day0.profile.families.latent import LATENT_DECODERS
from day0.profile.families.lfm2 import LFM2S
from day0.profile.families.lightning import LIGHTNINGS
from day0.profile.families.mamba_hybrid import MAMBA_HYBRIDS
from day0.profile.families.mixed_latent import MIXED_LATENT_DECODERS
from day0.profile.families.qwen_hybrid import QWEN_HYBRIDS
from day0.profile.families.sparse import SPARSE_DECODERS

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        *(LLAMA, QWEN3, MIXTRAL, QWEN3_MOE, KIMI_K3),
        *QWEN_HYBRIDS,
        *DEEPSEEKS,
        DEEPSEEK_V4,
        *LATENT_DECODERS,
        *SPARSE_DECODERS,
        *MIXED_LATENT_DECODERS,
        *MAMBA_HYBRIDS,
        *LIGHTNINGS,
        *LFM2S,
    )
}


def find_family(model_type: str, architectures: tuple[str, ...]) -> Family | None:
    """The family of a config: by `model_type`, else (where that is absent) by the first known architecture."""
    named = [family for family in FAMILIES.values() if model_type in family.model_types]
    if len(named) == 1:
        return named[0]
    # A word that several families share leaves the choice to the architectures, as no word at all does.
    for family in named or (() if model_type else FAMILIES.values()):
        if set(architectures) & set(family.architectures):
            return family
    return None
