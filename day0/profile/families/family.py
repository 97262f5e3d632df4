"""What a family table says: which configs are its own, how they spell things, and what its checkpoints call tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from day0.profile.config_reader import ConfigReader
from day0.profile.profile import FeedForward, Mixer, PlainResidual, Residual, VisionSpec


def plain_residual(reader: ConfigReader) -> Residual:
    del reader
    return PlainResidual()


def no_vision(top: ConfigReader) -> VisionSpec | None:
    del top
    return None


@dataclass(frozen=True, slots=True)
class Family:
    """One family of models, as a table.

    `names` maps our parameter paths to checkpoint names; "{l}" stands for the layer, "{expert}" for the expert.
    `native` says that the reference runtime has every part that the family's configs can ask for. `norms` are those
    of `LayerSpec.norms`. `text_section` is the config section that describes the decoder, None where it is the whole
    file. `quantized` lists the parameter groups that packed releases of the family pack. `tiny` overrides config keys
    (dotted paths) to shrink a config of the family to a test size with every feature left on, `tiny_extras` the JSON
    files beside it.
    """

    name: str
    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    read_mixer: Callable[[ConfigReader, int], Mixer]
    read_feed_forward: Callable[[ConfigReader, int], FeedForward]
    names: Mapping[str, str]
    native: bool = False
    norms: tuple[str, ...] = ("mixer_norm", "ffn_norm")
    norm_eps_default: float = 1e-6
    tie_default: bool = False
    text_section: str | None = None
    read_residual: Callable[[ConfigReader], Residual] = plain_residual
    read_vision: Callable[[ConfigReader], VisionSpec | None] = no_vision
    quantized: tuple[str, ...] = ()
    inert: tuple[str, ...] = ()
    tiny: Mapping[str, Any] = field(default_factory=dict)
    tiny_extras: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
