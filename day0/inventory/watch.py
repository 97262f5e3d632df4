"""Which facts of a profile the rules asked for: what none of them reads may need an operator that nobody listed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from types import FunctionType, MethodType
from typing import Any

NOT_OPERATORS = frozenset(
    (
        "profile.family",
        "profile.model_type",
        "profile.architectures",
        "profile.native",
        "profile.max_position",
        "profile.max_position_field",
        "profile.tie_word_embeddings",
        "profile.bos_token_id",
        "profile.eos_token_ids",
        "profile.unused_config_keys",
        "profile.defaulted_config_keys",
        "profile.findings",
        "profile.likeness",
        "profile.dtype",  # of every need
        "profile.residual",  # told by the layers
        "mixer.kda.decay_rates",  # how they are stored
        "profile.mtp",  # beside the decoder, not part of a step
        "mixer.kda.decay_rates",  # how files store them
        "profile.quantization",
        "profile.vision.num_layers",
        "profile.vision.position_frames",
        "profile.vision.placeholder_token_id",
    )
)
"""Facts that no operator depends on."""

_NOT_OPERATORS_ANYWHERE = (
    ".rope.parameters",  # numbers of the frequency rule, which is named
    ".rope.short_factors",
    ".rope.long_factors",
    ".indexer.rope.theta",  # an indexer turns by the table of its attention
    ".indexer.rope.scaling",
)


class Watch:
    """Hands out specs that remember what was read of them, by the path of the part ("mixer.gqa.rope")."""

    def __init__(self) -> None:
        self._read: dict[str, set[str]] = defaultdict(set)
        self._seen: dict[str, list[Any]] = defaultdict(list)

    def see(self, path: str, spec: Any) -> Any:
        """`spec`, watched: it has all its fields, properties and methods."""
        if not any(spec is seen for seen in self._seen[path]):
            self._seen[path].append(spec)
        return _Watched(self, path, spec)

    def note(self, path: str, name: str) -> None:
        self._read[path].add(name)

    def unread(self) -> Iterator[tuple[str, Any]]:
        """(path of the field, value) of whatever is set and was not asked for."""
        for path, specs in self._seen.items():
            for entry in fields(specs[0]):
                place = f"{path}.{entry.name}"
                if entry.name in self._read[path] or _is_no_operator(place):
                    continue
                values = [value for spec in specs if (value := getattr(spec, entry.name)) != _default(entry)]
                if values:
                    yield place, values[0]


class _Watched:
    """Stands for a spec. Its properties note what they read; its methods do not: cache sizes are nobody's operator."""

    __slots__ = ("_path", "_spec", "_watch")

    def __init__(self, watch: Watch, path: str, spec: Any) -> None:
        self._watch = watch
        self._path = path
        self._spec = spec

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(type(self._spec), name, None)
        if isinstance(attribute, property) and attribute.fget is not None:
            return attribute.fget(self)
        if isinstance(attribute, FunctionType):
            return MethodType(attribute, self._spec)
        self._watch.note(self._path, name)
        value = getattr(self._spec, name)
        return self._watch.see(f"{self._path}.{name}", value) if is_dataclass(value) else value


def _is_no_operator(place: str) -> bool:
    # What the packing is made of becomes needs matrix by matrix, and not field by field.
    inside = place.startswith("profile.quantization.")
    return inside or place in NOT_OPERATORS or place.endswith(_NOT_OPERATORS_ANYWHERE)


def _default(entry: Field[Any]) -> Any:
    if entry.default is not MISSING:
        return entry.default
    return entry.default_factory() if entry.default_factory is not MISSING else MISSING
