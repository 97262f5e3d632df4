from __future__ import annotations

import base64
import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from day0.errors import InputError
from day0.runtime.vision.images import ImageLimits, decode_data_url, load_images


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def picture(mode: str = "RGB", size: tuple[int, int] = (31, 17)) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize(("kind", "mode"), [("PNG", "RGBA"), ("PNG", "1"), ("PNG", "LA"), ("PNG", "P"), ("PNG", "L")])
def test_lossless_pictures_come_back(kind: str, mode: str) -> None:
    original = picture(mode)
    (loaded,) = load_images([encoded(original, kind)])
    assert loaded.mode == mode
    assert np.array_equal(np.asarray(loaded.convert("RGBA")), np.asarray(original.convert("RGBA")))


@pytest.mark.parametrize(
    ("kind", "mode"), [("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK"), ("WEBP", "RGB"), ("GIF", "P")]
)
def test_other_formats_are_decoded(kind: str, mode: str) -> None:
    (loaded,) = load_images([encoded(picture(mode), kind)])
    assert loaded.size == (31, 17)


def test_order_is_kept() -> None:
    files = [encoded(Image.new("RGB", (size, 3)), "PNG") for size in (5, 9, 2)]
    assert [image.width for image in load_images(files)] == [5, 9, 2]


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_animations_are_refused(kind: str) -> None:
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    moving = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    with pytest.raises(InputError, match="animated") as caught:
        load_images([encoded(frames[0], kind), moving])
    assert caught.value.where == "image 1"


def test_a_jpeg_with_a_second_view_is_one_picture() -> None:
    views = [picture(), picture()]
    (loaded,) = load_images([encoded(views[0], "MPO", save_all=True, append_images=views[1:])])
    assert loaded.size == (31, 17)


@pytest.mark.parametrize("data", [b"", b"\x89PNG", b"GIF89a", b"hello, this is text", b"%PDF-1.7", b"<svg/>"])
def test_what_is_no_image_is_refused(data: bytes) -> None:
    with pytest.raises(InputError, match=r"is empty|not a readable image|damaged"):
        load_images([data])


def test_formats_with_outside_decoders_are_refused() -> None:
    with pytest.raises(InputError, match="not a readable image"):
        load_images([encoded(picture(), "EPS")])
    with pytest.raises(InputError, match="not a readable image"):
        load_images([encoded(picture(), "TIFF")])


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_a_cut_file_is_refused(kind: str) -> None:
    data = encoded(picture(size=(200, 150)), kind)
    with pytest.raises(InputError):
        load_images([data[: len(data) // 2]])


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims a huge size."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@pytest.mark.parametrize("side", [8_001, 12_000, 100_000])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_bombs_are_refused_from_their_header(side: int) -> None:
    with pytest.raises(InputError, match="pixels"):
        load_images([bomb(side, side)])


def test_limits_on_pixels_bytes_and_count() -> None:
    data = encoded(picture(), "PNG")
    pixels = 31 * 17
    assert load_images([data], ImageLimits(max_images=1, max_bytes=len(data), max_pixels=pixels))
    with pytest.raises(InputError, match=f"31 x 17 = {pixels} pixels, at most {pixels - 1}"):
        load_images([data], ImageLimits(max_pixels=pixels - 1))
    with pytest.raises(InputError, match=f"has {len(data)} bytes, at most {len(data) - 1}"):
        load_images([data], ImageLimits(max_bytes=len(data) - 1))
    with pytest.raises(InputError, match="3 images, at most 2"):
        load_images([data] * 3, ImageLimits(max_images=2))


def test_sixteen_bit_images_are_refused_rather_than_clipped() -> None:
    deep = Image.fromarray(np.full((4, 4), 40_000, dtype=np.uint16))
    with pytest.raises(InputError, match="pixels of kind 'I;16'") as caught:
        load_images([encoded(deep, "PNG")])
    assert "8 bits" in caught.value.hint


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP"]), st.data())
def test_damaged_files_never_raise_anything_else(kind: str, data: st.DataObject) -> None:
    damaged = bytearray(encoded(picture(), kind))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        (loaded,) = load_images([bytes(damaged)], ImageLimits(max_pixels=1_000_000))
    except InputError as error:
        assert error.where == "image 0"
    else:
        assert loaded.width * loaded.height <= 1_000_000


def test_data_url() -> None:
    data = encoded(picture(), "PNG")
    payload = base64.b64encode(data).decode()
    assert decode_data_url(f"data:image/png;base64,{payload}") == data
    assert decode_data_url(f"DATA:image/JPEG;charset=x;base64,{payload}") == data


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://example.org/cat.png", "not fetched"),
        ("file:///etc/passwd", "not fetched"),
        ("cat.png", "not fetched"),
        ("data:image/png,abcd", "not in base64"),
        ("data:image/png;base64", "not in base64"),
        ("data:image/png;base64,ab%3D", "not valid base64"),
        ("data:image/png;base64,ab cd", "not valid base64"),
        ("data:image/png;base64,abc", "not valid base64"),
        ("data:image/png;base64,YW_j", "not valid base64"),
        ("data:image/png;base64,Ä===", "not valid base64"),
        ("data:image/svg+xml;base64,YWJj", r"'image/svg\+xml' is not taken"),
        ("data:;base64,YWJj", "'' is not taken"),
        ("data:text/html;base64,YWJj", "'text/html' is not taken"),
    ],
)
def test_bad_urls_are_refused(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        decode_data_url(url, where="messages[0].content[1]")
    assert caught.value.where == "messages[0].content[1]"


def test_long_urls_are_refused_before_they_are_decoded() -> None:
    limits = ImageLimits(max_bytes=300)
    exact = base64.b64encode(bytes(300)).decode()
    assert len(decode_data_url(f"data:image/png;base64,{exact}", limits)) == 300
    with pytest.raises(InputError, match="more than 300 bytes"):
        decode_data_url("data:image/png;base64," + "*" * 500, limits)
