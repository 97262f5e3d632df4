"""`day0 trace --image`: what the tower computes is traced, and traces of other images are not compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file

from day0.cli.main import main


def picture(path: Path, seed: int) -> str:
    pixels = np.random.default_rng(seed).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return str(path)


def traced(model: Path, out: Path, ids: str, *images: str) -> int:
    shown = [word for image in images for word in ("--image", image)]
    return main(["trace", str(model), str(out), "--token-ids", ids, "--device", "cpu", *shown])


def test_images_stand_in_front_or_where_their_tokens_are(
    tiny_kimi_k3: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image, other = picture(tmp_path / "one.png", 1), picture(tmp_path / "two.png", 2)
    assert traced(tiny_kimi_k3, tmp_path / "front", "5,34,63", image) == 0
    tensors = load_file(tmp_path / "front.safetensors")
    ids = tensors["input_ids"].tolist()
    count = len(ids) - 3
    assert ids[count:] == [5, 34, 63] and len(set(ids[:count])) == 1
    assert len(tensors["vision.projected"]) == count == len(tensors["embed"]) - 3
    assert tensors["embed"][:count].equal(tensors["vision.projected"])
    expanded = ",".join(map(str, ids))
    assert traced(tiny_kimi_k3, tmp_path / "expanded", expanded, image) == 0
    assert main(["compare", str(tmp_path / "front"), str(tmp_path / "expanded")]) == 0
    assert traced(tiny_kimi_k3, tmp_path / "other", "5,34,63", other) == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "front"), str(tmp_path / "other")]) == 2
    assert "other images" in capsys.readouterr().err


def test_what_cannot_be_seen_is_refused(tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert traced(tiny_llama, tmp_path / "x", "5,6", picture(tmp_path / "one.png", 1)) == 2
    assert "takes no images" in capsys.readouterr().err
    assert traced(tiny_llama, tmp_path / "x", "5,6", str(tmp_path / "none.png")) == 2
    assert "none.png" in capsys.readouterr().err
