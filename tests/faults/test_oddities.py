"""Odd configs of published models: what must be said of each beside its tensors, by which code, with which status.

Ids are those of the collection of oddities that the cases were thought out for; `EVERY` is all of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

TESTS_OF = {
    "json-infinity": "test_bare_infinity_is_kept_and_named",
    "index-missing-shard": "test_a_missing_shard_is_refused",
    "index-stale-names": "test_an_index_of_other_names_is_refused",
    "shard-extra-unindexed": "test_the_index_is_honoured",
    "two-shard-splits": "test_of_two_splits_the_indexed_one_counts",
    "lfs-pointer": "test_pointers_are_named",
    "shard-truncated": "test_a_short_shard_is_refused",
    "quant-config-level": "test_one_packing_with_its_origin",
    "tie-flag-levels": "test_tied_flags_by_level",
    "added-tokens-gaps": "test_gaps_between_special_ids",
    "skip-list-spelling": "test_spellings_of_skip_lists",
    "bias-narrow-range": "test_a_routing_bias_in_sixteen_bits",
    "fp8-grid-uneven": "test_a_grid_that_ends_inside_a_block",
    "legacy-layer-keys": "test_kinds_of_layers_under_older_keys",
    "window-ineffective": "test_a_window_that_is_switched_off",
    "automap-remote": "test_remote_code_is_listed_and_not_run",
    "processor-file-variants": "test_processor_files",
    "no-generation-config": "test_what_counts_without_a_generation_config",
    "hardlinked-shards": "test_linked_shards",
    "norm-centre-unmarked": "test_norm_weights_around_the_wrong_centre",
    "rotary-dim-spellings": "test_rotary_width_with_its_origin",
    "head-redundant-in-tied": "test_a_head_beside_a_tied_table",
    "consolidated-and-hf": "test_two_formats_in_one_folder",
    "vendor-params-json": "test_a_vendor_s_own_config",
    "json-typo-official": "test_broken_json_by_file",
    "vocab-padded": "test_rows_against_tokens",
}
"""Every oddity and the test, here or in one of `FILES` beside this, that is its case."""
FILES = ("test_oddities.py", "test_odd_files.py")
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}


def test_the_table_is_complete(shared: Path) -> None:
    from day0.source.data_files import load_yaml

    assert TESTS_OF.keys() == {entry["id"] for entry in load_yaml(shared / "faults" / "oddities.yaml")["oddities"]}
    written = "".join((Path(__file__).parent / file).read_text() for file in FILES)
    assert [name for name in TESTS_OF.values() if f"def {name}(" not in written] == []


def test_a_sound_checkpoint_gives_no_finding(make, inspect) -> None:
    result = inspect(make())
    assert (result.status, result.document["findings"]) == (0, [])


@pytest.mark.parametrize(
    ("top", "inner", "beside", "origin"),
    [
        (True, False, False, "config.json: quantization_config"),
        (False, True, False, "config.json: text_config.quantization_config"),
        (True, True, False, "config.json: quantization_config"),
        (False, False, True, "hf_quant_config.json: quantization"),
    ],
)
def test_one_packing_with_its_origin(make, inspect, configs, top, inner, beside, origin) -> None:
    text = configs["sizes"] | {"model_type": "mistral"}
    model = make({"model_type": "mistral3", "text_config": text})
    if top:
        model.config["quantization_config"] = configs["fp8"]
    if inner:
        model.config["text_config"] = text | {"quantization_config": configs["fp8"]}
    if beside:
        model.files["hf_quant_config.json"] = {"quantization": {"quant_algo": "FP8"}}
    result = inspect(model)
    assert result.document["quantization"]["section"] == origin
    assert "quantization-conflict" not in result.codes


def test_two_packings_are_a_conflict(make, inspect, configs) -> None:
    model = make({"model_type": "mistral3", "text_config": configs["sizes"] | {"model_type": "mistral"}})
    model.config["quantization_config"] = configs["fp8"]
    model.config["text_config"] |= {"quantization_config": configs["fp8"] | {"weight_block_size": [16, 16]}}
    result = inspect(model)
    assert result.status == 1 and result.document["quantization"] is None
    assert "text_config" in result.finding("quantization-conflict")["message"]


@pytest.mark.parametrize("outer", [None, True, False])
@pytest.mark.parametrize("inner", [None, True, False])
@pytest.mark.parametrize("head", ["absent", "copy", "other"])
def test_tied_flags_by_level(make, inspect, configs, outer: bool | None, inner: bool | None, head: str) -> None:
    """The outer word counts, then the inner; each state of the head then has its own finding."""
    sizes = {key: value for key, value in configs["sizes"].items() if key != "tie_word_embeddings"}
    model = make(
        {"model_type": "mistral3", "text_config": sizes | {"model_type": "mistral"}, "tie_word_embeddings": False}
    )
    del model.config["tie_word_embeddings"]
    for section, flag in ((model.config, outer), (model.config["text_config"], inner)):
        if flag is not None:
            section["tie_word_embeddings"] = flag
    name = next(name for name in model.tensors if "lm_head" in name)
    table = next(name for name in model.tensors if "embed_tokens" in name)
    if head == "absent":
        model.take("lm_head")
    elif head == "copy":
        model.tensors[name] = model.tensors[table]
    tied = outer if outer is not None else inner
    result = inspect(model)
    assert ("tie-flags-differ" in result.codes) == (None not in (outer, inner) and outer != inner)
    if tied is not None:
        assert ("tied-head-stored" in result.codes) == (tied and head != "absent")
        assert ("tied-head-differs" in result.serious) == (tied and head == "other")
        assert ("head-missing" in result.serious) == (not tied and head == "absent")


def test_gaps_between_special_ids(make, inspect) -> None:
    model = make(vocab_size=128)
    model.files["tokenizer.json"]["added_tokens"] += [{"id": i, "content": f"<{i}>"} for i in (64, 100, 104, 127)]
    model.files["tokenizer_config.json"]["added_tokens_decoder"] = {"100": {"content": "<100>"}}
    result = inspect(model)
    assert result.status == 0 and "101-103" in result.finding("token-id-gaps")["message"]
    del model.files["tokenizer.json"]
    (model.folder / "tokenizer.json").unlink()
    model.files["tiktoken.model"] = "x"
    model.files["tokenizer_config.json"]["added_tokens_decoder"] = {i: {"content": f"<{i}>"} for i in ("100", "104")}
    assert "101-103" in inspect(model).finding("token-id-gaps")["message"]


@pytest.mark.parametrize(
    ("entry", "hits"),
    [
        ("model.layers.0.self_attn.qkv_proj", True),
        ("model.layers.0.self_attn.*", True),
        ("re:.*self_attn.*", True),
        ("language_model.model.layers.0.self_attn.q_proj", False),
        ("self_attn", True),
        ("model.layers.7.self_attn.q_proj", False),
    ],
)
def test_spellings_of_skip_lists(make, inspect, configs, entry: str, hits: bool) -> None:
    model = make(configs["llama"], quantization_config=configs["fp8"] | {"modules_to_not_convert": [entry]})
    result = inspect(model)
    assert ("quantization-entry-idle" in result.codes) != hits
    assert hits or entry in result.finding("quantization-entry-idle")["message"]
    assert result.serious == set()


def test_a_routing_bias_in_sixteen_bits(make, inspect, configs) -> None:
    model = make(configs["latent"])
    assert inspect(model).serious == set()
    (name,) = (name for name in model.tensors if "correction_bias" in name)
    assert model.tensors[name][0] == "F32"
    model.add(name, "BF16", *model.tensors[name][1])
    result = inspect(model)
    assert name in result.finding("tensor-dtype")["where"] and "tensor-dtype" in result.serious
    moved = name.replace(".gate.", ".")
    model.take("correction_bias")
    model.add(moved, "F32", 4)
    result = inspect(model)
    assert (result.document["missing_tensors"], result.document["unexpected_tensors"]) == ([name], [moved])


def test_a_grid_that_ends_inside_a_block(make, inspect, configs) -> None:
    """36 rows in blocks of 8 have five rows of scales; four, or a block guessed from the ratio, are wrong."""
    model = make(configs["llama"], intermediate_size=36, quantization_config=configs["fp8"])
    name = "model.layers.0.mlp.gate_proj.weight_scale_inv"
    assert model.tensors[name][1] == (5, 4)
    assert inspect(model).serious == set()
    model.add(name, "F32", 4, 4)
    result = inspect(model)
    assert result.status == 1
    assert name in result.finding("tensor-shape")["where"] and "[5, 4]" in result.finding("tensor-shape")["message"]


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ({"model_type": "lfm2", "full_attn_idxs": [1, 3], "conv_L_cache": 3, "norm_eps": 1e-5}, "conv gqa conv gqa"),
        ({"model_type": "qwen3_next", "full_attention_interval": 2} | DELTA | MOE, "delta gqa delta gqa"),
        ({"model_type": "minimax", "attn_type_list": [0, 1, 0, 1], "num_local_experts": 4, "num_experts_per_tok": 2},
         "lightning gqa lightning gqa"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M*-M", "mamba_num_heads": 4, "mamba_head_dim": 8,
          "ssm_state_size": 8, "conv_kernel": 4, "n_groups": 1, "expand": 1}, "mamba2 gqa none mamba2"),
    ],
)  # fmt: skip
def test_kinds_of_layers_under_older_keys(make, inspect, configs, keys: dict[str, Any], kinds: str) -> None:
    words = {"conv": "short_conv", "delta": "gated_deltanet"}
    model = make(configs["sizes"] | {"num_hidden_layers": 4, "head_dim": 8} | keys)
    result = inspect(model)
    wanted = [words.get(kind, kind) for kind in kinds.split()]
    assert [layer["mixer"] for layer in result.document["layers"]] == wanted
    assert result.document["missing_tensors"] == result.document["unexpected_tensors"] == []
    other = next(name for name in model.tensors if "layers.1." in name and "q_proj" in name)
    model.add(other.replace("layers.1.", "layers.0."), *model.tensors[other][:1], *model.tensors[other][1])
    assert "tensors-unexpected" in inspect(model).serious, "tensors of another kind of layer"


def test_windows_by_pattern(make, inspect, configs) -> None:
    keys = {"model_type": "gemma3_text", "sliding_window": 16, "sliding_window_pattern": 2, "num_hidden_layers": 4}
    result = inspect(make(configs["sizes"] | keys))
    cache = result.document["cache"]
    assert cache["window_bytes_per_sequence"] == 16 * cache["kv_bytes_per_token"] > 0


@pytest.mark.parametrize(
    ("keys", "effective"),
    [
        ({}, False),
        ({"use_sliding_window": False}, False),
        ({"use_sliding_window": True}, False),
        ({"use_sliding_window": True, "max_window_layers": 1}, True),
    ],
)
def test_a_window_that_is_switched_off(make, inspect, configs, keys: dict[str, Any], effective: bool) -> None:
    result = inspect(make(configs["sizes"] | {"model_type": "qwen3", "sliding_window": 8} | keys))
    assert ("window-without-effect" in result.codes) != effective
    assert (result.document["cache"]["window_bytes_per_sequence"] > 0) == effective
    assert result.serious == set()


@pytest.mark.parametrize(("model_type", "wrong"), [("llama", 0.0625), ("gemma", 1.0)])
def test_norm_weights_around_the_wrong_centre(make, inspect, configs, model_type: str, wrong: float) -> None:
    model = make(configs["sizes"] | {"model_type": model_type, "tie_word_embeddings": model_type == "gemma"})
    assert "norm-centre" not in inspect(model).codes
    for name in model.tensors:
        if "layernorm" in name:
            model.set_all(name, wrong)
    assert "norm-centre" in inspect(model).serious


@pytest.mark.parametrize(
    ("keys", "width", "origin"),
    [
        ({"model_type": "minimax_m2", "rotary_dim": 4, "num_local_experts": 4, "num_experts_per_tok": 2}, 4,
         "rotary_dim"),
        ({"model_type": "glm4", "partial_rotary_factor": 0.25}, 2, "partial_rotary_factor"),
        ({"model_type": "glm4", "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25}}, 2,
         "rope_parameters.partial_rotary_factor"),
        ({"model_type": "glm4"}, 4, "the family's default"),
    ],
)  # fmt: skip
def test_rotary_width_with_its_origin(make, inspect, configs, keys: dict[str, Any], width: int, origin: str) -> None:
    result = inspect(make(configs["sizes"] | keys))
    assert result.finding("rotation-partial")["message"] == f"{width} of 8 channels of a head turn, by {origin}"


def test_a_rotary_width_that_nothing_heeds(make, inspect) -> None:
    result = inspect(make(rotary_dim=4))
    assert "8 channels turn" in result.finding("rotary-width-differs")["message"]
    assert result.document["unused_config_keys"] == ["rotary_dim"]


@pytest.mark.parametrize("head", ["absent", "copy", "other"])
def test_a_head_beside_a_tied_table(make, inspect, head: str) -> None:
    model = make(tie_word_embeddings=True)
    if head != "absent":
        model.add("lm_head.weight", "BF16", 64, 32, fill=99)
    if head == "copy":
        model.tensors["lm_head.weight"] = model.tensors["model.embed_tokens.weight"]
    result = inspect(model)
    assert (result.status, result.serious) == ((1, {"tied-head-differs"}) if head == "other" else (0, set()))
    assert ("tied-head-stored" in result.codes) == (head != "absent")


@pytest.mark.parametrize(("tokens", "code"), [(50, "vocabulary-padded"), (67, "vocabulary-too-small"), (64, None)])
def test_rows_against_tokens(make, inspect, tokens: int, code: str | None) -> None:
    model = make()
    model.tokens(tokens)
    result = inspect(model)
    assert result.codes == ({code} if code else set())
    assert result.status == (1 if code == "vocabulary-too-small" else 0)
    if code:
        message = result.finding(code)["message"]
        assert all(
            number in message for number in ("vocab_size 64", "stored rows 64", f"{tokens} tokens", f"{tokens - 1}")
        )
