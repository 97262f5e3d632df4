"""What rotary positions need."""

from __future__ import annotations

from collections.abc import Iterator

from day0.inventory.use import Fact, Use, use
from day0.profile.profile import RopeSpec


def rotary(spec: RopeSpec, head_dim: int, **heads: int) -> Iterator[Use]:
    """The table once, then the rotation of each kind of head."""
    pairs = spec.dim // 2
    yield _table(spec, pairs)
    for kind, count in heads.items():
        yield use("rope", f"mixer.rope.{kind}", heads=count, head_dim=head_dim, rope_pairs=pairs, layout=spec.layout)


def _table(spec: RopeSpec, pairs: int) -> Use:
    facts: dict[str, Fact] = {"rope_pairs": pairs, "theta": spec.theta, "scaling": spec.scaling}
    if not spec.sections:
        return use("rope_table", "mixer.rope", **facts)
    return use(
        "multi_axis_rope_table",
        "mixer.rope",
        position_axes=len(spec.sections),
        sections=" ".join(map(str, spec.sections)),
        interleaved=spec.interleaved_sections,
        **facts,
    )
