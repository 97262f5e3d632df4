"""How the weights are packed, from the config's quantisation section wherever it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from day0.errors import Finding
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import QuantizationSpec


def read_quantization(
    top: ConfigReader, text: ConfigReader, targets: tuple[str, ...], extras: Mapping[str, Mapping[str, Any]]
) -> tuple[QuantizationSpec | None, tuple[Finding, ...]]:
    """The packing of `targets` (the family's parameter groups that a quantised release packs).

    A method that is not understood gives no spec and an error finding: sizes would be those of unpacked weights.
    """
    section = text.section("quantization_config") or top.section("quantization_config")
    if section is None:
        return None, _modelopt_findings(extras)
    section.ignore_all()
    method = str(section.values.get("quant_method", "unknown"))
    packing = str(section.values.get("format", ""))
    if method == "compressed-tensors" and packing == "mxfp4-pack-quantized":
        return QuantizationSpec(method, "mxfp4", _group_size(section), targets), ()
    where = f"{section.file_name}: {section.prefix.rstrip('.')}"
    return None, (_not_read(where, method, packing),)


def _modelopt_findings(extras: Mapping[str, Mapping[str, Any]]) -> tuple[Finding, ...]:
    """ModelOpt releases describe their packing in a file of its own and may leave the config silent."""
    if "hf_quant_config.json" not in extras:
        return ()
    algorithm = extras["hf_quant_config.json"].get("quantization", {})
    name = algorithm.get("quant_algo", "unknown") if isinstance(algorithm, Mapping) else "unknown"
    return (_not_read("hf_quant_config.json: quantization", "modelopt", str(name)),)


def _not_read(where: str, method: str, packing: str) -> Finding:
    return Finding(
        "quantization-not-read",
        "error",
        where,
        f"quantisation {method!r} ({packing or 'no format given'}) is not read yet",
        "sizes from the profile are those of unpacked weights; the headers' own bytes are exact",
    )


def _group_size(section: ConfigReader) -> int:
    """The group size of the first config group; 32 by the MX specification (OCP MX v1.0) where none is written."""
    groups = section.values.get("config_groups")
    if isinstance(groups, dict):
        for group in groups.values():
            weights = group.get("weights") if isinstance(group, dict) else None
            if isinstance(weights, dict) and isinstance(weights.get("group_size"), int):
                return int(weights["group_size"])
    return 32
