"""What a family table says: which configs are its own, how they spell things, and what its checkpoints call tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from day0.profile.config_reader import ConfigReader
from day0.profile.profile import (
    AudioTower,
    FeedForward,
    LayerSpec,
    Mixer,
    ModelEnds,
    MultiTokenPrediction,
    NormKind,
    PlainResidual,
    Residual,
    VisionSpec,
    VisionTower,
)
from day0.profile.storage import Storage


def plain_residual(reader: ConfigReader) -> Residual:
    del reader
    return PlainResidual()


def no_vision(top: ConfigReader) -> VisionSpec | VisionTower | None:
    del top
    return None


def no_audio(top: ConfigReader) -> AudioTower | None:
    del top
    return None


def plain_ends(reader: ConfigReader) -> ModelEnds:
    del reader
    return ModelEnds()


def no_mtp(reader: ConfigReader) -> MultiTokenPrediction | None:
    del reader
    return None


def unchanged(reader: ConfigReader, layer: LayerSpec) -> LayerSpec:
    del reader
    return layer


MAX_LAYERS = 4096
"""A config is a stranger's text: a number of layers beyond this is refused before anything is made for each."""


def count_layers(reader: ConfigReader) -> int:
    return reader.integer("num_hidden_layers", maximum=MAX_LAYERS)


@dataclass(frozen=True, slots=True)
class Family:
    """One family of models, as a table.

    `names` maps our parameter paths to checkpoint names; "{l}" stands for the layer, "{expert}" for the expert. A key
    "path@kind" names the tensor in the decoder's layers of that kind of mixer only.
    `native` says that the reference runtime has every part that the family's configs can ask for. `norms` are those
    of `LayerSpec.norms`, less those of a branch that a layer does not have; `finish_layer` gives a layer what else
    sets it apart. `norm_eps_key`, `max_position_keys` and `tie_keys` (the first that is there counts) are the family's
    words where they are not the usual ones. `text_section` is the config section that describes the decoder, None
    where it is the whole file; with `flat_text` older configs do without it. `storage` says how files lay tensors
    out; `variants` name tables that differ in names and layout alone, of which the one that the headers fit best is
    taken. `unread` are checkpoint names of tensors that releases may hold and nothing reads. `quantized` lists the
    parameter groups that packed releases of the family pack, () for all linear layers; `block_scale` is the leaf and
    dtype that its own FP8 releases store block scales in. `tiny` overrides config keys (dotted paths) to shrink a
    config of the family to a test size with every feature left on, `tiny_extras` the JSON files beside it.
    """

    name: str
    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    read_mixer: Callable[[ConfigReader, int], Mixer]
    read_feed_forward: Callable[[ConfigReader, int], FeedForward]
    names: Mapping[str, str]
    native: bool = False
    norms: tuple[str, ...] = ("mixer_norm", "ffn_norm")
    count_layers: Callable[[ConfigReader], int] = count_layers
    finish_layer: Callable[[ConfigReader, LayerSpec], LayerSpec] = unchanged
    norm_kind: NormKind = "rms"
    norm_eps_key: str = "rms_norm_eps"
    norm_eps_default: float = 1e-6
    max_position_keys: tuple[str, ...] = ("max_position_embeddings",)
    tie_keys: tuple[str, ...] = ("tie_word_embeddings",)
    tie_default: bool = False
    text_section: str | None = None
    flat_text: bool = False
    read_residual: Callable[[ConfigReader], Residual] = plain_residual
    read_ends: Callable[[ConfigReader], ModelEnds] = plain_ends
    read_vision: Callable[[ConfigReader], VisionSpec | VisionTower | None] = no_vision
    read_audio: Callable[[ConfigReader], AudioTower | None] = no_audio
    read_mtp: Callable[[ConfigReader], MultiTokenPrediction | None] = no_mtp
    unread: tuple[str, ...] = ()
    quantized: tuple[str, ...] = ()
    block_scale: str = "weight_scale_inv F32"
    storage: Storage = field(default_factory=Storage)
    variants: tuple[str, ...] = ()
    inert: tuple[str, ...] = ()
    tiny: Mapping[str, Any] = field(default_factory=dict)
    tiny_extras: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
