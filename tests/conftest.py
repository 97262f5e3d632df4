"""Model folders and paths that tests of several rooms share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, so that a change is judged by what it changed. `DAY0_EXPLORE=1 make test` draws new
# ones: for whoever goes looking.
settings.register_profile("day0", derandomize=not os.environ.get("DAY0_EXPLORE"), deadline=None, database=None)
settings.load_profile("day0")

# One thread per process: the suite runs in parallel, and sums then come out the same everywhere.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402  reads the number of threads when it is imported

# Triton's kernels are interpreted where there is no accelerator. It is asked for here, before any test imports them:
# triton looks once, when a kernel is defined.
if not torch.accelerator.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

REPO = Path(__file__).resolve().parent.parent


def shared_folder() -> Path | None:
    """The folder of corpora that lies beside a developer's checkout, None where there is none."""
    folder = Path(os.environ.get("DAY0_SHARED", REPO.parent / "shared"))
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def shared() -> Path:
    folder = shared_folder()
    if folder is None:
        pytest.skip("no shared corpora beside this checkout")
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`tiny(recipe)`: a small random checkpoint of a packaged recipe, made once per test process."""
    from day0.runtime.skeleton import write_tiny
    from day0.source.resolve import resolve

    made: dict[str, Path] = {}

    def make(recipe: str) -> Path:
        if recipe not in made:
            made[recipe] = tmp_path_factory.mktemp("tiny") / recipe
            write_tiny(resolve(f"recipe:{recipe}"), made[recipe])
        return made[recipe]

    return make


@pytest.fixture(scope="session")
def tiny_llama(tiny: Callable[[str], Path]) -> Path:
    return tiny("llama-3.1-8b")


@pytest.fixture(scope="session")
def tiny_qwen3(tiny: Callable[[str], Path]) -> Path:
    return tiny("qwen3-0.6b")


@pytest.fixture(scope="session")
def tiny_mixtral(tiny: Callable[[str], Path]) -> Path:
    return tiny("mixtral-8x7b")


@pytest.fixture(scope="session")
def tiny_qwen3_moe(tiny: Callable[[str], Path]) -> Path:
    return tiny("qwen3-30b-a3b")


@pytest.fixture(scope="session")
def tiny_kimi_k3(tiny: Callable[[str], Path]) -> Path:
    return tiny("kimi-k3")
