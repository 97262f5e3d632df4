"""The encoders of a model beside its decoder, and what there is to say about how they fit."""

from __future__ import annotations

from dataclasses import dataclass

from day0.errors import Finding
from day0.profile.config_reader import ConfigReader
from day0.profile.families.family import Family
from day0.profile.profile import AudioTower, VisionSpec, VisionTower


@dataclass(frozen=True, slots=True)
class Towers:
    """The two encoders, where there are any; a decoder may be native that has one which is not."""

    vision: VisionSpec | VisionTower | None
    audio: AudioTower | None
    findings: tuple[Finding, ...]


def read_towers(family: Family, top: ConfigReader, hidden_size: int) -> Towers:
    """What the family's table makes of the config; `hidden_size` is the width of the text model that reads it."""
    if str(top.values.get("model_type")).endswith("_text"):
        return Towers(None, None, ())  # the decoder of such a model, alone
    vision, audio = family.read_vision(top), family.read_audio(top)
    findings: list[Finding] = []
    for key, kind, tower in (("vision_config", "vision", vision), ("audio_config", "audio", audio)):
        if not isinstance(tower, VisionTower | AudioTower):
            continue
        if family.native and not (isinstance(tower, VisionTower) and tower.native):
            findings.append(_not_native(top, key, f"{kind} tower ({tower.kind})"))
        if tower.output_size != hidden_size:
            findings.append(_misfit(top, key, tower.output_size, hidden_size))
    return Towers(vision, audio, tuple(findings))


def _not_native(top: ConfigReader, key: str, tower: str) -> Finding:
    return Finding(
        "tower-not-native",
        "note",
        top.where(key),
        f"the reference runtime has the decoder of this model and not its {tower}: it takes text alone",
        "for what the tower reads take another engine; it is inspected and planned for",
    )


def _misfit(top: ConfigReader, key: str, writes: int, reads: int) -> Finding:
    return Finding(
        "tower-width",
        "warning",
        top.where(key),
        f"the projector writes {writes} channels, the text model reads {reads}",
        "one of the two sizes is wrong: what the tower gives cannot take a token's place",
    )
