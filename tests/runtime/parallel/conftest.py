"""One rank against several: the fixtures of this folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rank_models import Model, agrees, one_rank, settings

from day0.runtime.engine.lead import LeadingEngine, World

ModelMaker = Callable[[str], Model]
Check = Callable[..., LeadingEngine]


@pytest.fixture(scope="session")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> ModelMaker:
    """By a name of `rank_models.written`; each is made once."""
    made: dict[str, Model] = {}

    def make(name: str) -> Model:
        if name not in made:
            made[name] = one_rank(name, tmp_path_factory.mktemp("model"))
        return made[name]

    return make


@pytest.fixture
def check(model_of: ModelMaker) -> Check:
    """`(world, name, **layout)`: load a model over all ranks of a world, and hold it against one rank."""

    def run(world: World, name: str, **layout: int) -> LeadingEngine:
        model = model_of(name)
        engine = world.load(model.files, model.profile, settings(**layout))
        agrees(model, engine)
        engine.close()
        return engine

    return run
