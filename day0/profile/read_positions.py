"""Rotary position embeddings as configs spell them, before and after transformers 5."""

from __future__ import annotations

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import RopeLayout, RopeSpec

_PARAMETERS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (
        "factor",
        "original_max_position_embeddings",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "attention_factor",
    ),
}
_OPTIONAL = {"beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor"}
_MAY_BE_ZERO = {"mscale", "mscale_all_dim"}


def read_rope(reader: ConfigReader, head_dim: int, layout: RopeLayout = "neox", theta: float = 10000.0) -> RopeSpec:
    """The rotary spec of a layer: `rope_parameters` (transformers 5) or `rope_theta` with `rope_scaling`.

    `theta` is the family's default base. Raises InputError for a scaling rule that is not known here.
    """
    section = reader.section("rope_parameters") or reader.section("rope_scaling")
    if section is not None and section.has("rope_theta"):
        base = section.number("rope_theta")
        reader.ignore("rope_theta")
    else:
        base = reader.number("rope_theta", theta)
    fraction_reader = section if section is not None and section.has("partial_rotary_factor") else reader
    fraction = fraction_reader.number("partial_rotary_factor", 1.0) if _says_partial(fraction_reader) else 1.0
    dim = int(head_dim * fraction)
    if base <= 0 or dim < 2 or dim % 2 or dim > head_dim:
        raise InputError(
            f"cannot rotate {dim} of {head_dim} channels with base {base:g}: pairs of channels and a positive base",
            where=reader.where("head_dim" if base > 0 else "rope_theta"),
        )
    scaling, parameters = _read_scaling(section)
    return RopeSpec(base, dim, layout, scaling, parameters)


def _says_partial(reader: ConfigReader) -> bool:
    return "partial_rotary_factor" in reader.values


def _read_scaling(section: ConfigReader | None) -> tuple[str, tuple[tuple[str, float], ...]]:
    if section is None:
        return "none", ()
    key = "rope_type" if section.has("rope_type") else "type"
    if not section.has(key):
        return "none", ()
    section.ignore("type")  # older writers repeat rope_type under its first name
    name = section.word(key)
    if name not in _PARAMETERS:
        known = ", ".join(sorted(_PARAMETERS))
        raise InputError(f"rope scaling {name!r} is not known here", where=section.where(key), hint=f"known: {known}")
    parameters = []
    for parameter in _PARAMETERS[name]:
        if parameter not in _OPTIONAL or section.has(parameter):
            value = section.number(parameter)
            if value < 0 or (value == 0 and parameter not in _MAY_BE_ZERO):
                raise InputError(f"must be positive, got {value:g}", where=section.where(parameter))
            parameters.append((parameter, value))
    return ("none" if name == "default" else name), tuple(sorted(parameters))
