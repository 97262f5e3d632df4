"""What configs of encoders have in common: sections, sizes, activations, rotary bases, placeholder tokens."""

from __future__ import annotations

from collections.abc import Mapping

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.inert_keys import INERT_KEYS
from day0.profile.tower_parts import TowerActivation

MAX_BLOCKS = 1024
"""An encoder of more blocks than this is a typing error, and its tensors would never be counted to the end."""

CHANNELS = 3
"""Red, green, blue."""

_ACTIVATIONS: Mapping[str, TowerActivation] = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
}
# Names of the section's class, and its dtype: everything is stored in the checkpoint's.
_NAMES_AND_DTYPES = ("model_type", "architectures", "dtype", "torch_dtype", "tie_word_embeddings")


def tower_section(top: ConfigReader, key: str = "vision_config") -> ConfigReader:
    """The section of an encoder that its architecture has whatever the config says.

    Without the section it has the sizes of the architecture's defaults, and every key of it counts as defaulted.
    """
    return optional_tower_section(top, key) or ConfigReader({}, top.file_name, parent=top, key=key)


def optional_tower_section(top: ConfigReader, key: str = "vision_config") -> ConfigReader | None:
    """The section of an encoder that is there only where the config has the section."""
    section = top.section(key)
    if section is not None:
        section.ignore(*INERT_KEYS, *_NAMES_AND_DTYPES)
    return section


def read_blocks(section: ConfigReader, key: str, default: int) -> int:
    return section.integer(key, default, maximum=MAX_BLOCKS)


def read_side(section: ConfigReader, key: str, default: int) -> int:
    """A length given once, or for both sides of a square."""
    if not isinstance(section.values.get(key), list):
        return section.integer(key, default)
    sides = section.integers(key)
    if not sides or min(sides) < 1 or len(set(sides)) > 1:
        raise InputError(f"must be one length or equal ones, got {list(sides)}", where=section.where(key))
    return sides[0]


def read_channels(section: ConfigReader, key: str = "num_channels") -> int:
    return section.integer(key, CHANNELS)


def read_tower_activation(section: ConfigReader, key: str, default: str) -> TowerActivation:
    return section.choice(key, _ACTIVATIONS, default)


def read_theta(section: ConfigReader, default: float = 1e4) -> float:
    """The base of the rotation; that it turns by row and column is the architecture's affair, not the config's."""
    rope = section.section("rope_parameters")
    if rope is None:
        return section.number("rope_theta", default)
    section.ignore("rope_theta")
    rope.ignore("rope_type", "type", "partial_rotary_factor")
    return rope.number("rope_theta", default)


def read_head_dim(section: ConfigReader, hidden: int, heads: int, *, key: str, multiple: int = 1) -> int:
    """The width of a head; `multiple` of 4 is what a rotation by row and column needs."""
    if hidden % heads or hidden // heads % multiple:
        wanted = "divide" if multiple == 1 else f"divide, into heads whose width is a multiple of {multiple},"
        raise InputError(f"{heads} heads must {wanted} {hidden} channels", where=section.where(key))
    return hidden // heads


def read_blocks_listed(section: ConfigReader, key: str, default: tuple[int, ...], blocks: int) -> tuple[int, ...]:
    """Numbers of blocks. Defaults beyond the last block count for nothing, what the config lists must be there."""
    listed = section.integers(key, default)
    inside = tuple(block for block in listed if 0 <= block < blocks)
    if len(inside) < len(listed) and section.has(key):
        raise InputError(f"{list(listed)} are not all below {blocks}, the number of blocks", where=section.where(key))
    return inside


def text_width(top: ConfigReader) -> int:
    """Channels of the text model that reads what a projector writes."""
    return (top.section("text_config") or top).integer("hidden_size")


def read_placeholders(top: ConfigReader, **keys: str) -> tuple[tuple[str, int], ...]:
    """Token ids that pieces of items replace, of those kinds of items that the config names one for."""
    found = ((kind, top.optional_integer(key, minimum=0)) for kind, key in keys.items())
    return tuple((kind, token) for kind, token in found if token is not None)
