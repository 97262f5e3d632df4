"""Grouped-query lines against numbers computed elsewhere; skipped where they do not lie beside the checkout."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from day0.inventory.needs import inventory_findings, operators_needed
from day0.profile.cache_sizes import cache_sizes
from day0.profile.parameters import count_parameters
from day0.profile.profile import ArchitectureProfile, GroupedQueryAttention, LayerSpec
from day0.profile.read import read_profile
from day0.source.resolve import resolve

FAMILIES = {
    "dots1",
    "ernie4_5_moe",
    "exaone4_5",
    "flint",
    "gemma4",
    "glm4v_moe",
    "gpt_oss",
    "granitemoe",
    "hunyuan_v1_moe",
    "iquestcoder",
    "kolibri1",
    "laguna",
    "llama4",
    "mimo",
    "mimo_v2_flash",
    "minimax_m2",
    "ministral3",
    "mistral",
    "mllama",
    "muse_glimmer",
    "muse_spark",
    "olmo3",
    "phimoe",
    "qwen2",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
    "smollm3",
}

OTHER_GROUPS = {
    "kolibri1": {"attention", "norm"},  # norms that are named after attention, counted with it there
    "muse_spark": {"dense_mlp", "latent_moe_proj"},  # the way to the experts' latent space, counted as an MLP there
    "gemma4": {"other"},  # learnt scales of layers: stored, but no parameters there
}
"""Groups that are drawn otherwise, and why."""

PARTS_OF_OTHERS = ("profile.vision", "profile.quantization")
"""Facts with tests of their own."""

WINDOWS = {
    "mimo_v2_flash": 128,  # one more there, since the query's own token was added
    "phimoe": 2047,  # none there; upstream masks by the config's window all the same
}
"""Windows that are counted otherwise."""


@pytest.fixture(scope="module")
def models(shared: Path) -> list[tuple[str, ArchitectureProfile, dict[str, Any]]]:
    """Name, profile and truth of every config of these families."""
    found = []
    for folder in sorted((shared / "model_configs").iterdir()):
        if not (folder / "truth.json").is_file():
            continue
        config = json.loads((folder / "config.json").read_text())
        if config.get("model_type") in FAMILIES:
            truth = json.loads((folder / "truth.json").read_text())
            found.append((folder.name, read_profile(resolve(str(folder))), truth))
    assert len(found) >= 20
    return found


def stored_biases(truth: dict[str, Any]) -> int:
    """Choice biases that are buffers there: stored like parameters, and counted here."""
    buffers = truth.get("persistent_buffers", {})
    return sum(b["count"] * b["shape"][0] for name, b in buffers.items() if name.endswith("e_score_correction_bias"))


def test_parameters(models: list[tuple[str, ArchitectureProfile, dict[str, Any]]]) -> None:
    wrong: dict[str, Any] = {}
    for name, profile, truth in models:
        counts = count_parameters(profile)
        text = counts.total - counts.groups["vision"] - counts.groups["audio"] - stored_biases(truth)
        wanted = truth.get("total_params_text_only") or truth["total_params"]
        if abs(text - wanted) > 100:  # learnt scales of layers
            wrong[name] = (text, wanted)
        elsewhere = {"vision", "audio", "mtp"} | OTHER_GROUPS.get(profile.model_type, set())
        for group, count in counts.groups.items():
            if group not in elsewhere:
                expected = truth["params_by_group"].get(group, 0) + (stored_biases(truth) if group == "router" else 0)
                if count != expected:
                    wrong[f"{name} {group}"] = (count, expected)
        for mine, theirs in (
            (counts.active, truth["active_params_per_token"]),
            (counts.active_without_input_embedding, truth["active_params_per_token_excl_input_embed"]),
        ):
            if abs(mine - theirs) > 1e-4 * theirs:
                wrong[f"{name} active"] = (mine, theirs)
    assert wrong == {}


def test_predictors(models: list[tuple[str, ArchitectureProfile, dict[str, Any]]]) -> None:
    for name, profile, truth in models:
        wanted = truth["mtp"]["estimated_params"] if truth.get("mtp") else 0
        assert abs(count_parameters(profile).groups["mtp"] - wanted) <= 1e-3 * wanted, name


def kind(layer: LayerSpec) -> str:
    mixer = layer.mixer
    if not isinstance(mixer, GroupedQueryAttention):
        return "cross_attention"
    if mixer.window is None:
        return "full_attention"
    return "chunked_attention" if mixer.chunked else "sliding_attention"


def test_kinds_of_layers_and_cache(models: list[tuple[str, ArchitectureProfile, dict[str, Any]]]) -> None:
    for name, profile, truth in models:
        sizes = cache_sizes(profile)
        window = WINDOWS.get(profile.model_type)
        parts = truth["kv_cache_per_token"]
        if profile.model_type == "phimoe":
            parts = [part | {"window": window} for part in parts]
        full = sum(2 * part["elems"] * part["layers"] for part in parts if "window" not in part)
        held = sum(
            2 * part["elems"] * part["layers"] * (window or part["window"]) for part in parts if "window" in part
        )
        assert (sizes.kv_bytes_per_token, sizes.window_bytes_per_sequence) == (full, held), name
        if truth.get("layer_types"):
            assert Counter(kind(layer) for layer in profile.layers) == Counter(truth["layer_types"]), name
        routed = truth["experts"]["moe_layers"] if truth.get("experts") else 0
        assert sum(layer.feed_forward.kind == "moe" for layer in profile.layers) == routed, name


def test_every_key_and_every_part_is_read(models: list[tuple[str, ArchitectureProfile, dict[str, Any]]]) -> None:
    sections_of_others = {"vision_config", "audio_config"}
    for name, profile, _ in models:
        assert set(profile.unused_config_keys) <= sections_of_others, name
        assert operators_needed(profile), name
        decoder = [
            f.where
            for f in inventory_findings(profile)
            if not f.where.startswith(("profile.vision", "profile.quantization"))
        ]
        assert decoder == [], name
