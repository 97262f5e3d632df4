"""Models whose name says that they are packed while nothing at hand says how."""

from __future__ import annotations

import re

from day0.profile.profile import ArchitectureProfile
from day0.source.model_files import ModelFiles

_WORDS = re.compile(r"(?<![a-z0-9])(nvfp4|mxfp4|fp4|fp8|int4|int8|awq|gptq|w4a16|w8a8)(?![a-z0-9])")
_VALUE_BITS = {"fp8": 8, "int8": 8, "w8a8": 8}
"""Bits of a packed value; 4 where a word is not named."""


def unsaid_packing(files: ModelFiles, profile: ArchitectureProfile) -> str | None:
    """What a plan cannot size, or None.

    ModelOpt's releases describe their packing in a file beside config.json. Planned from a bare config.json their
    weights would be counted as plain numbers; the name of the model, or of the folder that the config lies in, gives
    them away. Tensor headers settle the matter, and so does a config that says how.
    """
    if files.tensors is not None or profile.quantization is not None:
        return None
    folder = files.folder.name if files.folder is not None else ""
    word = next((found.group(1) for name in (files.id, folder) if (found := _WORDS.search(name.lower()))), None)
    if word is None:
        return None
    least = _VALUE_BITS.get(word, 4)
    return (
        f"the packing of the weights: the name says {word}, {files.config_name} does not say how, and "
        f"hf_quant_config.json, which lies beside it in such releases, was not read (plan the folder or the hub id); "
        f"counted as {profile.dtype} the weights are an upper bound, all at {least} bits a lower one"
    )
