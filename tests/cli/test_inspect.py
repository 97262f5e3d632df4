"""`day0 inspect` as scripts and people use it: the document, the exit status, the screen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file, save_file

from day0.cli.main import main

CONTRACT_KEYS = {
    "schema", "model", "params", "weights", "layers", "layer_counts", "cache", "context", "vision", "mtp", "operators",
    "coverage", "findings", "unused_config_keys", "defaulted_config_keys", "unexpected_tensors", "missing_tensors",
    "diff", "scaffold", "seconds",
}  # fmt: skip
OUR_MODEL_TYPES = ("llama", "qwen3", "mixtral", "qwen3_moe", "kimi_k3")


@pytest.fixture
def inspect(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Run the command; give its exit status and the document."""

    def run(model: str | Path, *options: str) -> tuple[int, dict[str, Any]]:
        status = main(["inspect", str(model), "--json", "--device", "cpu", *options])
        return status, json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def folder(tiny_llama: Path, tmp_path: Path) -> Path:
    """A copy of a tiny checkpoint that a test may spoil."""
    return Path(shutil.copytree(tiny_llama, tmp_path / "model"))


def change_config(folder: Path, **changes: Any) -> Path:
    """Set keys of config.json; None takes a key out."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return folder


def change_tensors(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Rewrite the shard that holds the final norm, and the index with it."""
    index_path = folder / "model.safetensors.index.json"
    index = json.loads(index_path.read_text())
    shard = folder / index["weight_map"]["model.norm.weight"]
    tensors = load_file(shard)
    change(tensors)
    save_file(tensors, shard)
    others = {name: file for name, file in index["weight_map"].items() if file != shard.name}
    index["weight_map"] = others | dict.fromkeys(tensors, shard.name)
    index_path.write_text(json.dumps(index))
    return folder


class TestDocument:
    def test_it_has_every_field_of_the_contract(self, inspect, tiny_kimi_k3: Path) -> None:
        status, document = inspect(tiny_kimi_k3)
        assert status == 0
        assert document.keys() >= CONTRACT_KEYS
        assert document["schema"] == "day0.inspect/1"
        assert document["model"].keys() >= {
            "id", "revision", "source", "architectures", "model_type", "family", "native",
        }  # fmt: skip
        assert document["params"].keys() == {"total", "active", "active_without_input_embedding", "groups"}
        assert document["weights"].keys() >= {"bytes", "tensors", "shards", "formats"}
        assert document["cache"].keys() == {
            "dtype", "kv_bytes_per_token", "index_bytes_per_token", "state_bytes_per_sequence",
            "window_bytes_per_sequence", "by_mixer",
        }  # fmt: skip
        assert document["context"].keys() == {"max_position", "source_field"}
        assert document["coverage"].keys() == {"verified", "unverified", "constraint", "gap"}
        for operator in document["operators"]:
            assert operator.keys() >= {
                "name", "layers", "phases", "shapes", "status", "provider", "reason", "evidence",
            }  # fmt: skip
        for layer in document["layers"]:
            assert layer.keys() == {"index", "mixer", "ffn", "residual", "operators"}

    def test_parts_add_up(self, inspect, tiny_kimi_k3: Path) -> None:
        _, document = inspect(tiny_kimi_k3)
        groups, weights = document["params"]["groups"], document["weights"]
        assert sum(groups.values()) - groups["mtp"] == document["params"]["total"]
        assert sum(weights["formats"].values()) == weights["bytes"]
        assert sum(document["coverage"].values()) == len(document["operators"])
        assert sum(document["layer_counts"]["mixer"].values()) == len(document["layers"])
        assert document["vision"]["patch_size"] == 14

    def test_weights_are_counted_from_the_files(self, inspect, tiny_kimi_k3: Path) -> None:
        _, document = inspect(tiny_kimi_k3)
        shards = sorted(tiny_kimi_k3.glob("*.safetensors"))
        payload = sum(f.stat().st_size - 8 - int.from_bytes(f.read_bytes()[:8], "little") for f in shards)
        assert document["weights"]["bytes"] == payload
        assert document["weights"]["shards"] == len(shards)
        assert set(document["weights"]["formats"]) == {"bf16", "f32", "mxfp4"}

    def test_a_recipe_is_sized_like_the_published_checkpoint(self, inspect) -> None:
        """Kimi K3: 497,220 tensors and 1,560,860,324,864 bytes in the published index."""
        status, document = inspect("recipe:kimi-k3")
        assert status == 0
        assert document["model"]["source"] == "recipe"
        assert document["weights"]["bytes"] == 1_560_860_324_864
        assert document["weights"]["tensors"] == 497_220
        assert document["weights"]["counted_from"] == "profile"
        assert document["cache"]["kv_bytes_per_token"] == 27_648
        assert document["cache"]["state_bytes_per_sequence"] == 449_372_160
        assert document["layer_counts"]["mixer"] == {"kda": 69, "mla": 24}

    def test_output_writes_what_json_prints(self, inspect, tiny_llama: Path, tmp_path: Path) -> None:
        _, document = inspect(tiny_llama, "--output", str(tmp_path / "o.json"))
        assert json.loads((tmp_path / "o.json").read_text()) == document

    def test_what_a_person_reads_goes_to_stdout_as_text(self, capsys, tiny_llama: Path) -> None:
        assert main(["inspect", str(tiny_llama), "--device", "cpu"]) == 0
        captured = capsys.readouterr()
        assert str(tiny_llama) in captured.out and "Next" in captured.out
        assert captured.err == ""


class TestExitStatus:
    def test_an_unread_config_key_is_listed_and_counts_when_strict(self, inspect, folder: Path) -> None:
        change_config(folder, clever_new_trick=3)
        status, document = inspect(folder)
        assert (status, document["unused_config_keys"]) == (0, ["clever_new_trick"])
        assert inspect(folder, "--strict")[0] == 1

    def test_strict_is_content_with_a_sound_model(self, inspect, tiny_llama: Path) -> None:
        assert inspect(tiny_llama, "--strict")[0] == 0

    def test_a_missing_tensor_is_no(self, inspect, folder: Path) -> None:
        status, document = inspect(change_tensors(folder, lambda tensors: tensors.pop("model.norm.weight")))
        assert status == 1
        assert document["missing_tensors"] == ["model.norm.weight"]
        assert "tensors-missing" in {finding["code"] for finding in document["findings"]}

    def test_a_tensor_nobody_expects_is_not_understood(self, inspect, folder: Path) -> None:
        def add(tensors: dict[str, Any]) -> None:
            tensors["model.mystery.weight"] = tensors["model.norm.weight"].clone()

        status, document = inspect(change_tensors(folder, add))
        assert status == 1
        assert document["unexpected_tensors"] == ["model.mystery.weight"]
        (pattern,) = document["unexplained"]
        assert (pattern["pattern"], pattern["tensors"], pattern["shape"]) == ("model.mystery.weight", 1, [64])
        finding = next(f for f in document["findings"] if f["code"] == "tensors-unexpected")
        assert f"{pattern['bytes']:,} bytes" in finding["message"]

    def test_packing_that_is_not_read_is_not_guessed(self, inspect, folder: Path) -> None:
        change_config(folder, quantization_config={"quant_method": "secret"})
        status, document = inspect(folder / "config.json")
        assert status == 4
        assert document["weights"]["bytes"] is None
        assert document["model"]["native"] is False

    def test_a_gap_and_a_violated_constraint_are_no(self, inspect, tiny_llama: Path, tmp_path: Path) -> None:
        overlay = tmp_path / "mine.yaml"
        entry = {
            "operator": "rope",
            "provider": "mine",
            "devices": {"npu": {"status": "unverified", "constraints": {"heads": {"max": 1}}}},
        }
        overlay.write_text(yaml.safe_dump({"devices": {"npu": {}}, "entries": [entry]}))
        status, document = inspect(tiny_llama, "--whitelist", str(overlay), "--device", "npu")
        assert status == 1
        assert document["device"] == "npu"
        assert document["coverage"]["gap"] > 5 and document["coverage"]["constraint"] == 2
        assert any(step.startswith("Write ") and "rms_norm" in step and "for npu" in step for step in document["next"])

    @pytest.mark.parametrize(
        ("options", "says"),
        (
            (["--device", "abacus"], "no column for device 'abacus'"),
            (["--whitelist", "/no/such/file.yaml"], "/no/such/file.yaml"),
            (["--diff", "./nowhere"], "nowhere"),
        ),
    )
    def test_wrong_requests_are_refused(self, capsys, tiny_llama: Path, options: list[str], says: str) -> None:
        assert main(["inspect", str(tiny_llama), *options]) == 2
        captured = capsys.readouterr()
        assert says in captured.err and captured.out == ""


class TestDiff:
    def test_against_itself_nothing_differs(self, inspect, tiny_llama: Path) -> None:
        diff = inspect(tiny_llama, "--diff", str(tiny_llama))[1]["diff"]
        assert diff["fields"] == diff["new_operators"] == diff["dropped_operators"] == diff["resized_operators"] == []
        assert {size["ratio"] for size in diff["sizes"]} <= {1.0, None}

    def test_against_another_family(self, inspect) -> None:
        diff = inspect("recipe:qwen3-30b-a3b", "--diff", "recipe:llama-3.1-8b")[1]["diff"]
        assert {"qk_norm", "moe_router_topk_softmax", "routed_experts"} == set(diff["new_operators"])
        assert diff["dropped_operators"] == ["silu_and_mul"]
        fields = {entry["field"]: (entry["this"], entry["other"]) for entry in diff["fields"]}
        assert fields["mixer.gqa.qk_norm"] == (["head"], None)
        assert fields["feed_forward.moe.router.num_experts"] == ([128], None)
        assert fields["feed_forward.dense.layers"] == (None, [32])
        sizes = {size["name"]: size for size in diff["sizes"]}
        assert sizes["cache.kv_bytes_per_token"]["ratio"] == pytest.approx(98_304 / 131_072)


class TestProcess:
    def test_torch_and_its_friends_stay_out(self, tiny_llama: Path) -> None:
        program = (
            "import sys; from day0.cli.main import main; status = main(['inspect', sys.argv[1]]);"
            "heavy = {'torch', 'transformers', 'fastapi', 'numpy', 'matplotlib'} & sys.modules.keys();"
            "sys.exit(f'imported {heavy}' if heavy or status else 0)"
        )
        result = subprocess.run(
            [sys.executable, "-c", program, str(tiny_llama)],
            check=False,
            capture_output=True,
            text=True,
            env=os.environ | {"COLUMNS": "80"},
        )
        assert result.returncode == 0, result.stderr
        assert max(map(len, result.stdout.splitlines())) <= 80


class TestCorpus:
    """Real configs whose figures are known from other sources."""

    def test_figures_are_exact(self, inspect, shared: Path) -> None:
        checked = 0
        for folder in sorted((shared / "model_configs").iterdir()):
            path = folder / "config.json"
            if not path.is_file() or json.loads(path.read_text()).get("model_type") not in OUR_MODEL_TYPES:
                continue
            status, document = inspect(path)
            truth = json.loads((folder / "truth.json").read_text())
            params, cache = document["params"], document["cache"]
            unread = "quantization-not-read" in {f["code"] for f in document["findings"]}
            assert status == (4 if unread else 1 if document["coverage"]["gap"] else 0), path
            assert params["total"] == truth["total_params"], path
            assert params["active"] == truth["active_params_per_token"], path
            excluding = truth["active_params_per_token_excl_input_embed"]
            assert params["active_without_input_embedding"] == excluding, path
            groups = {group: count for group, count in params["groups"].items() if count}
            assert groups == truth["params_by_group"], path
            assert len(document["layers"]) == truth["num_layers"], path
            # Elements per token of a layer, two bytes each.
            kept = sum(2 * entry["elems"] * entry["layers"] for entry in truth["kv_cache_per_token"])
            assert cache["kv_bytes_per_token"] == kept, path
            state = sum(
                entry["layers"] * sum(4 * part["recurrent"] + 2 * (part["conv_kernel"] - 1) * part["conv_dim"]
                                      for part in entry["parts"])
                for entry in truth["linear_state"]
            )  # fmt: skip
            assert cache["state_bytes_per_sequence"] == state, path
            assert document["unused_config_keys"] == [], path
            checked += 1
        assert checked >= 10

    def test_other_configs_are_inspected_without_a_defect(self, inspect, shared: Path) -> None:
        for folder in sorted((shared / "model_configs").iterdir())[::6]:
            path = folder / "config.json"
            if path.is_file() and json.loads(path.read_text()).get("model_type") not in OUR_MODEL_TYPES:
                status, document = inspect(path)
                assert status in (0, 1, 4), path
                if document["model"]["family"] is None:
                    assert status == 4 and document["findings"], path
