from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from day0.engines.flag_table import flag_table
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
    facts = recipe.launch_facts(kimi_k3, "vllm", "kimi")
    assert (facts.model, facts.image) == ("org/model", "some/image:tag")
    assert facts.arguments == ("--tool-call-parser", "some_parser")
    assert facts.env == {"SOME_SWITCH": "1"} and facts.notes == ("needs patience",)
    assert recipe.launch_facts(kimi_k3, "sglang").arguments == ()


def test_the_model_is_that_of_the_recipe_and_not_of_its_family(recipe_file: Path, kimi_k3: ArchitectureProfile) -> None:
    assert recipe.launch_facts(kimi_k3, "vllm").model is None
    assert recipe.launch_facts(kimi_k3, "vllm", "another").model is None


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


LAUNCHED = ("kimi_k3", "kimi_k2", "deepseek_v32", "deepseek_v4", "glm_moe_dsa", "qwen3_moe", "qwen3_5_moe", "gpt_oss")


@pytest.mark.parametrize("model_type", [*LAUNCHED, "minimax_m2", "minimax_m3"])
def test_common_models_have_parsers_whose_flags_exist(kimi_k3: ArchitectureProfile, model_type: str) -> None:
    profile = replace(kimi_k3, model_type=model_type)
    for engine in ("vllm", "sglang"):
        facts = recipe.launch_facts(profile, engine)
        assert "--tool-call-parser" in facts.arguments
        assert not flag_table(engine).complaints(facts.arguments, None)
