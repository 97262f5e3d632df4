"""The page in a real browser without a window: it shows its verdict by day and by night, narrow and on paper."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from day0.checklist.checklist import ChecklistResult
from day0.report.checklist_html import html_document

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: nobody has seen the page")

RED, LIGHT, DARK = (0xB3, 0x26, 0x1E), (0xFF, 0xFF, 0xFF), (0x14, 0x18, 0x1D)
CURVE = {"seconds": [0.0, 5.0, 12.3], "bytes": [2**28, 2**29, 2**29]}


@pytest.fixture
def page(result: ChecklistResult, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    inputs = {
        f"model-{part:05d}-of-00002.safetensors": {"sha256": "ab" * 32, "bytes": 9, "hashed": 9} for part in (1, 2)
    }
    path.write_text(html_document(replace(result, memory=CURVE, inputs=inputs, command=("day0", "run-checklist"))))
    return path


def browse(page: Path, *options: str) -> str:
    """Open the page with no network to be had; what the browser logged."""
    assert BROWSER is not None
    profile = f"--user-data-dir={page.parent / 'profile'}"
    always = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr")
    command = [BROWSER, *always, "--proxy-server=127.0.0.1:9", profile, *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout + done.stderr


def shot(page: Path, width: int, height: int, *options: str) -> tuple[np.ndarray, str]:
    """Pixels [height, width, 3] and the log."""
    picture = page.with_suffix(".png")
    log = browse(page, f"--window-size={width},{height}", f"--screenshot={picture}", *options)
    return np.asarray(Image.open(picture).convert("RGB")), log


def share_of(pixels: np.ndarray, colour: tuple[int, int, int]) -> float:
    return float((pixels == np.array(colour, dtype=np.uint8)).all(axis=-1).mean())


def test_by_day(page: Path) -> None:
    pixels, log = shot(page, 1000, 1400)
    assert share_of(pixels[:80, :120], RED) > 0.02, "the bar of the verdict is not there, or not red"
    assert share_of(pixels, LIGHT) > 0.5
    assert "Refused to" not in log and "violates" not in log, log
    coloured = (pixels.max(axis=-1).astype(int) - pixels.min(axis=-1)) > 60
    assert coloured[400:].mean() > 0.003, "no curve was drawn below the head of the page"


def test_by_night_and_narrow(page: Path) -> None:
    pixels, _ = shot(page, 500, 1400, "--force-dark-mode", "--blink-settings=preferredColorScheme=0")
    assert share_of(pixels, DARK) > 0.5
    assert share_of(pixels, LIGHT) < 0.01
    assert share_of(pixels[:300, -6:], DARK) == 1.0, "something of the head runs over the right edge"


def test_the_browser_reads_what_was_written_and_prints_it(page: Path, result: ChecklistResult) -> None:
    dom = browse(page, "--dump-dom")
    for check in result.checks():
        assert f'id="{check.id}"' in dom
    assert dom.count("<svg") == html_document(replace(result, memory=CURVE)).count("<svg")
    assert not re.search(r"<script(?![^<]*&lt;)", dom)
    paper = page.with_suffix(".pdf")
    browse(page, f"--print-to-pdf={paper}")
    assert paper.read_bytes().count(b"/Type /Page\n") + paper.read_bytes().count(b"/Type /Page ") >= 2
