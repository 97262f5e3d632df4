"""What only stored numbers tell, a few kilobytes of a local checkpoint: a second head, the centre of norm weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from day0.errors import Finding
from day0.profile.profile import ArchitectureProfile
from day0.profile.tensors import plain_tensors
from day0.source.model_files import ModelFiles
from day0.source.samples import first_values, same_bytes

_NORMS = ("mixer_norm.weight", "ffn_norm.weight")
_NEAR = 0.2
"""Means of weights as near as this to the other convention's centre, in every layer, are of that convention."""
_LAYERS = 8
"""Layers whose norms are looked at."""


def audit_samples(files: ModelFiles, profile: ArchitectureProfile) -> Iterator[Finding]:
    """Nothing for a model whose shards are not on this machine, or whose family is unknown."""
    if files.source != "folder" or files.folder is None or files.tensors is None or profile.family is None:
        return
    if profile.tie_word_embeddings:
        yield from _second_head(files, profile, files.folder)
    yield from _norm_centre(files, profile, files.folder)


def _second_head(files: ModelFiles, profile: ArchitectureProfile, folder: Path) -> Iterator[Finding]:
    """A tied model that stores a head with other numbers: engines differ in the one they use."""
    assert files.tensors is not None
    table = next((spec.name for spec, _ in plain_tensors(profile) if spec.path == "embed.weight"), "")
    head = next((name for name in files.tensors if name.rpartition("lm_head.")[2] == "weight" and name != table), None)
    if head is None or table not in files.tensors:
        return
    if same_bytes(folder, files.tensors[head], files.tensors[table]) is False:
        text = f"tied by the config, and stored with other numbers than {table}"
        yield Finding("tied-head-differs", "error", head, text, "the flag is wrong, or the head is left over")


def _norm_centre(files: ModelFiles, profile: ArchitectureProfile, folder: Path) -> Iterator[Finding]:
    """Weights of RMS norms are stored as they are or less one; nothing but their values tells which."""
    if profile.norm_kind not in ("rms", "rms_plus_one"):
        return
    assert files.tensors is not None
    means = []
    for spec, ahead in plain_tensors(profile):
        if ahead or not spec.path.endswith(_NORMS) or spec.layer is None or spec.layer >= _LAYERS:
            continue
        values = first_values(folder, files.tensors[spec.name]) if spec.name in files.tensors else None
        if not values or not all(map(math.isfinite, values)):
            continue
        means.append(fmean(values))
        if not any(values):
            return  # a full-size skeleton has no numbers at all
    centre, other = (1.0, 0.0) if profile.norm_kind == "rms" else (0.0, 1.0)
    if means and all(abs(mean - other) < _NEAR for mean in means):
        text = (
            f"the means of {len(means)} norm weights lie from {min(means):.2f} to {max(means):.2f}, "
            f"around {other:.0f}; this family stores them around {centre:.0f}"
        )
        hint = "a conversion added or took away one: every norm would be off by it"
        yield Finding("norm-centre", "warning", "tensors", text, hint)
