"""What every reader of a quantisation section is given, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from day0.errors import InputError
from day0.profile.packing_patterns import ModulePatterns, read_patterns
from day0.profile.quantization import PackingRule


class NotUnderstood(Exception):
    """The section describes a packing whose tensors are not known here; the message says what it is."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Rules in the order they are asked, and the dtype of the key/value cache where one is declared."""

    rules: tuple[PackingRule, ...]
    kv_cache: str | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A quantisation section and where it is. `block_scale` is how the family's own releases store the scales of FP8
    blocks ("leaf dtype"), `expert_dtype` what the model's config says of its experts."""

    values: Mapping[str, Any]
    where: str
    block_scale: str
    expert_dtype: str = ""

    def word(self, key: str, default: str = "") -> str:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(key, "a string", value)
        return value

    def integer(self, key: str, default: int) -> int:
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "an integer", value)
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        return default if value is None else bool(value)

    def patterns(self, *keys: str) -> ModulePatterns:
        """The modules listed under the first of `keys` that is there."""
        for key in keys:
            if self.values.get(key) is not None:
                return read_patterns(self.values[key], f"{self.where}.{key}")
        return ModulePatterns()

    def inner(self, key: str) -> Section | None:
        """The object under `key`, None where it is missing or null."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(key, "an object", value)
        return Section(value, f"{self.where}.{key}", self.block_scale, self.expert_dtype)

    def group_size(self, default: int = -1) -> int:
        """Values under one scale; 0 where all of a row share one, which configs write as -1."""
        size = self.integer("group_size", default)
        if size < -1 or size == 0:
            raise self.wrong("group_size", "positive, or -1 for whole rows", size)
        return max(size, 0)

    def wrong(self, key: str, wanted: str, value: object) -> InputError:
        return InputError(f"must be {wanted}, got {str(value)[:80]!r}", where=f"{self.where}.{key}")


def cache_dtype(scheme: object) -> str | None:
    """The word for a key/value cache's dtype, from an algorithm's name or a scheme of type and bits."""
    if not scheme:
        return None
    if isinstance(scheme, Mapping):
        kind = {"float": "fp", "int": "int"}.get(str(scheme.get("type")), "fp")
        bits = scheme.get("num_bits", 8)
        return "nvfp4" if (kind, bits) == ("fp", 4) else f"{kind}{bits}"
    return str(scheme).lower()
