"""Counts of released configs against numbers computed elsewhere; skipped where they do not lie beside the checkout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from day0.profile.cache_sizes import cache_sizes
from day0.profile.parameters import count_parameters
from day0.profile.read import read_profile
from day0.profile.tensors import expected_tensors
from day0.source.resolve import resolve

FAMILIES = {"llama", "qwen3", "mixtral", "qwen3_moe", "kimi_k3"}


@pytest.fixture(scope="module")
def models(shared: Path) -> list[Path]:
    """Folders with a config of a native family and its truth."""
    found = []
    for folder in sorted((shared / "model_configs").iterdir()):
        if (folder / "truth.json").is_file() and (folder / "config.json").is_file():
            model_type = json.loads((folder / "config.json").read_text()).get("model_type")
            if model_type in FAMILIES:
                found.append(folder)
    assert len(found) >= 10
    return found


def test_parameters_and_cache(models: list[Path]) -> None:
    wrong = {}
    for folder in models:
        profile = read_profile(resolve(str(folder / "config.json")))
        truth = json.loads((folder / "truth.json").read_text())
        counts = count_parameters(profile)
        found = {
            "total": counts.total,
            "groups": {group: count for group, count in counts.groups.items() if count},
            "active": counts.active,
            "active without input": counts.active_without_input_embedding,
            "tied": profile.tie_word_embeddings,
            "layers": profile.num_layers,
            "kv": cache_sizes(profile).kv_bytes_per_token,
            "recurrent": sum(
                s.elements for layer in profile.layers for s in layer.state_shapes() if s.name == "recurrent"
            ),
        }
        wanted = {
            "total": truth["total_params"],
            "groups": truth["params_by_group"],
            "active": truth["active_params_per_token"],
            "active without input": truth["active_params_per_token_excl_input_embed"],
            "tied": truth["tied_word_embeddings"],
            "layers": truth["num_layers"],
            "kv": sum(2 * part["elems"] * part["layers"] for part in truth["kv_cache_per_token"]),
            # Convolution buffers are left out: there one input more is counted than a convolution needs.
            "recurrent": sum(
                state["layers"] * part["recurrent"] for state in truth["linear_state"] for part in state["parts"]
            ),
        }
        differ = {key: (found[key], wanted[key]) for key in wanted if found[key] != wanted[key]}
        if differ:
            wrong[folder.name] = differ
    assert wrong == {}


def test_every_key_of_a_released_config_is_read(models: list[Path]) -> None:
    unused = {
        folder.name: profile.unused_config_keys
        for folder in models
        if (profile := read_profile(resolve(str(folder / "config.json")))).unused_config_keys
    }
    assert unused == {}


def test_bytes_of_kimi_k3(shared: Path) -> None:
    folder = shared / "model_configs" / "moonshotai--Kimi-K3"
    truth = json.loads((folder / "truth.json").read_text())
    specs = expected_tensors(read_profile(resolve(str(folder / "config.json"))))
    assert sum(spec.nbytes for spec in specs) == truth["checkpoint_total_size_bytes"]
    assert sum(spec.count for spec in specs) == truth["checkpoint_tensors"]
