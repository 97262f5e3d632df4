"""Layers that predict tokens further ahead, as configs spell them: how many, and made like the decoder's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from day0.profile.config_reader import ConfigReader
from day0.profile.profile import FeedForward, LayerSpec, Mixer, MultiTokenPrediction, PlainResidual, Residual

_COUNT_KEYS = ("num_nextn_predict_layers", "num_mtp_layers")


def _plain(reader: ConfigReader) -> Residual:
    del reader
    return PlainResidual()


@dataclass(frozen=True, slots=True)
class NextLayers:
    """Reads predictors of one layer each that follow the decoder's layers in number (DeepSeek-V3).

    `stored_from_zero` says that the checkpoint counts them from 0; else they go on from the decoder's.
    """

    read_mixer: Callable[[ConfigReader, int], Mixer]
    read_feed_forward: Callable[[ConfigReader, int], FeedForward]
    read_residual: Callable[[ConfigReader], Residual] = _plain
    stored_from_zero: bool = False
    split_join: bool = False

    def __call__(self, reader: ConfigReader) -> MultiTokenPrediction | None:
        key = next((key for key in _COUNT_KEYS if reader.has(key)), _COUNT_KEYS[0])
        count, decoder = reader.integer(key, 0, minimum=0, maximum=64), reader.integer("num_hidden_layers")
        if not count:
            return None
        residual = self.read_residual(reader)
        layers = tuple(
            LayerSpec(
                number if self.stored_from_zero else decoder + number,
                self.read_mixer(reader, decoder + number),
                self.read_feed_forward(reader, decoder + number),
                residual,
            )
            for number in range(count)
        )
        return MultiTokenPrediction(layers, depths=count, split_join=self.split_join)
