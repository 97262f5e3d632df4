"""Models of transformers' making, by name; each is made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from upstream_models import make_model

from day0.plan.settings import EngineSettings
from day0.profile.read import read_profile
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.load import load_engine
from day0.source.resolve import resolve


@dataclass(frozen=True)
class Made:
    """A saved model, and the object it was saved from."""

    folder: Path
    model: Any


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    models: dict[str, Made] = {}

    def make(model_type: str) -> Made:
        if model_type not in models:
            folder = tmp_path_factory.mktemp("upstream") / model_type
            models[model_type] = Made(folder, make_model(model_type, folder))
        return models[model_type]

    return make


def load(folder: Path, **settings: Any) -> Engine:
    """An engine on transformers in float32, in debug mode."""
    files = resolve(str(folder))
    chosen = {"device": "cpu", "dtype": "float32", "runtime": "upstream", "max_num_seqs": 4, "debug": True} | settings
    return load_engine(files, read_profile(files), EngineSettings(**chosen))


@pytest.fixture(scope="session")
def upstream() -> Callable[..., Engine]:
    return load


@pytest.fixture(scope="session")
def engines(made: Callable[[str], Made]) -> Callable[[str], Engine]:
    """One engine for each model, with steps of at most 7 tokens so that prompts come in portions."""
    kept: dict[str, Engine] = {}

    def get(model_type: str) -> Engine:
        if model_type not in kept:
            kept[model_type] = load(made(model_type).folder, max_num_batched_tokens=7)
        return kept[model_type]

    return get
