"""How the weights are packed, from the config's quantisation section wherever it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from day0.errors import Finding, InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import QuantizationSpec

MX_GROUP = 32
"""Values under one scale in every MX format (OCP MX 1.0)."""


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
    if method == "compressed-tensors" and packing == "mxfp4-pack-quantized" and targets:
        _check_group_size(section)
        return QuantizationSpec(method, "mxfp4", MX_GROUP, targets), ()
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


def _check_group_size(section: ConfigReader) -> None:
    """Raise InputError where a config group states another group size than the format has."""
    groups = section.values.get("config_groups")
    for name, group in groups.items() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        size = weights.get("group_size", MX_GROUP) if isinstance(weights, Mapping) else MX_GROUP
        if size != MX_GROUP:
            raise InputError(
                f"mxfp4 has groups of {MX_GROUP}, got {size!r}",
                where=section.where(f"config_groups.{name}.weights.group_size"),
            )
