"""YAML with the scalars of version 1.2, and the data files that come with day0."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from day0.errors import EnvironmentFault, InputError
from day0.source.data_files import data_path, dump_yaml, list_data, load_yaml


def load(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "file.yaml"
    path.write_text(text, encoding="utf-8")
    return load_yaml(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1.0e+6", 1e6),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2026-09-01", "2026-09-01"),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
        ("True", True),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ("1_000", "1_000"),
        ("h200:8x2", "h200:8x2"),
    ],
)
def test_scalars_follow_version_1_2(tmp_path: Path, text: str, value: object) -> None:
    loaded = load(tmp_path, f"key: {text}\n")["key"]
    assert loaded == value
    assert type(loaded) is type(value)


def test_merge_keys_work_and_do_not_count_as_repeated(tmp_path: Path) -> None:
    text = "base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\n"
    assert load(tmp_path, text)["more"] == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", ":3:1", "'a' is given twice, first on line 1"),
        ("x:\n  - {b: 1, b: 2}\n", ":2:12", "'b' is given twice, first on line 2"),
        ("a: [1\n", ":2:1", "not valid YAML"),
        ("a: !!python/object/apply:os.getcwd []\n", ":1:4", "could not determine a constructor"),
        ("a: !!int x\n", "", "not valid YAML"),
        ("? [1]\n: 2\n", ":1:3", "unhashable"),
        ("a: 1\n---\nb: 2\n", ":2:1", "another document"),
        ("a: \x00", "", "not valid YAML"),
        ("[" * 20_000, "", "YAML"),
    ],
)
def test_broken_text_names_file_and_place(tmp_path: Path, text: str, place: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    assert caught.value.where.startswith(f"{tmp_path / 'file.yaml'}{place}")
    assert words in caught.value.message


AMBIGUOUS = [
    "1e-5",
    "0o17",
    "0x1f",
    "010",
    "1_000",
    "12:30",
    "2026-09-01",
    ".inf",
    "no",
    "on",
    "~",
    "null",
    "True",
    "=",
]
AWKWARD = ["", "a\nb\n", "a\r\nb", " x ", "a: b", "# x", "- a", "x\n\n\n", "\x85", "\u2028", "\ufeff", "é ✓"]


@pytest.mark.parametrize("text", [*AMBIGUOUS, *AWKWARD])
def test_dumped_text_comes_back_as_text(tmp_path: Path, text: str) -> None:
    document = {"key": text, "list": [text, 1, 1e-5, True, None]}
    assert load(tmp_path, dump_yaml(document)) == document


@given(st.recursive(st.text() | st.integers() | st.floats(allow_nan=False) | st.none() | st.booleans(), st.lists))
def test_dumped_documents_come_back(document: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert load(Path(folder), dump_yaml(document)) == document


def test_unreadable_files_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_yaml(tmp_path / "absent.yaml")
    with pytest.raises(InputError, match="Is a directory"):
        load_yaml(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    with pytest.raises(InputError, match="not UTF-8"):
        load_yaml(tmp_path / "latin.yaml")


def test_packaged_data_is_found_in_the_checkout() -> None:
    assert data_path("recipes", "models").is_dir()
    names = [path.name for path in list_data("recipes/models", ".yaml")]
    assert "kimi-k3.yaml" in names
    assert names == sorted(names)


def test_missing_packaged_data_is_an_environment_fault() -> None:
    with pytest.raises(EnvironmentFault, match="should have come with day0"):
        data_path("recipes", "absent.yaml")


@pytest.mark.slow
def test_packaged_data_is_found_in_a_wheel(tmp_path: Path) -> None:
    """Built, unpacked and imported away from the checkout, the package finds its own data."""
    root = Path(__file__).resolve().parents[2]
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", str(tmp_path / "dist"), str(root)]
    subprocess.run(build, check=True)
    (wheel,) = (tmp_path / "dist").glob("day0-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        "import day0\nfrom day0.source.data_files import data_path, list_data\n"
        "print(day0.__file__, data_path('operator_whitelist.yaml'), len(list_data('recipes/models', '.yaml')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "site", capture_output=True, text=True, check=True
    )
    package, whitelist, recipes = done.stdout.split()
    assert package.startswith(str(tmp_path))
    assert whitelist == str(tmp_path / "site" / "day0" / "data" / "operator_whitelist.yaml")
    assert int(recipes) >= 1
