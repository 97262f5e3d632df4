"""The families day0 knows, and which of them a config belongs to."""

from __future__ import annotations

from collections.abc import Container, Mapping

from day0.profile.families.arcee import ARCEES
from day0.profile.families.cohere import COHERES
from day0.profile.families.convolved import CONVOLVED
from day0.profile.families.deepseek import DEEPSEEKS
from day0.profile.families.deepseek_v4 import DEEPSEEK_V4
from day0.profile.families.ernie import ERNIES
from day0.profile.families.exaone import EXAONES
from day0.profile.families.family import Family
from day0.profile.families.flint import FLINT
from day0.profile.families.gemma import GEMMAS
from day0.profile.families.gemma4 import GEMMA4S
from day0.profile.families.glm import GLMS
from day0.profile.families.gpt_oss import GPT_OSS
from day0.profile.families.granite import GRANITES
from day0.profile.families.grouped_query import LLAMA, MIXTRAL, QWEN3, QWEN3_MOE
from day0.profile.families.hunyuan import HUNYUANS
from day0.profile.families.kimi import KIMIS
from day0.profile.families.kolibri import KOLIBRI
from day0.profile.families.laguna import LAGUNA
from day0.profile.families.latent import LATENT_DECODERS
from day0.profile.families.lfm2 import LFM2S
from day0.profile.families.lightning import LIGHTNINGS
from day0.profile.families.llama4 import LLAMA4S
from day0.profile.families.mamba_hybrid import MAMBA_HYBRIDS
from day0.profile.families.mellum import MELLUM
from day0.profile.families.mimo_v2 import MIMO_V2
from day0.profile.families.minimax_m2 import MINIMAX_M2
from day0.profile.families.minimax_m3 import MINIMAX_M3S
from day0.profile.families.mistral import MISTRALS
from day0.profile.families.mixed_latent import MIXED_LATENT_DECODERS
from day0.profile.families.mllama import MLLAMA
from day0.profile.families.muse import MUSES
from day0.profile.families.nemotron_nas import NEMOTRON_NAS
from day0.profile.families.olmo import OLMOS
from day0.profile.families.olmo_hybrid import OLMO_HYBRID
from day0.profile.families.parallel_hybrid import PARALLEL_HYBRIDS
from day0.profile.families.phi import PHIS
from day0.profile.families.qwen import QWENS
from day0.profile.families.qwen_hybrid import QWEN_HYBRIDS
from day0.profile.families.seed import SEED_OSS
from day0.profile.families.smollm3 import SMOLLM3
from day0.profile.families.solar import SOLAR_OPEN
from day0.profile.families.sparse import SPARSE_DECODERS
from day0.profile.families.starcoder2 import STARCODER2

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        *(LLAMA, QWEN3, MIXTRAL, QWEN3_MOE),
        *KIMIS,
        *QWEN_HYBRIDS,
        *DEEPSEEKS,
        DEEPSEEK_V4,
        *LATENT_DECODERS,
        *SPARSE_DECODERS,
        *MIXED_LATENT_DECODERS,
        *MAMBA_HYBRIDS,
        *LIGHTNINGS,
        *LFM2S,
        *CONVOLVED,
        *PARALLEL_HYBRIDS,
        *(NEMOTRON_NAS, OLMO_HYBRID),
        *(FLINT, GPT_OSS, KOLIBRI, LAGUNA, MELLUM, MIMO_V2, MINIMAX_M2, MLLAMA, SEED_OSS, SMOLLM3, SOLAR_OPEN),
        STARCODER2,
        *ARCEES,
        *COHERES,
        *ERNIES,
        *EXAONES,
        *GEMMA4S,
        *GEMMAS,
        *GLMS,
        *GRANITES,
        *HUNYUANS,
        *LLAMA4S,
        *MINIMAX_M3S,
        *MISTRALS,
        *MUSES,
        *OLMOS,
        *PHIS,
        *QWENS,
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


def stored_like(family: Family, tensors: Container[str] | None) -> Family:
    """The table, of the family's own and its variants, that most of the stored names fit; its own without headers."""
    if tensors is None or not family.variants:
        return family
    tables = (family, *(FAMILIES[name] for name in family.variants))
    return max(tables, key=lambda table: sum(_first(name) in tensors for name in table.names.values()))


def _first(name: str) -> str:
    for part in ("{l}", "{expert}", "{block}", "{level}"):
        name = name.replace(part, "0")
    return name
