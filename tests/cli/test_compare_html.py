"""`day0 compare --html`: one page that needs nothing else, says what was found, and escapes what others wrote."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from day0.cli.main import main
from day0.numerics.floor import assumed_floor
from day0.numerics.reading import Recording, plain_entries
from day0.numerics.walk import Sides, compare_recordings
from day0.report.compare_html import comparison_page

POINTS = ("mixer_in", "mixer_out", "ffn_in", "ffn_out", "output")


def traced(folder: Path, *, scaled: str = "") -> str:
    generator = torch.Generator().manual_seed(1)
    names = ["embed", *(f"layers.{layer}.{point}" for layer in range(2) for point in POINTS), "norm", "logits"]
    tensors = {name: torch.randn(6, 8, generator=generator) for name in names}
    if scaled:
        tensors[scaled] = tensors[scaled] * 1.5
    path = folder / f"{scaled or 'sound'}.safetensors"
    save_file(tensors | {"input_ids": torch.arange(6)}, path)
    return str(path)


class Tags(HTMLParser):
    """What a page holds and whether it asks for anything."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.asked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.asked += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "action")]


def test_the_page_names_the_deviation_and_asks_for_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    sides = [traced(tmp_path), traced(tmp_path, scaled="layers.1.ffn_out")]
    assert main(["compare", *sides, "--html", str(page)]) == 1
    text, tags = page.read_text("utf-8"), Tags()
    tags.feed(text)
    assert "layer 1, <code>ffn_out</code>" in text and "looks like: scale" in text
    assert not tags.asked and "script" not in tags.names and "@import" not in text
    nodes = load_file(sides[0])
    assert tags.names.count("title") == 1 + len(nodes) - 1  # the page's own, and a dot for each tensor but the ids


def test_what_others_wrote_is_escaped(tmp_path: Path) -> None:
    tensors = {"<script>x": torch.randn(3, 4)}
    one = Recording("<b>", plain_entries(tensors), tensors.__getitem__, (1, 2, 3))
    page = comparison_page(compare_recordings(Sides(one, replace(one), assumed_floor())), "<b>", "<i>")
    assert "<script>" not in page and "<b>" not in page and "<i>" not in page


def test_an_empty_comparison_has_a_page() -> None:
    nothing = Recording("a", (), {}.__getitem__, (1,))
    page = comparison_page(compare_recordings(Sides(nothing, nothing, assumed_floor())), "a", "b")
    assert "incomplete" in page
