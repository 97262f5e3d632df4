"""Crash reports: what they hold, and what they must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from day0.cli.crash import redact, write_crash_report


@pytest.mark.parametrize(
    ("arguments", "secret"),
    [
        (["serve", "m", "--api-key", "open-sesame"], "open-sesame"),
        (["serve", "m", "--api-key=open-sesame"], "open-sesame"),
        (["inspect", "m", "--token", "abc"], "abc"),
        (["inspect", "m", "--hf-token=abc"], "abc"),
        (["serve", "m", "--ssl-keyfile-password", "pw123"], "pw123"),
    ],
)
def test_values_of_secret_options_are_hidden_everywhere(arguments: list[str], secret: str) -> None:
    text = redact(f"command: {' '.join(arguments)}\nValueError: {secret} is wrong", arguments, {})
    assert secret not in text
    assert "[redacted] is wrong" in text


def test_secrets_of_the_environment_and_of_addresses_are_hidden() -> None:
    environment = {"HF_TOKEN": "0123456789abcdef", "HOME": "/u/someone", "KEY": "short"}
    text = redact(
        "0123456789abcdef hf_abcdefghijkl sk-abcdefghijkl https://user:word@host/x /u/someone short", [], environment
    )
    assert text == "[redacted] [redacted] [redacted] https://[redacted]@host/x /u/someone short"


def test_ordinary_options_stay() -> None:
    arguments = ["run-checklist", "m", "--max-new-tokens", "16", "--tokenizer", "/models/t"]
    assert redact(" ".join(arguments), arguments, {}) == " ".join(arguments)


def test_report_is_private_and_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    try:
        raise RuntimeError("lone surrogate \ud800")
    except RuntimeError as error:
        path = write_crash_report(error, ["inspect", "some/model"])
    assert path is not None
    assert Path(path).stat().st_mode & 0o077 == 0
    text = Path(path).read_text()
    assert "command: day0 inspect some/model" in text
    assert "RuntimeError: lone surrogate" in text and "Traceback" in text
    assert "torch " in text and "Python 3." in text


def test_report_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    assert write_crash_report(RuntimeError("x"), []) is None
