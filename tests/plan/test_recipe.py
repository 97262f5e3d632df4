from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from day0.engines.flag_table import flag_table
from day0.errors import InputError
from day0.plan import recipe
from day0.plan.cluster import parse_cluster
from day0.profile.profile import ArchitectureProfile
from day0.source.data_files import list_data, load_yaml

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


RELEASES = (
    "",
    "org/K2-Instruct",
    "org/Kimi-K2-Thinking",
    "org/DeepSeek-R1",
    "org/DeepSeek-V3.1",
    "org/GLM-4.7-FP8",
    "org/Qwen3-Coder-480B",
    "org/Qwen3-235B-Instruct-2507",
    "org/Qwen3-Next-80B-Thinking",
    "org/Qwen3.6-35B",
)
MACHINES = ("h200:8", "b300:8", "mi355x:8", "gaudi3:8")


@pytest.mark.parametrize("model_type", [*LAUNCHED, "deepseek_v3", "glm4_moe", "minimax_m2", "minimax_m3", "qwen3_next"])
def test_common_models_have_parsers_whose_flags_and_words_exist(kimi_k3: ArchitectureProfile, model_type: str) -> None:
    profile = replace(kimi_k3, model_type=model_type)
    for engine in ("vllm", "sglang"):
        for name, machine in product(RELEASES, MACHINES):
            facts = recipe.launch_facts(profile, engine, name=name, gpu=parse_cluster(machine).gpu)
            assert facts.arguments.count("--tool-call-parser") == 1
            assert not flag_table(engine).complaints(facts.arguments, None), (name, machine)


def test_every_packaged_fact_says_where_it_is_from() -> None:
    for path in list_data("recipes/launch", ".yaml"):
        section = load_yaml(path)["launch"]
        engines = {engine for engine in recipe.ENGINES if engine in section}
        assert engines == set(section["sources"]), path.name
        assert all(re.search(r"\d+\.\d+\.\d+ \(20\d\d-\d\d\)", text) for text in section["sources"].values())


@pytest.mark.parametrize(
    ("model_type", "name", "words"),
    [
        ("deepseek_v3", "deepseek-ai/DeepSeek-R1-0528", ("deepseek_v3", "deepseek_r1")),
        ("deepseek_v3", "/data/deepseek-v3.1/", ("deepseek_v31", "deepseek_v3")),
        ("deepseek_v3", "deepseek-ai/DeepSeek-V3-0324", ("deepseek_v3", None)),
        ("kimi_k2", "moonshotai/Kimi-K2-Thinking", ("kimi_k2", "kimi_k2")),
        ("kimi_k2", "moonshotai/Kimi-K2-Instruct-0905", ("kimi_k2", None)),
        ("qwen3_moe", "Qwen/Qwen3-Coder-480B-A35B-Instruct", ("qwen3_coder", None)),
    ],
)
def test_the_release_decides_the_parsers(
    kimi_k3: ArchitectureProfile, model_type: str, name: str, words: tuple[str, str | None]
) -> None:
    arguments = recipe.launch_facts(replace(kimi_k3, model_type=model_type), "vllm", name=name).arguments
    assert arguments[arguments.index("--tool-call-parser") + 1] == words[0]
    found = arguments[arguments.index("--reasoning-parser") + 1] if "--reasoning-parser" in arguments else None
    assert found == words[1]


def test_the_machine_adds_to_what_holds_everywhere(kimi_k3: ArchitectureProfile) -> None:
    plain = recipe.launch_facts(kimi_k3, "vllm")
    hopper = recipe.launch_facts(kimi_k3, "vllm", gpu=parse_cluster("h200:8").gpu)
    assert hopper.arguments == (*plain.arguments, "--moe-backend", "marlin") and hopper.env == plain.env
    amd = recipe.launch_facts(kimi_k3, "vllm", gpu=parse_cluster("mi355x:8").gpu)
    assert amd.env["VLLM_ROCM_USE_AITER"] == "1" and amd.env.items() >= plain.env.items()
    assert plain.since == "0.27.0"


@pytest.mark.parametrize("part", ["machines: {hopper: {flags: [x]}}", "releases: {'*': {argument: x}}"])
def test_unknown_keys_of_a_part_are_refused(recipe_file: Path, kimi_k3: ArchitectureProfile, part: str) -> None:
    recipe_file.write_text(LAUNCH + f"    {part}\n")
    with pytest.raises(InputError, match=r"kimi\.yaml: launch\.vllm\.(machines\.hopper|releases\.\*)"):
        recipe.launch_facts(kimi_k3, "vllm", gpu=parse_cluster("h200:8").gpu)
