"""Rotary position embeddings as configs spell them, before and after transformers 5."""

from __future__ import annotations

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import RopeLayout, RopeSpec

_PARAMETERS = {
    "default": (),
    "mrope": (),
    "linear": ("factor",),
    "dynamic": ("factor", "alpha", "original_max_position_embeddings"),
    "proportional": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "longrope": ("factor", "original_max_position_embeddings", "attention_factor", "short_mscale", "long_mscale"),
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
_OPTIONAL = {
    "yarn": {"beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor"},
    "dynamic": {"factor", "alpha", "original_max_position_embeddings"},
    "proportional": {"factor"},
    "longrope": {"factor", "original_max_position_embeddings", "attention_factor", "short_mscale", "long_mscale"},
}
_ORIGINAL = "original_max_position_embeddings"
_LONGEST = "max_position_embeddings"
_MAY_BE_ZERO = {"mscale", "mscale_all_dim"}
_SAME = {"su": "longrope", "mrope": "default"}
"""Older words: "su" for longrope; "mrope" only says that positions have several axes."""


def read_rope(
    reader: ConfigReader,
    head_dim: int,
    layout: RopeLayout = "neox",
    theta: float = 10000.0,
    *,
    kind: str | None = None,
    theta_key: str = "rope_theta",
    scaled: bool = True,
    fraction: float = 1.0,
    sections: tuple[int, ...] = (),
) -> RopeSpec:
    """The rotary spec of a layer: `rope_parameters` (transformers 5) or `rope_theta` with `rope_scaling`.

    `theta`, `fraction` and `sections` are the family's defaults. `kind` picks one of several sections by kind of
    layer; where there is only one, `theta_key` and `scaled` say what of it holds for this kind. Raises InputError for
    a scaling rule that is not known here.
    """
    section, own = _section(reader, kind)
    scaling = section if scaled or own else None
    if section is not None and (own or theta_key == "rope_theta") and section.has("rope_theta"):
        base = section.number("rope_theta")
        reader.ignore(theta_key)
    else:
        base = reader.number(theta_key, theta)
    share = _fraction(section, reader, fraction)
    name, parameters = _read_scaling(scaling)
    if name in ("longrope", "dynamic"):
        parameters = _with_lengths(reader, name, dict(parameters))
    if name == "proportional":
        # The slowest channels of the whole head stand still, instead of a tail being left out.
        parameters, share = (*parameters, ("partial_rotary_factor", share)), 1.0
    dim = int(head_dim * share)
    dim += dim % 2 if share < 1 else 0  # frequencies are made for channels 0, 2, ... below the fraction
    if base <= 0 or dim < 2 or dim % 2 or dim > head_dim:
        raise InputError(
            f"cannot rotate {dim} of {head_dim} channels with base {base:g}: pairs of channels and a positive base",
            where=reader.where("head_dim" if base > 0 else theta_key),
        )
    axes, interleaved = _read_sections(section, sections)
    short, long = _read_factors(scaling, dim // 2) if name == "longrope" else ((), ())
    return RopeSpec(base, dim, layout, name, tuple(sorted(parameters)), short, long, axes, interleaved)


def _section(reader: ConfigReader, kind: str | None) -> tuple[ConfigReader | None, bool]:
    """The section of the rotary parameters, and whether it is that of this kind of layer alone."""
    section = reader.section("rope_parameters") or reader.section("rope_scaling")
    if section is None or kind is None:
        return section, False
    section.ignore(*(name for name, value in section.values.items() if isinstance(value, dict)))
    own = section.section(kind)
    return (own, True) if own is not None else (section, False)


def _fraction(section: ConfigReader | None, reader: ConfigReader, default: float) -> float:
    """The share of a head that is rotated."""
    for place in (section, reader):
        if place is not None and "partial_rotary_factor" in place.values:
            reader.ignore("partial_rotary_factor")  # saved a second time beside the section
            return place.number("partial_rotary_factor", default)
    return default


def _read_scaling(section: ConfigReader | None) -> tuple[str, tuple[tuple[str, float], ...]]:
    if section is None:
        return "none", ()
    key = "rope_type" if section.has("rope_type") else "type"
    if not section.has(key):
        return "none", ()
    section.ignore("type")  # older writers repeat rope_type under its first name
    name = _SAME.get(section.word(key), section.word(key))
    if name not in _PARAMETERS:
        known = ", ".join(sorted(_PARAMETERS))
        raise InputError(f"rope scaling {name!r} is not known here", where=section.where(key), hint=f"known: {known}")
    parameters = []
    for parameter in _PARAMETERS[name]:
        if parameter not in _OPTIONAL.get(name, ()) or section.has(parameter):
            value = section.number(parameter)
            if value < 0 or (value == 0 and parameter not in _MAY_BE_ZERO):
                raise InputError(f"must be positive, got {value:g}", where=section.where(parameter))
            parameters.append((parameter, value))
    if name == "yarn" and section.has("truncate"):
        parameters.append(("truncate", float(section.flag("truncate"))))
    return ("none" if name == "default" else name), tuple(parameters)


def _read_sections(section: ConfigReader | None, default: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
    """Channel pairs per axis of a position, and whether they are dealt out in turn."""
    if section is None or not (default or section.has("mrope_section")):
        return default, False
    return section.integers("mrope_section", default), section.flag("mrope_interleaved", False)


def _with_lengths(reader: ConfigReader, name: str, numbers: dict[str, float]) -> tuple[tuple[str, float], ...]:
    """The numbers of a rule that follows the length, with the lengths that a config has outside of the section."""
    longest = reader.optional_number(_LONGEST)
    if name == "dynamic":
        if longest and "alpha" not in numbers:
            numbers["trained_length"] = longest
        return tuple(numbers.items())
    original = reader.optional_number(_ORIGINAL) or numbers.get(_ORIGINAL) or longest  # Phi-3 has it outside
    if original:
        numbers[_ORIGINAL] = original
        if longest:
            numbers.setdefault("factor", longest / original)
    return tuple(numbers.items())


def _read_factors(section: ConfigReader | None, pairs: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A positive divisor for each pair of channels, below and above the original length."""
    assert section is not None
    short, long = section.numbers("short_factor"), section.numbers("long_factor")
    for key, found in (("short_factor", short), ("long_factor", long)):
        if len(found) != pairs or min(found) <= 0:
            raise InputError(
                f"must be {pairs} positive numbers, one for each pair of channels that turns, got {len(found)}",
                where=section.where(key),
            )
    return short, long
