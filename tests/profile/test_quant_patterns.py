"""Lists of modules, in the spellings that publishers use."""

from __future__ import annotations

import pytest

from day0.errors import InputError
from day0.profile.packing_patterns import ModulePatterns, read_patterns

GATE = "model.layers.11.mlp.gate_proj"


def covers(entry: str, module: str) -> bool:
    return read_patterns([entry], "config.json").cover((module,))


@pytest.mark.parametrize(
    ("entry", "module"),
    [
        ("lm_head", "lm_head"),
        ("lm_head", "language_model.lm_head"),
        ("gate", "model.layers.3.block_sparse_moe.gate"),
        ("model.layers.11", GATE),
        ("model.layers.11.mlp", GATE),
        ("layers.11.mlp.gate_proj", GATE),
        ("model.layers.11.mlp.gate_up_proj", GATE),
        ("model.layers.11.self_attn.qkv_proj", "model.layers.11.self_attn.k_proj"),
        ("model.layers.11.self_attn.k_proj", "model.layers.11.self_attn.qkv_proj"),
        ("model.layers.*.mlp", GATE),
        ("*.mlp.*", GATE),
        ("model.layers.11*", GATE),
        ("re:.*mlp\\.(gate|up|gate_up|down)_proj.*", GATE),
        ("re:model", GATE),
        ("model\\.layers\\.(10|11)\\.", GATE),
        ("model.vision_tower", "vision_tower.blocks.0.attn.qkv"),
        ("model.layers.1.mlp.experts", "model.layers.1.mlp.experts.0.gate_proj"),
        ("mtp*", "mtp.layers.0.mlp.gate_proj"),
    ],
)
def test_an_entry_covers(entry: str, module: str) -> None:
    assert covers(entry, module)


@pytest.mark.parametrize(
    ("entry", "module"),
    [
        ("gate", GATE),
        ("model.layers.1", GATE),
        ("model.layers.1.*", GATE),
        ("head", "lm_head"),
        ("re:layers", GATE),
        ("*.mlp", "model.layers.11.mlp_norm"),
        ("layers.0.mlp", "mtp.layers.0.mlp.gate_proj"),
        ("model.layers.0.mlp", "mtp.layers.0.mlp.gate_proj"),
        ("", GATE),
        ("*.gate?", GATE),
    ],
)
def test_an_entry_does_not_cover(entry: str, module: str) -> None:
    assert not covers(entry, module)


def test_an_empty_list_covers_nothing() -> None:
    assert not ModulePatterns().cover((GATE,))
    assert not read_patterns([], "").cover((GATE, ""))


def test_entries_that_hit_nothing_are_told_as_they_are_spelled() -> None:
    entries = [
        "lm_head",
        "model.layers.11.mlp",
        "re:.*nowhere.*",
        "*.vision.*",
        "model.vision_tower",
        "mlp.gate_up_proj",
    ]
    assert read_patterns(entries, "").idle([GATE, "lm_head"]) == ("re:.*nowhere.*", "*.vision.*", "model.vision_tower")


def test_the_first_expert_stands_for_the_others() -> None:
    entries = [f"model.layers.1.mlp.experts.{expert}.up_proj" for expert in range(4)]
    assert read_patterns(entries, "").idle(["model.layers.1.mlp.experts.0.up_proj"]) == ()


@pytest.mark.parametrize(
    "entry",
    ["re:(a+)+$", "re:(.*a){20}b", "re:" + ".*" * 9, "re:(", "re:[z-a]", "re:" + "a" * 2000, "(x*)*"],
)
def test_an_expression_that_is_broken_or_could_run_for_ever_is_refused(entry: str) -> None:
    with pytest.raises(InputError) as caught:
        read_patterns([entry], "config.json: quantization_config.ignore")
    assert caught.value.where == "config.json: quantization_config.ignore"


@pytest.mark.parametrize("entries", ["lm_head", {"a": 1}, [1], [None], 7])
def test_what_is_no_list_of_names_is_refused(entries: object) -> None:
    with pytest.raises(InputError, match="must be a list of module names"):
        read_patterns(entries, "here")  # type: ignore[arg-type]


def test_long_lists_are_matched() -> None:
    entries = [f"model.layers.{n}.self_attn*" for n in range(400)] + [f"model.layers.{n}.mlp.gate" for n in range(400)]
    patterns = read_patterns(entries, "")
    assert sum(patterns.cover((f"model.layers.{n}.self_attn.q_proj",)) for n in range(2000)) == 400
