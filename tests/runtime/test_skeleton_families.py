"""A tiny checkpoint of every native family: made from a config alone, explained by its config, run by our blocks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from day0.errors import CannotSay
from day0.profile.families.table import FAMILIES
from day0.profile.read import read_profile
from day0.profile.shrink import layer_kinds
from day0.profile.tensors import compare_tensors
from day0.runtime.engine.engine import EngineSettings
from day0.runtime.engine.load import load_engine
from day0.runtime.skeleton import write_tiny
from day0.source.resolve import recipe_names, resolve

SHARED = Path(__file__).resolve().parents[3] / "shared" / "model_configs"
SHARED_CONFIGS = sorted(SHARED.glob("*/config.json")) if SHARED.is_dir() else []
IDS = [(53 * place + 5) % 256 for place in range(40)]

MORE: Mapping[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6, "n_routed_experts": 64, "moe_intermediate_size": 1408},
    "dots1": {"n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 2},
    "glm4v_moe": {"text_config.head_dim": 128},
    "gemma3": {"mm_tokens_per_image": 4, "vision_config.image_size": 56},
}
"""What a class's defaults lack, or have wrong, for a model of the family."""
INCONSISTENT = ("zai-org--GLM-4.5V",)
"""Class defaults that transformers does not run either: 32 channel pairs are shared out where heads rotate 11."""

RECIPES = tuple(recipe_names())
DEFAULTS = tuple(
    (family.name, model_type)
    for family in FAMILIES.values()
    for model_type in family.model_types[:1]
    if family.native and model_type in transformers.CONFIG_MAPPING
)


def check(source: str, folder: Path) -> None:
    """The checkpoint made of `source` is what its config says, has all kinds of layers, and runs."""
    full = read_profile(resolve(source))
    write_tiny(resolve(source), folder)
    files = resolve(str(folder))
    profile = read_profile(files)
    comparison = compare_tensors(profile, files)
    assert comparison.sound
    findings = (*comparison.findings, *profile.findings, *files.findings)
    assert [finding for finding in findings if finding.severity == "error"] == []
    assert set(profile.unused_config_keys) <= set(full.unused_config_keys)
    assert set(layer_kinds(profile)) >= set(layer_kinds(full))
    assert files.weight_bytes is not None and files.weight_bytes < 32 << 20

    settings = EngineSettings(device="cpu", dtype="float32", max_num_seqs=2, runtime="native")
    engine = load_engine(files, profile, settings)
    whole = engine.forward(IDS)
    assert torch.isfinite(whole).all()
    assert float(whole.std()) > 0.01, "logits tell tokens apart"
    assert_same(engine.forward(IDS, chunk=7), whole)
    longer = engine.forward([*IDS, int(whole[-1].argmax())])
    assert_same(longer[: len(IDS)], whole)
    assert torch.isfinite(longer[-1]).all()


def assert_same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """To rounding, as it adds up over some layers. A wrong expert, mask or position moves far more."""
    errors = (found - wanted).abs().amax(1) / wanted.abs().max()
    assert float(errors.max()) < 1e-4


def defaults(model_type: str, architectures: tuple[str, ...], name: str) -> dict[str, Any]:
    config: dict[str, Any] = transformers.CONFIG_MAPPING[model_type]().to_dict()
    for path, value in MORE.get(name, {}).items():
        *sections, key = path.split(".")
        section = config
        for word in sections:
            section = section[word]
        section[key] = value
    return {**config, "architectures": list(architectures[:1])}


@pytest.mark.parametrize(("name", "model_type"), DEFAULTS)
def test_a_family_by_its_classes_defaults(name: str, model_type: str, tmp_path: Path) -> None:
    config = defaults(model_type, FAMILIES[name].architectures, name)
    (tmp_path / "config.json").write_text(json.dumps(config, default=str))
    check(str(tmp_path / "config.json"), tmp_path / "model")


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe(recipe: str, tmp_path: Path) -> None:
    check(f"recipe:{recipe}", tmp_path / "model")


@pytest.mark.slow
@pytest.mark.parametrize("config", SHARED_CONFIGS, ids=lambda path: path.parent.name)
def test_a_published_config(config: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if config.parent.name in INCONSISTENT:
        request.applymarker(pytest.mark.xfail(strict=True, raises=CannotSay, reason="sections for wider heads"))
    if not read_profile(resolve(str(config))).native:
        pytest.skip("runs through transformers, if at all")
    check(str(config), tmp_path / "model")
