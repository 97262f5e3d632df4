"""Multi-token prediction: extra layers that a config counts and its checkpoint stores beside the decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from day0.profile.config_reader import ConfigReader
from day0.profile.feed_forward import FeedForward
from day0.profile.mixers import Mixer
from day0.profile.profile import LayerSpec, MultiTokenPrediction, PlainResidual

MAX_PREDICTORS = 64


def read_predictors(
    reader: ConfigReader,
    *,
    key: str,
    mixer: Callable[[ConfigReader, int], Mixer],
    feed_forward: Callable[[ConfigReader, int], FeedForward],
    norms: tuple[str, ...] = ("mixer_norm", "ffn_norm"),
    default: int = 0,
    numbered_on: bool = False,
) -> MultiTokenPrediction | None:
    """As many predictors as `key` says, each one layer like the decoder's last; None where it says none.

    `numbered_on` says that they are stored under the numbers that follow the decoder's layers, else from 0.
    """
    count = reader.integer(key, default, minimum=0, maximum=MAX_PREDICTORS)
    if not count:
        return None
    last = reader.integer("num_hidden_layers") - 1
    layer = LayerSpec(last, mixer(reader, last), feed_forward(reader, last), PlainResidual(), norms)
    first = last + 1 if numbered_on else 0
    return MultiTokenPrediction(tuple(replace(layer, index=first + n) for n in range(count)), depths=count)
