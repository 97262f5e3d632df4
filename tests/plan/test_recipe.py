from __future__ import annotations

from pathlib import Path

import pytest

from day0.errors import InputError
from day0.plan import recipe
from day0.profile.profile import ArchitectureProfile

LAUNCH = """
launch:
  model: org/model
  model_types: [kimi_k3]
  vllm:
    image: some/image:tag
    arguments: [--tool-call-parser, some_parser]
    env: {SOME_SWITCH: 1}
    notes: [needs patience]
"""


@pytest.fixture
def recipe_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kimi.yaml"
    path.write_text(LAUNCH)
    monkeypatch.setattr(recipe, "list_data", lambda folder, suffix: [path])
    return path


def test_facts_belong_to_a_model_type_and_an_engine(recipe_file: Path, kimi_k3: ArchitectureProfile) -> None:
    facts = recipe.launch_facts(kimi_k3, "vllm")
    assert (facts.model, facts.image) == ("org/model", "some/image:tag")
    assert facts.arguments == ("--tool-call-parser", "some_parser")
    assert facts.env == {"SOME_SWITCH": "1"} and facts.notes == ("needs patience",)
    assert recipe.launch_facts(kimi_k3, "sglang").arguments == ()


def test_other_models_have_no_facts(recipe_file: Path, profiles: dict[str, ArchitectureProfile]) -> None:
    assert recipe.launch_facts(profiles["llama-3.1-8b"], "vllm") == recipe.LaunchFacts()


@pytest.mark.parametrize("key", ["modell: org/model", "trtllm: {}"])
def test_unknown_keys_are_refused(recipe_file: Path, kimi_k3: ArchitectureProfile, key: str) -> None:
    recipe_file.write_text(LAUNCH + f"  {key}\n")
    with pytest.raises(InputError, match=r"kimi\.yaml: launch"):
        recipe.launch_facts(kimi_k3, "vllm")


def test_the_packaged_recipes_can_be_read(profiles: dict[str, ArchitectureProfile]) -> None:
    for profile in profiles.values():
        for engine in ("day0", "vllm", "sglang"):
            recipe.launch_facts(profile, engine)
