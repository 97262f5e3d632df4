"""Images from strangers: bytes and data URLs are decoded within limits, or refused with a reason."""

from __future__ import annotations

import base64
import binascii
import io
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, UnidentifiedImageError

from day0.errors import InputError

# Only still raster formats with a decoder in Pillow itself: some of its others start external programs.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
MEDIA_TYPES = ("image/png", "image/jpeg", "image/jpg", "image/webp", "image/gif")
# 16-bit and float images are left out: Pillow would clip their values instead of scaling them.
MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK")
# What Pillow's decoders raise on damaged files.
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, struct.error, zlib.error)


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What one request may send. Pixels are counted from the header, before anything is decoded."""

    max_images: int = 64
    max_bytes: int = 20 * 1024 * 1024
    max_pixels: int = 64_000_000


def load_images(files: Sequence[bytes], limits: ImageLimits | None = None) -> list[Image.Image]:
    """Decode every file; InputError names the first one that cannot be used ("image 0" is the first)."""
    limits = limits or ImageLimits()
    if len(files) > limits.max_images:
        raise InputError(f"{len(files)} images, at most {limits.max_images} are taken", where="images")
    return [decode_image(data, limits, where=f"image {index}") for index, data in enumerate(files)]


def decode_image(data: bytes, limits: ImageLimits, *, where: str) -> Image.Image:
    """One fully decoded still image."""
    if not data:
        raise InputError("is empty", where=where)
    if len(data) > limits.max_bytes:
        raise InputError(f"has {len(data)} bytes, at most {limits.max_bytes} are taken", where=where)
    image = _open(data, where)
    pixels = image.width * image.height
    if pixels > limits.max_pixels:
        size = f"{image.width} x {image.height}"
        raise InputError(f"is {size} = {pixels} pixels, at most {limits.max_pixels} are taken", where=where)
    try:
        # Cameras append a preview or a second view to a JPEG ("MPO"): that is still one picture.
        animated = image.format != "MPO" and getattr(image, "is_animated", False)
        if not animated:
            image.load()
    except _DAMAGE as error:
        raise InputError(f"the file is damaged or cut off ({error})", where=where) from error
    if animated:
        raise InputError("is animated", where=where, hint="send one frame of it")
    if image.mode not in MODES:
        raise InputError(
            f"pixels of kind {image.mode!r} are not taken", where=where, hint="save it with 8 bits per channel"
        )
    return image


def _open(data: bytes, where: str) -> Image.Image:
    """Read the header only."""
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"has too many pixels ({error})", where=where) from error
    except UnidentifiedImageError as error:
        raise InputError("is not a readable image", where=where, hint=f"known formats: {', '.join(FORMATS)}") from error
    except _DAMAGE as error:
        raise InputError(f"the file is damaged ({error})", where=where) from error


def decode_data_url(url: str, limits: ImageLimits | None = None, *, where: str = "image_url") -> bytes:
    """The bytes of `data:image/...;base64,...`. Nothing is fetched: other URLs are refused."""
    limits = limits or ImageLimits()
    scheme, separator, rest = url.partition(":")
    if not separator or scheme.lower() != "data":
        raise InputError(
            "only data: URLs are taken, images are not fetched", where=where, hint="send data:image/png;base64,..."
        )
    header, comma, payload = rest.partition(",")
    media_type, *parameters = header.split(";")
    if not comma or parameters[-1:] != ["base64"]:
        raise InputError("the data: URL is not in base64", where=where, hint="send data:image/png;base64,...")
    if media_type.lower() not in MEDIA_TYPES:
        raise InputError(
            f"media type {media_type[:80]!r} is not taken", where=where, hint=f"known: {', '.join(MEDIA_TYPES)}"
        )
    # Four characters hold three bytes; checked first so that nothing large is decoded in vain.
    if len(payload) > 4 * (limits.max_bytes // 3 + 1):
        raise InputError(f"holds more than {limits.max_bytes} bytes", where=where)
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"is not valid base64 ({error})", where=where) from error
