"""A rank that dies is noticed by the others, by name, within ten seconds, and nobody outlives rank 0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from rank_models import written

LEADER = """
import sys
from day0.errors import Day0Error
from day0.plan.settings import EngineSettings
from day0.profile.read import read_profile
from day0.runtime.engine.lead import start_engine
from day0.source.resolve import resolve

files = resolve(sys.argv[1])
settings = EngineSettings(device="cpu", dtype="float32", max_model_len=64, kv_cache_bytes=1 << 20, tp=3)
try:
    engine = start_engine(files, read_profile(files), settings)
    print(*(engine.world.children.pid(rank) for rank in (1, 2)), flush=True)
    while True:
        engine.forward(list(range(60)))
except Day0Error as error:
    print(f"{error}; {error.hint}", file=sys.stderr)
    engine.close()
    sys.exit(int(error.exit_code))
"""
SECONDS = 10.0


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Rank 0 of three, which is in one collective after another."""
    folder = tmp_path / "model"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", LEADER, str(written("tp3", folder))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    yield process
    process.kill()
    process.communicate()


def pids(leader: subprocess.Popen[str]) -> list[int]:
    assert leader.stdout is not None
    return [int(word) for word in leader.stdout.readline().split()]


def gone(pid: int, seconds: float = SECONDS) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_a_killed_rank_ends_all_with_its_name(leader: subprocess.Popen[str]) -> None:
    one, two = pids(leader)
    killed = time.monotonic()
    os.kill(two, signal.SIGKILL)
    _, said = leader.communicate(timeout=60)
    assert time.monotonic() - killed < SECONDS
    assert leader.returncode == 3
    assert "rank 2 of 3 was killed by SIGKILL" in said
    assert "rank-2.log" in said
    assert gone(one, 1.0)


@pytest.mark.slow
def test_a_frozen_rank_is_noticed_too(leader: subprocess.Popen[str]) -> None:
    """It neither dies nor answers: its silence tells, and rank 0 is woken out of a collective that does not end."""
    _, two = pids(leader)
    frozen = time.monotonic()
    os.kill(two, signal.SIGSTOP)
    try:
        _, said = leader.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):  # rank 0 has ended it
            os.kill(two, signal.SIGKILL)
    assert time.monotonic() - frozen < SECONDS + 2.0
    assert leader.returncode == 3
    assert "rank 2 of 3 has said nothing for 6 s" in said


def test_nobody_outlives_rank_0(leader: subprocess.Popen[str]) -> None:
    children = pids(leader)
    leader.kill()
    leader.communicate()
    assert all(gone(pid) for pid in children)


@pytest.mark.slow
def test_after_the_whole_machine_stood_still_nobody_is_taken_for_dead(leader: subprocess.Popen[str]) -> None:
    everybody = [leader.pid, *pids(leader)]
    time.sleep(3.0)  # each has heard of each
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(9.0)
    for pid in everybody:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.5)
    time.sleep(2.0)
    assert leader.poll() is None and not any(gone(pid, 0.1) for pid in everybody)
