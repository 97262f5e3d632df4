"""Multi-token prediction: extra layers that a config counts and its checkpoint stores beside the decoder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.feed_forward import FeedForward
from day0.profile.mixers import Mixer
from day0.profile.profile import LayerSpec, MultiTokenPrediction, PlainResidual, Residual

MAX_PREDICTORS = 64


def _plain_residual(reader: ConfigReader) -> Residual:
    del reader
    return PlainResidual()


def read_predictors(
    reader: ConfigReader,
    *,
    key: str,
    mixer: Callable[[ConfigReader, int], Mixer],
    feed_forward: Callable[[ConfigReader, int], FeedForward],
    norms: tuple[str, ...] = ("mixer_norm", "ffn_norm"),
    default: int = 0,
    numbered_on: bool = False,
    like_last: bool = True,
    residual: Callable[[ConfigReader], Residual] = _plain_residual,
    split_join: bool = False,
) -> MultiTokenPrediction | None:
    """As many predictors as `key` says, each one layer made like the decoder's; None where it says none.

    `numbered_on` says that they are stored under the numbers that follow the decoder's layers, else from 0. Without
    `like_last` the readers are asked for those numbers instead of the last layer's.
    """
    count = reader.integer(key, default, minimum=0, maximum=MAX_PREDICTORS)
    if not count:
        return None
    decoder, stream = reader.integer("num_hidden_layers"), residual(reader)
    first = decoder if numbered_on else 0
    layers = []
    for number in range(count):
        like = decoder - 1 if like_last else decoder + number
        layers.append(LayerSpec(first + number, mixer(reader, like), feed_forward(reader, like), stream, norms))
    return MultiTokenPrediction(tuple(layers), depths=count, split_join=split_join)


def following(
    mixer: Callable[[ConfigReader, int], Mixer], feed_forward: Callable[[ConfigReader, int], FeedForward]
) -> Callable[[ConfigReader], MultiTokenPrediction | None]:
    """Predictors whose layers go on from the decoder's in number, and are read as such (DeepSeek-V3)."""
    return partial(
        read_predictors,
        key="num_nextn_predict_layers",
        mixer=mixer,
        feed_forward=feed_forward,
        numbered_on=True,
        like_last=False,
    )
