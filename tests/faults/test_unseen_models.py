"""`day0 inspect` of models that nobody has heard of: the same checkpoint under a new name, with new parts, or moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from day0.cli.main import main

ALIKE = {"llama": ("llama", "ministral3"), "deepseek_v3": ("deepseek_v3",)}
"""Families that read a config and its tensors alike, of which a new name may mean any."""

NEW = {"model_type": "novel", "architectures": ["NovelForCausalLM"]}


@pytest.fixture(params=["llama", "latent"])
def base(request: pytest.FixtureRequest, configs) -> dict:
    return configs[request.param]


def test_a_new_name_alone(make, inspect, base) -> None:
    model = make(base)
    known = inspect(model).document
    model.config |= NEW
    result = inspect(model)
    assert (result.status, result.serious) == (0, {"read-as-family"})
    assert inspect(model, "--strict").status == 1
    for part in ("params", "weights", "layers", "cache", "operators", "unused_config_keys"):
        assert result.document[part] == known[part], part
    assert result.document["model"]["family"] == result.document["model"]["nearest_family"]
    assert result.document["model"]["family"] in ALIKE[known["model"]["family"]]


def test_new_keys_and_tensors(make, inspect, base) -> None:
    model = make(base)
    known = inspect(model).document
    model.config |= NEW | {"clever_new_trick": 3, "another": {"deep": 1}}
    for layer in range(2):
        model.add(f"model.layers.{layer}.mystery.weight", "BF16", 5, 4)
    result = inspect(model)
    document = result.document
    assert result.status == 1
    assert document["unused_config_keys"] == ["another", "clever_new_trick"]
    assert document["unexpected_tensors"] == [f"model.layers.{layer}.mystery.weight" for layer in range(2)]
    (pattern,) = document["unexplained"]
    assert (pattern["pattern"], pattern["tensors"], pattern["bytes"]) == ("model.layers.*.mystery.weight", 2, 80)
    assert document["weights"]["bytes"] == known["weights"]["bytes"] + 80
    assert document["params"]["total"] == known["params"]["total"] + 40
    assert document["params"]["groups"]["other"] == 40
    assert document["layer_counts"] == known["layer_counts"]
    assert document["model"]["family"] is None
    assert document["model"]["nearest_family"] in ALIKE[known["model"]["family"]]
    assert document["model"]["likeness"]["read"] and len(document["model"]["likeness"]["differs"]) == 2
    assert {"unknown-family", "config-keys-unused", "tensors-unexpected"} <= result.serious


def test_names_that_no_table_has(make, inspect, base) -> None:
    """Other modules, other words in the config: sizes are exact, layers are told by what is inside of them."""
    model = make(base)
    known = inspect(model).document
    for name in list(model.tensors):
        model.tensors[name.replace("model.layers", "trunk.blocks")] = model.tensors.pop(name)
    model.shard_of = dict.fromkeys(model.tensors, "model.safetensors")
    model.config |= NEW
    model.config["n_layer"] = model.config.pop("num_hidden_layers")
    result = inspect(model)
    document = result.document
    assert result.status == 1
    assert (document["model"]["family"], document["operators"], document["cache"]) == (None, [], None)
    assert document["params"]["total"] == known["params"]["total"]
    assert document["params"]["active"] == known["params"]["active"]
    assert document["weights"]["bytes"] == known["weights"]["bytes"]
    assert document["layer_counts"] == known["layer_counts"]
    assert sum(pattern["tensors"] for pattern in document["unexplained"]) == len(model.tensors)
    assert "n_layer" in document["unused_config_keys"]


def test_a_config_that_says_nothing(inspect, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "novel"}')
    assert inspect(tmp_path / "config.json").status == 4


def test_on_the_screen(make, inspect, base, capsys: pytest.CaptureFixture[str]) -> None:
    model = make(base)
    model.config |= NEW | {"clever_new_trick": 3}
    folder = model.write()
    assert main(["inspect", str(folder), "--device", "cpu"]) == 1
    shown = capsys.readouterr().out
    assert "unknown family (novel, read as" in shown and "clever_new_trick" in shown
    assert "Describe the family" in shown
