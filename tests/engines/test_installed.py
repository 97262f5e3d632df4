"""Command lines given to engines' own parsers: the one that is installed here, and stand-ins that misbehave."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from day0.engines import installed
from day0.engines.flag_table import flag_table
from day0.engines.installed import EngineParser, installed_version, parser_verdict

SERVE = ("transformers", "serve", "org/model")


@pytest.mark.parametrize(
    ("words", "verdict", "said"),
    [
        (("--port", "8000", "--continuous-batching", "--cb-max-batch-tokens", "512"), True, ""),
        (("--ports", "8000"), False, "--ports"),
    ],
)
def test_the_engine_installed_here_is_asked(words: tuple[str, ...], verdict: bool, said: str) -> None:
    assert installed_version("transformers") is not None
    taken, reason = parser_verdict("transformers", [SERVE, (*SERVE, *words)])
    assert taken is verdict and said in reason


def test_the_recorded_flags_of_transformers_are_those_of_its_parser() -> None:
    pytest.importorskip("transformers.cli.transformers")
    if installed_version("transformers") not in flag_table("transformers").versions:
        pytest.skip("another version than the recorded ones")
    from transformers.cli.transformers import app

    options = {name for parameter in app.commands["serve"].params for name in parameter.opts if name.startswith("--")}
    assert options == set(flag_table("transformers").flags)


def test_an_engine_that_is_not_there_has_no_version() -> None:
    assert installed_version("day0") is None
    assert installed_version("vllm", "/bin/true") is None


@pytest.mark.parametrize(
    ("program", "verdict", "said"),
    [
        ("import nothing_of_this_name", None, "No module named 'nothing_of_this_name'"),
        ("sys.exit(7)", None, "status 7"),
        ("import os; os.close(1)", None, ""),
        ("print('error: no such flag', file=sys.stderr); sys.exit(2)", False, "no such flag"),
        ("sys.exit(2)", None, "status 2"),
        ("assert lines == [['serve', '--flag', 'a b', '$HOME']]", True, ""),
    ],
)
def test_a_parser_that_breaks_has_said_nothing(
    program: str, verdict: bool | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "PARSERS", {"engine": EngineParser(("engine",), program)})
    taken, reason = parser_verdict("engine", [("serve", "--flag", "a b", "$HOME")])
    assert taken is verdict and said in reason


def test_a_parser_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sleeps = EngineParser(("engine",), "import time; time.sleep(60)")
    monkeypatch.setattr(installed, "PARSERS", {"engine": sleeps})
    monkeypatch.setattr(installed, "PARSE_SECONDS", 0.5)
    assert parser_verdict("engine", [("serve",)], sys.executable) == (None, "its parser was not ready within 0.5 s")
