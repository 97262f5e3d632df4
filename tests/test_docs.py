"""The documentation does not drift: pages are listed, links lead somewhere, commands and statuses exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from day0.cli.main import COMMANDS
from day0.errors import ExitCode

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    unlisted = [page.name for page in PAGES[1:] if page.name != "index.md" and f"({page.name})" not in index]
    assert not unlisted


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert not [link for link in links if "://" not in link and not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_commands_exist(page: Path) -> None:
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^(?:\$ )?day0 ([a-z-]+)", "\n".join(blocks), re.MULTILINE)
    assert set(commands) <= set(COMMANDS)


def test_the_readme_lists_every_exit_status_and_command() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert {int(status) for status in re.findall(r"^\| (\d+) \|", readme, re.MULTILINE)} == {*map(int, ExitCode)}
    assert all(f"day0 {name} " in readme for name in COMMANDS)


def test_files_named_in_the_rooms_page_exist() -> None:
    rooms = (ROOT / "docs" / "rooms.md").read_text("utf-8")
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", rooms))
    assert len(named) > 8
    assert not [name for name in named if not (ROOT / "day0" / name).exists() and not (ROOT / name).exists()]


def test_the_example_of_a_family_is_the_family() -> None:
    """The page on adding an architecture shows the file that came of following it."""
    page = (ROOT / "docs" / "add-an-architecture.md").read_text("utf-8")
    shown = page.partition("```python\n")[2].partition("```")[0]
    source = (ROOT / "day0" / "profile" / "families" / "starcoder2.py").read_text("utf-8")
    assert shown == source[source.index("_LINE = ") :]
