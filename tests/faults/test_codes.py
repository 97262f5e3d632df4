"""Every code that a finding may have is explained in docs/inspect.md, and every code there exists."""

from __future__ import annotations

import re
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent.parent
MADE = re.compile(r'(?:Finding|_names_finding)\(\s*"([a-z0-9-]+)"')
ROOMS = ("profile", "source", "inventory")


def test_the_page_and_the_code_agree() -> None:
    sources = [path for room in ROOMS for path in (REPO / "day0" / room).rglob("*.py")]
    sources += sorted((REPO / "day0" / "report").glob("inspect*.py"))
    made = {code for path in sources for code in MADE.findall(path.read_text())}
    table = (REPO / "docs" / "inspect.md").read_text().partition("| code | severity |")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in table.splitlines()[2:] if row.startswith("|")]
    told = {code for row in rows for code in re.findall(r"`([a-z0-9-]+)`", row)}
    assert made - told == set()
    assert told - made == set()
