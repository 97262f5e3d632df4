"""A day0 server of the tiny llama, and a local hub, for commands that talk to one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hub_server import fake_hub

__all__ = ["fake_hub", "served"]


@pytest.fixture(scope="session")
def served(tiny_llama: Path) -> Iterator[str]:
    """The URL of `day0 serve` in a process of its own."""
    command = [sys.executable, "-m", "day0.cli.main", "serve", str(tiny_llama), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert process.stderr is not None
    url = None
    for line in process.stderr:
        words = [word for word in line.split() if word.startswith("http://")]
        url = words[0].rstrip("/.,") if words else url
        if url and "ready" in line.lower():
            break
    assert url, "the server said no address"
    yield url
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=30)
