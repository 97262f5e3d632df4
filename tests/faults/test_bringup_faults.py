"""Real bring-up bugs of loading, config, quantisation and tokenizers: what an inspection says of their inputs.

`SEEN` names the test for each one that shows in config, headers or small files; `NOT_SEEN` says why the others do not.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

KINDS = ("inspect-cross-check", "loading-account", "tokenizer-and-template-fidelity")
AREAS = ("loading", "config", "quant", "tokenizer/chat-template")
"""Entries of the collection that belong here, by kind of check or by area."""

ODDITIES = "test_oddities.py: "
ODD_FILES = "test_odd_files.py: "
SEEN = {
    "fused-name-in-skip-list": "test_fused_names_in_skip_lists",
    "skip-list-rename-anchored": "test_entries_that_hit_nothing",
    "kv-scale-name-doubled": "test_scales_of_a_cache_are_accounted_for",
    "moe-bias-bf16-collapse": ODDITIES + "test_a_routing_bias_in_sixteen_bits",
    "load-tie-outer-default-true": "test_the_inner_flag_counts_where_the_outer_is_silent",
    "load-tie-inner-true-ignored": "test_the_inner_flag_counts_where_the_outer_is_silent",
    "load-untied-but-missing-head": "test_an_untied_model_without_its_head",
    "config-quant-not-propagated": ODDITIES + "test_one_packing_with_its_origin",
    "dsa-shared-first-stale": "test_a_first_layer_that_shares_what_nobody_chose",
    "tok-sparse-added-ids": ODDITIES + "test_gaps_between_special_ids",
    "load-missing-shard-silent": ODD_FILES + "test_a_missing_shard_is_refused",
    "load-unindexed-overwrite": "test_the_order_of_files_changes_nothing",
    "load-stray-second-set": "test_a_stray_set_of_shards",
    "config-error-hides-file": "test_the_file_and_place_of_bad_json",
    "load-lfs-pointer-memory-error": ODD_FILES + "test_pointers_are_named",
    "config-legacy-layer-key": ODDITIES + "test_kinds_of_layers_under_older_keys",
    "config-sliding-window-gated": ODDITIES + "test_a_window_that_is_switched_off",
    "config-validation-stops-early": "test_every_list_by_layer_is_checked",
    "config-remote-overrides-vendored": ODD_FILES + "test_remote_code_is_listed_and_not_run",
    "vlm-processor-key-missing": ODD_FILES + "test_processor_files",
    "num-norm-shift-twice": ODDITIES + "test_norm_weights_around_the_wrong_centre",
    "rope-partial-legacy-dim": ODDITIES + "test_a_rotary_width_that_nothing_heeds",
    "rope-partial-default-half": ODDITIES + "test_rotary_width_with_its_origin",
    "load-consolidated-expected": "test_one_of_two_formats_is_incomplete",
    "load-prefix-wrong-map": "test_names_of_towers_stay_theirs",
    "fused-ckpt-second-scale-uninit": "test_a_scale_that_is_not_there",
    "fp8-dequant-block-derived": ODDITIES + "test_a_grid_that_ends_inside_a_block",
    "mxfp4-tp-block-cut": "test_groups_that_do_not_fill_a_row",
}
"""Id of a bug -> the test whose input is that bug's."""
NOT_SEEN = {
    "mxfp4-padded-scale-address": "a kernel's own addressing; the file is sound (operators' differential tests)",
    "mxfp4-hopper-oob-scale": "a kernel reads past its buffer; shows under poisoned memory only",
    "mxfp4-padded-hidden-leaks": "an engine's padding at start-up; the file is sound",
    "mxfp8-ep-unswizzled": "happens between ranks while running",
    "load-fused-double-transpose": "a loader's slip over sound tensors; tests of loading compare every expert",
    "load-param-path-moved": "a loader's map against its own modules; tests load every family",
    "load-untied-head-reused": "an implementation ignores a head that the file has; tests of loading and logits",
    "config-rope-set-after-init": "a buffer of a running model is stale; nothing in the file shows it",
    "config-second-load-differs": "state of a process between two loads; no file is wrong",
    "tok-reserved-name-relative": "names that a front end makes up; only encoding text shows it",
    "tok-pretokenizer-regex": "another tokenizer's split of text; only encoding text shows it",
    "tmpl-part-order-lost": "what a template renders; the checklist renders permuted parts",
    "tmpl-jinja-dialect": "another template engine's reading; only rendering shows it",
}
"""Id of a bug -> why an inspection cannot see it."""


def entries(shared: Path) -> list[dict[str, Any]]:
    from day0.source.data_files import load_yaml

    bugs = load_yaml(shared / "faults" / "catalogue.yaml")["bugs"]
    return [bug for bug in bugs if bug["check_kind"] in KINDS or bug["area"] in AREAS]


def test_the_table_is_complete(shared: Path) -> None:
    wanted = {bug["id"] for bug in entries(shared)}
    assert wanted <= SEEN.keys() | NOT_SEEN.keys()
    assert not SEEN.keys() & NOT_SEEN.keys()


def test_every_case_is_a_test() -> None:
    for name in SEEN.values():
        *beside, test = name.split(": ")
        file = Path(__file__).parent / beside[0] if beside else Path(__file__)
        assert f"def {test}(" in file.read_text(), name


def test_fused_names_in_skip_lists(make, inspect, configs) -> None:
    """Projections joined in a list's words cover those that are stored one by one, and what is stored counts."""
    skipped = ["model.layers.0.self_attn.qkv_proj", "model.layers.0.mlp.gate_up_proj"]
    config = configs["llama"] | {"quantization_config": configs["fp8"] | {"modules_to_not_convert": skipped}}
    model = make(config)
    plain = {f"model.layers.0.self_attn.{part}_proj" for part in "qkv"}
    plain |= {f"model.layers.0.mlp.{part}_proj" for part in ("gate", "up")}
    assert plain == {name.removesuffix(".weight") for name, (dtype, shape, _) in model.tensors.items()
                     if dtype == "BF16" and len(shape) == 2 and "layers" in name}  # fmt: skip
    assert inspect(model).serious == set()
    model.add("model.layers.0.self_attn.q_proj.weight", "F8_E4M3", 32, 32)
    model.add("model.layers.0.self_attn.q_proj.weight_scale_inv", "F32", 4, 4)
    result = inspect(model)
    finding = result.finding("quantization-differs")
    assert "packed although the section leaves them plain" in finding["message"] and "q_proj" in finding["message"]


def test_entries_that_hit_nothing(make, inspect, configs) -> None:
    entry = "vision.layers.0.mlp.fc1"
    result = inspect(make(quantization_config=configs["fp8"] | {"ignored_layers": [entry, "lm_head"]}))
    message = result.finding("quantization-entry-idle")["message"]
    assert entry in message and "lm_head" not in message


def test_scales_of_a_cache_are_accounted_for(make, inspect) -> None:
    model = make()
    names = [f"model.layers.{layer}.self_attn.attn.{leaf}" for layer in range(2) for leaf in ("k_scale", "v_scale")]
    for name in names:
        model.add(name, "F32")
    result = inspect(model)
    assert result.document["unexpected_tensors"] == []
    assert result.finding("cache-scales-stored")["where"] == f"{names[0]} and 3 more"


@pytest.mark.parametrize("tied", [True, False])
def test_the_inner_flag_counts_where_the_outer_is_silent(make, inspect, configs, tied: bool) -> None:
    text = configs["sizes"] | {"model_type": "mistral", "tie_word_embeddings": tied}
    model = make({"model_type": "mistral3", "text_config": text})
    assert any("lm_head" in name for name in model.tensors) != tied
    assert inspect(model).codes & {"head-missing", "tied-head-stored", "tie-flags-differ"} == set()


def test_an_untied_model_without_its_head(make, inspect) -> None:
    model = make()
    model.take("lm_head")
    result = inspect(model)
    assert (result.status, result.document["missing_tensors"]) == (1, ["lm_head.weight"])
    finding = result.finding("head-missing")
    assert finding["where"] == "config.json: tie_word_embeddings"
    assert "tied" in finding["hint"] and "without its head" in finding["hint"]


def test_a_first_layer_that_shares_what_nobody_chose(inspect, configs, tmp_path: Path) -> None:
    kinds = {"indexer_types": ["shared", "full"], "index_n_heads": 4, "index_head_dim": 8, "index_topk": 8}
    (tmp_path / "config.json").write_text(json.dumps(configs["latent"] | {"model_type": "glm_moe_dsa"} | kinds))
    result = inspect(tmp_path / "config.json")
    assert result.status == 2 and "layer 0 reuses" in result.error


def test_the_order_of_files_changes_nothing(make, inspect) -> None:
    model = make(num_hidden_layers=3)
    model.split(3)
    model.write()
    before = inspect(model.folder).document["weights"]
    for target, stray in ((1, 3), (3, 1)):
        shard = f"model-0000{target}-of-00003.safetensors"
        own = {name: tensor for name, tensor in model.tensors.items() if model.shard_of[name] == shard}
        name = next(
            name for name, place in model.shard_of.items() if place == f"model-0000{stray}-of-00003.safetensors"
        )
        dtype, shape, data = model.tensors[name]
        model.write_beside(shard, own | {name: (dtype, shape, bytes(len(data)))})
        result = inspect(model.folder)
        assert f"{name} in {shard}" in result.finding("tensors-outside-index")["message"]
        assert result.document["weights"] == before
        model.write_beside(shard, own)


def test_a_stray_set_of_shards(make, inspect) -> None:
    model = make()
    model.split(2)
    model.write()
    model.write_beside("model.safetensors", dict(model.tensors))
    result = inspect(model.folder)
    assert (result.status, result.document["weights"]["tensors"]) == (0, len(model.tensors))
    assert "model.safetensors" in result.finding("unused-weight-files")["message"]
    (model.folder / "model.safetensors.index.json").unlink()
    assert "model.safetensors was taken" in inspect(model.folder).finding("unused-weight-files")["message"]


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
def test_the_file_and_place_of_bad_json(make, inspect, name: str) -> None:
    model = make()
    content = model.config if name == "config.json" else model.files[name]
    model.files[name] = json.dumps(content, indent=1)[:-2] + ',\n "odd": Infinity\n}'
    finding = inspect(model).finding("json-non-finite-number")
    assert re.fullmatch(rf"{re.escape(name)}:\d+:\d+", finding["where"]) and "odd holds Infinity" in finding["message"]


@pytest.mark.parametrize(
    "lists", [{"mlp_layer_types": ["dense"]}, {"layer_types": ["full_attention"] * 2, "mlp_layer_types": ["dense"]}]
)
def test_every_list_by_layer_is_checked(make, inspect, lists: dict[str, list[str]]) -> None:
    model = make()
    model.config |= lists
    result = inspect(model)
    assert result.status == 1
    finding = result.finding("layer-list-length")
    assert finding["where"] == "config.json: mlp_layer_types" and finding["message"] == "1 entries for 2 layers"


def test_one_of_two_formats_is_incomplete(make, inspect) -> None:
    model = make()
    folder = model.write()
    (folder / "model.safetensors").unlink()
    model.write_beside("consolidated.safetensors", {"layers.0.attention.wk.weight": ("BF16", (16, 32), bytes(1024))})
    result = inspect(folder)
    assert result.status == 1
    assert result.document["unexpected_tensors"] == ["layers.0.attention.wk.weight"]
    assert len(result.document["missing_tensors"]) == len(model.tensors)


def test_names_of_towers_stay_theirs(make, inspect, configs) -> None:
    """A tower's tensors under the text model's prefix are missing there and unexpected here, each by name."""
    vision = {
        "model_type": "pixtral",
        "patch_size": 14,
        "hidden_size": 16,
        "image_size": 28,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "head_dim": 8,
        "intermediate_size": 32,
    }
    text = configs["sizes"] | {"model_type": "mistral"}
    model = make({"model_type": "mistral3", "text_config": text, "vision_config": vision})
    moved = [name for name in model.tensors if "vision" in name]
    assert len(moved) > 5
    for name in moved:
        model.add(f"language_model.{name}", *model.tensors[name][:1], *model.tensors[name][1])
    model.take(*(name for name in moved if not name.startswith("language_model")))
    result = inspect(model)
    assert result.status == 1
    assert set(result.document["missing_tensors"]) == set(moved)


@pytest.mark.parametrize("part", ["gate_proj", "q_proj"])
def test_a_scale_that_is_not_there(make, inspect, configs, part: str) -> None:
    model = make(quantization_config=configs["fp8"])
    name = next(name for name in model.tensors if name.endswith(f"{part}.weight_scale_inv"))
    model.take(name)
    result = inspect(model)
    assert result.status == 1
    assert name in result.document["missing_tensors"]
    assert name.removesuffix("_scale_inv") in result.finding("scale-missing")["message"]


def test_groups_that_do_not_fill_a_row(inspect, configs, tmp_path: Path) -> None:
    """An expert whose width is no multiple of 32 cannot be stored in groups of 32, nor cut between ranks."""
    sizes = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "model_type": "qwen3_moe"}
    scheme = {"num_bits": 4, "type": "float", "group_size": 32, "strategy": "group", "symmetric": True}
    section = {
        "quant_method": "compressed-tensors",
        "format": "mxfp4-pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": scheme}},
    }
    (tmp_path / "config.json").write_text(json.dumps(configs["sizes"] | sizes | {"quantization_config": section}))
    result = inspect(tmp_path / "config.json")
    assert result.status == 2 and "40 values do not split into groups of 32" in result.error


def test_experts_that_were_pruned(make, inspect, configs) -> None:
    model = make(configs["latent"])
    model.take("experts.3.")
    result = inspect(model)
    assert "stores 3 experts, the config says 4" in result.finding("expert-count")["message"]


def test_layers_that_are_not_there(make, inspect) -> None:
    model = make(num_hidden_layers=3)
    model.take("layers.2.")
    result = inspect(model)
    assert result.status == 1
    assert "says 3 layers, the tensors are those of 2" in result.finding("layer-count")["message"]


def test_scales_left_over_from_another_packing(make, inspect) -> None:
    model = make()
    model.add("model.layers.0.mlp.up_proj.weight_scale_inv", "F32", 6, 4)
    result = inspect(model)
    assert "up_proj.weight_scale_inv" in result.finding("scale-without-weight")["message"]


@pytest.mark.parametrize("key", ["eos_token_id", "bos_token_id"])
@pytest.mark.parametrize("place", ["config.json", "generation_config.json"])
def test_special_ids_beyond_the_table(make, inspect, key: str, place: str) -> None:
    model = make()
    target = model.config if place == "config.json" else model.files[place]
    target[key] = 64
    result = inspect(model)
    assert result.status == 1
    assert result.finding("token-id-outside-vocabulary")["where"] == f"{place}: {key}"


def test_two_files_that_end_answers_differently(make, inspect) -> None:
    model = make(eos_token_id=1)
    assert "stop ids [2], config.json says [1]" in inspect(model).finding("stop-ids-differ")["message"]


def test_one_id_with_two_names(make, inspect) -> None:
    model = make()
    model.files["tokenizer_config.json"]["added_tokens_decoder"]["2"] = {"content": "<end>"}
    result = inspect(model)
    assert result.status == 1
    assert "id 2 is '<end>' here and '</s>' in tokenizer.json" in result.finding("tokenizer-files-differ")["message"]


def test_lengths_beyond_what_was_trained(make, inspect) -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}
    sound = make(rope_parameters=yarn)
    assert "context-beyond-rotation" not in inspect(sound).codes
    sound.config["max_position_embeddings"] = 256
    assert "by 4 from 32 reaches 128" in inspect(sound).finding("context-beyond-rotation")["message"]
    sound.files["tokenizer_config.json"]["model_max_length"] = 512
    assert "512 tokens, the model has 256" in inspect(sound).finding("context-beyond-model")["message"]


@pytest.mark.parametrize(
    ("gone", "code"),
    [(("tokenizer.json",), "tokenizer-missing"), (("tokenizer_config.json",), "chat-template-missing")],
)
def test_files_that_answers_need(make, inspect, gone: tuple[str, ...], code: str) -> None:
    model = make()
    for name in gone:
        del model.files[name]
    assert inspect(model).codes == {code}


def test_an_empty_file(make, inspect) -> None:
    folder = make().write()
    (folder / "merges.txt").write_bytes(b"")
    result = inspect(folder)
    assert (result.status, result.serious) == (1, {"file-empty"})


class TestNoFalseAlarm:
    @pytest.mark.parametrize("recipe", ["llama-3.1-8b", "mixtral-8x7b", "qwen3-0.6b", "qwen3-30b-a3b", "kimi-k3"])
    def test_on_our_own_skeletons(self, inspect, tiny, recipe: str) -> None:
        result = inspect(tiny(recipe))
        assert (result.status, result.serious) == (0, set())

    def test_on_published_configs(self, shared: Path) -> None:
        """Warnings are left where the publisher's file is odd: a bare Infinity, or an unknown family."""
        from day0.profile.audit import audit
        from day0.profile.read import read_profile
        from day0.source.resolve import resolve

        alarms: dict[str, list[str]] = {}
        for folder in sorted((shared / "model_configs").iterdir()):
            if not (folder / "config.json").is_file():
                continue
            files = resolve(str(folder / "config.json"))
            found = audit(files, read_profile(files), None)
            codes = [finding.code for finding in found if finding.severity != "note"]
            if codes:
                alarms[folder.name] = codes
        assert alarms == {}

    def test_on_published_small_files(self, shared: Path) -> None:
        from dataclasses import replace

        from day0.profile.audit import audit
        from day0.profile.read import read_profile
        from day0.source.resolve import resolve

        read = 0
        for folder in sorted((shared / "model_headers").iterdir()):
            config = shared / "model_configs" / folder.name / "config.json"
            if not config.is_file():
                continue
            extras = {path.name: json.loads(path.read_text()) for path in folder.glob("*_config.json")}
            read += len(extras)
            files = replace(resolve(str(config)), extras=extras)
            found = audit(files, read_profile(files), None)
            assert [finding for finding in found if finding.severity != "note"] == [], folder.name
        assert read > 5
