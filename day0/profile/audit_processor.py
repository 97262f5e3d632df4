"""The files that turn images and clips into patches, against the tower they feed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from day0.errors import Finding
from day0.profile.profile import ArchitectureProfile
from day0.source.model_files import ModelFiles

_IMAGE, _PROCESSOR, _VIDEO = "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"
_CLASS_KEYS = ("image_processor_type", "feature_extractor_type", "processor_class", "video_processor_type", "auto_map")
_SIZES = (
    ("patch_size", ("patch_size",)),
    ("merge_size", ("spatial_merge_size", "merge_size")),
    ("temporal_patch_size", ("temporal_patch_size",)),
)
"""Keys of a processor and those of a tower's section that must say the same."""


def audit_processor(files: ModelFiles, profile: ArchitectureProfile) -> Iterator[Finding]:
    tower = files.config.get("vision_config")
    if profile.vision is None and not isinstance(tower, Mapping):
        return
    found = [name for name in (_IMAGE, _PROCESSOR, _VIDEO) if name in files.file_names]
    if files.source in ("folder", "hub") and _IMAGE not in found and _PROCESSOR not in found:
        text = f"the model has a tower for images and there is neither {_IMAGE} nor {_PROCESSOR}"
        yield Finding(
            "processor-missing", "warning", files.id, text, "take the file from the model this one is made of"
        )
    section = tower if isinstance(tower, Mapping) else {}
    for name in found:
        values = files.extras.get(name)
        if values is not None:
            yield from _fields(name, values, section)


def _fields(name: str, values: Mapping[str, Any], tower: Mapping[str, Any]) -> Iterator[Finding]:
    """The class a file names, the fields that are used of it, and those that the tower contradicts."""
    inner = next(
        (v for key in ("image_processor", "media_proc_cfg") if isinstance(v := values.get(key), Mapping)), values
    )
    named = next((f"{key} {values[key]}" for key in _CLASS_KEYS[:-1] if isinstance(values.get(key), str)), "")
    named = named or next((f"{key} {inner[key]}" for key in _CLASS_KEYS[:-1] if isinstance(inner.get(key), str)), "")
    used = [f"{key} {inner[key]}" for key, _ in _SIZES if inner.get(key) is not None]
    yield Finding("processor-file", "note", name, f"{named or 'no class named'}; {', '.join(used) or 'no sizes'}")
    # A section of settings belongs to the repository's own class, which auto_map or the engine names.
    if name == _IMAGE and not named and inner is values and "auto_map" not in values:
        text = f"names no class ({', '.join(_CLASS_KEYS[:3])})"
        yield Finding(
            "processor-class-missing", "warning", name, text, "loaders refuse it, or guess by the model's type"
        )
    for key, theirs in _SIZES:
        here = inner.get(key)
        there = next((tower[word] for word in theirs if isinstance(tower.get(word), int)), None)
        if isinstance(here, int) and there is not None and here != there:
            text = f"{here}, the tower's is {there}"
            yield Finding("processor-differs", "error", f"{name}: {key}", text, "patches would not fit the weights")
