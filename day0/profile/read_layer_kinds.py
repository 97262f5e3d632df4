"""What each layer is, where a config lists it: a word per layer, a pattern of letters, a period."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader

T = TypeVar("T")


def read_layer_kind(
    reader: ConfigReader, index: int, known: Mapping[str, T], default: Callable[[int], T], key: str = "layer_types"
) -> T:
    """The kind of layer `index` by the list under `key`, or `default(index)` where the config has none.

    Raises InputError unless the list has a known word for each layer.
    """
    if not reader.has(key):
        return default(index)
    kinds, layers = reader.words(key), reader.integer("num_hidden_layers")
    if len(kinds) != layers:
        raise InputError(f"{len(kinds)} entries for {layers} layers", where=reader.where(key))
    return known_kind(reader, key, kinds[index], known)


def known_kind(reader: ConfigReader, key: str, word: str, known: Mapping[str, T]) -> T:
    if word not in known:
        raise InputError(
            f"layer kind {word!r} is not known here",
            where=reader.where(key),
            hint=f"known: {', '.join(sorted(known))}",
        )
    return known[word]
