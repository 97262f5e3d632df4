from __future__ import annotations

from math import prod

import msgspec
import pytest

from day0.errors import CannotSay, InputError
from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors, expected_tensors

RECIPES = ("llama-3.1-8b", "qwen3-0.6b", "mixtral-8x7b", "qwen3-30b-a3b", "kimi-k3")
Q_PROJ = "model.layers.7.self_attn.q_proj.weight"
A_LOG = "language_model.model.layers.0.self_attn.A_log"


def by_name(profile) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: (spec.shape, spec.dtype) for spec in expected_tensors(profile) for name in spec.names()}


@pytest.mark.parametrize(
    ("recipe", "count", "size"),
    [
        ("llama-3.1-8b", 291, 2 * 8_030_261_248),
        ("qwen3-0.6b", 310, 2 * 596_049_920),
        ("mixtral-8x7b", 995, 2 * 46_702_792_704),
        ("qwen3-30b-a3b", 18_867, 2 * 30_532_122_624),
        ("kimi-k3", 497_220, 1_560_860_324_864),
    ],
)
def test_tensors_and_bytes_of_the_released_checkpoints(profile_of, recipe: str, count: int, size: int) -> None:
    specs = expected_tensors(profile_of(recipe))
    assert sum(spec.count for spec in specs) == count
    assert sum(spec.nbytes for spec in specs) == size


@pytest.mark.parametrize("recipe", RECIPES)
def test_names_and_paths_are_distinct(profile_of, recipe: str) -> None:
    specs = expected_tensors(profile_of(recipe))
    names = [name for spec in specs for name in spec.names()]
    assert len(set(names)) == len(names) == sum(spec.count for spec in specs)
    assert len({spec.path for spec in specs}) == len(specs)
    assert not any("{" in name for name in names)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_tensor_can_be_cut_where_it_says(profile_of, recipe: str) -> None:
    for spec in expected_tensors(profile_of(recipe)):
        if spec.shard_axis is not None:
            assert spec.shape[spec.shard_axis] % spec.shard_units == 0, spec.path


def test_llama_names_and_shapes(profile_of) -> None:
    found = by_name(profile_of("llama-3.1-8b"))
    assert found["model.embed_tokens.weight"] == ((128256, 4096), "BF16")
    assert found[Q_PROJ] == ((4096, 4096), "BF16")
    assert found["model.layers.31.self_attn.v_proj.weight"] == ((1024, 4096), "BF16")
    assert found["model.layers.0.mlp.down_proj.weight"] == ((4096, 14336), "BF16")
    assert found["lm_head.weight"] == ((128256, 4096), "BF16")
    assert "model.layers.32.input_layernorm.weight" not in found


def test_biases_norms_and_heads_come_with_their_switches(profile_of) -> None:
    plain, biased = (by_name(profile_of("llama-3.1-8b", **edits)) for edits in ({}, {"attention_bias": True}))
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in biased.keys() - plain.keys()} == {
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
    }
    assert "lm_head.weight" not in by_name(profile_of("llama-3.1-8b", tie_word_embeddings=True))
    assert by_name(profile_of("qwen3-0.6b"))["model.layers.0.self_attn.k_norm.weight"] == ((128,), "BF16")


def test_expert_names(profile_of) -> None:
    mixtral = by_name(profile_of("mixtral-8x7b"))
    for ours, shape in (("w1", (14336, 4096)), ("w3", (14336, 4096)), ("w2", (4096, 14336))):
        assert mixtral[f"model.layers.31.block_sparse_moe.experts.7.{ours}.weight"] == (shape, "BF16")
    qwen = by_name(profile_of("qwen3-30b-a3b"))
    assert qwen["model.layers.47.mlp.experts.127.down_proj.weight"] == ((2048, 768), "BF16")


def test_kimi_names_shapes_and_dtypes(profile_of) -> None:
    found = by_name(profile_of("kimi-k3"))
    layer = "language_model.model.layers"
    assert found[A_LOG] == ((128,), "F32"), "an entry per channel of a head is stored, 96 are live"
    assert found[f"{layer}.0.self_attn.q_conv1d.weight"] == ((12288, 1, 4), "F32")
    assert found[f"{layer}.0.self_attn.g_proj.weight"] == ((12288, 7168), "BF16")
    assert found[f"{layer}.3.self_attn.kv_a_proj_with_mqa.weight"] == ((576, 7168), "BF16")
    assert found[f"{layer}.92.self_attn.kv_b_proj.weight"] == ((96 * 256, 512), "BF16")
    experts = f"{layer}.92.block_sparse_moe.experts.895"
    assert found[f"{experts}.w1.weight_packed"] == ((3072, 1792), "U8")
    assert found[f"{experts}.w2.weight_scale"] == ((3584, 96), "U8")
    assert found[f"{layer}.1.block_sparse_moe.gate.e_score_correction_bias"] == ((896,), "F32")
    assert found[f"{layer}.0.mlp_res_proj.weight"] == ((1, 7168), "BF16")
    assert f"{layer}.0.block_sparse_moe.gate.weight" not in found
    assert found["vision_tower.encoder.blocks.26.wqkv.weight"] == ((4608, 1024), "BF16")


def test_low_rank_gate_and_plain_query(profile_of) -> None:
    edits = {"text_config__linear_attn_config__use_full_rank_gate": False, "text_config__q_lora_rank": None}
    found = by_name(profile_of("kimi-k3", **edits))
    layer = "language_model.model.layers"
    assert found[f"{layer}.0.self_attn.g_a_proj.weight"] == ((128, 7168), "BF16")
    assert found[f"{layer}.0.self_attn.g_b_proj.weight"] == ((12288, 128), "BF16")
    assert f"{layer}.0.self_attn.g_proj.weight" not in found


def test_experts_that_do_not_split_into_groups_are_refused(profile_of) -> None:
    with pytest.raises(InputError, match="rows of 3080 values do not split into groups of 32"):
        expected_tensors(profile_of("kimi-k3", text_config__moe_intermediate_size=3080))


def test_an_unknown_family_has_no_expectations(files_of) -> None:
    profile = read_profile(files_of({"model_type": "novel"}))
    with pytest.raises(CannotSay, match="'novel'"):
        expected_tensors(profile)


# Comparison with headers.


@pytest.fixture
def compare(config_of, files_of, profile_of, headers_of):
    """`compare(recipe, **changes)`: the right headers, some replaced (None takes one out)."""

    def run(recipe: str, changes: dict, **edits):
        profile = profile_of(recipe, **edits)
        headers = headers_of(profile)
        for name, change in changes.items():
            if change is None:
                del headers[name]
            elif name in headers:
                headers[name] = msgspec.structs.replace(headers[name], **change)
            else:
                headers[name] = msgspec.structs.replace(next(iter(headers.values())), **change)
        return compare_tensors(profile, files_of(config_of(recipe, **edits), tensors=headers))

    return run


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_right_headers_are_sound(compare, recipe: str) -> None:
    found = compare(recipe, {})
    assert (found.missing, found.unexpected, found.findings, found.sound) == ((), (), (), True)


def test_missing_and_unexpected_are_sorted_names(compare) -> None:
    found = compare("llama-3.1-8b", {Q_PROJ: None, "lm_head.weight": None, "zebra": {}, "ant": {}})
    assert found.missing == ("lm_head.weight", Q_PROJ)
    assert found.unexpected == ("ant", "zebra")
    assert not found.sound


def test_a_missing_expert_is_missed(compare) -> None:
    name = "model.layers.3.mlp.experts.77.up_proj.weight"
    assert compare("qwen3-30b-a3b", {name: None}).missing == (name,)


@pytest.mark.parametrize("shape", [(4096, 4095), (4096,), (1, 4096, 4096), (2048, 8192)])
def test_a_wrong_shape_is_an_error_with_both_shapes(compare, shape: tuple[int, ...]) -> None:
    found = compare("llama-3.1-8b", {Q_PROJ: {"shape": shape}})
    (finding,) = found.findings
    assert (finding.code, finding.severity) == ("tensor-shape", "error")
    assert finding.where == f"model.safetensors: {Q_PROJ}"
    assert str(list(shape)) in finding.message
    assert "[4096, 4096]" in finding.message
    assert not found.sound


def test_one_finding_for_a_shape_in_all_layers_and_experts(compare, profile_of, headers_of) -> None:
    names = [name for name in headers_of(profile_of("qwen3-30b-a3b")) if name.endswith("up_proj.weight")]
    changed = {name: {"shape": (2048, 768)} for name in names} | {"model.norm.weight": {"shape": (7,)}}
    experts, norm = compare("qwen3-30b-a3b", changed).findings
    assert experts.where == f"model.safetensors: {names[0]} and {len(names) - 1:,} more"
    assert norm.where == "model.safetensors: model.norm.weight"


@pytest.mark.parametrize(
    ("dtype", "severity"),
    [
        ("F32", "warning"),
        ("F16", "warning"),
        ("F64", "warning"),
        ("F8_E4M3", "error"),
        ("U8", "error"),
        ("I64", "error"),
    ],
)
def test_another_dtype_warns_or_fails_by_whether_it_can_be_read(compare, dtype: str, severity: str) -> None:
    (finding,) = compare("llama-3.1-8b", {Q_PROJ: {"dtype": dtype}}).findings
    assert (finding.code, finding.severity) == ("tensor-dtype", severity)
    assert f"stored as {dtype}, expected BF16" in finding.message


def test_one_finding_for_all_tensors_of_a_dtype(compare, profile_of, headers_of) -> None:
    names = headers_of(profile_of("llama-3.1-8b"))
    (finding,) = compare("llama-3.1-8b", {name: {"dtype": "F16"} for name in names}).findings
    assert finding.where.endswith(f"and {len(names) - 1} more")


@pytest.mark.parametrize(("length", "sound"), [(96, True), (97, True), (128, True), (512, True), (95, False)])
def test_a_padded_tensor_holds_at_least_its_live_part(compare, length: int, sound: bool) -> None:
    few_experts = {"text_config__num_experts": 16}
    assert compare("kimi-k3", {A_LOG: {"shape": (length,)}}, **few_experts).sound == sound


def test_a_head_stored_beside_tied_embeddings_is_a_note(compare) -> None:
    head = {"lm_head.weight": {"shape": (151936, 1024)}}
    found = compare("qwen3-0.6b", head)
    assert [(finding.code, finding.severity) for finding in found.findings] == [("tied-head-stored", "note")]
    assert (found.unexpected, found.sound) == ((), True)
    untied = compare("llama-3.1-8b", {"lm_head.weight": None})
    assert untied.missing == ("lm_head.weight",), "untied embeddings need their head"


def test_without_headers_nothing_can_be_said(config_of, files_of, profile_of) -> None:
    with pytest.raises(CannotSay, match="no tensor headers"):
        compare_tensors(profile_of("llama-3.1-8b"), files_of(config_of("llama-3.1-8b")))


@pytest.mark.parametrize("recipe", RECIPES)
def test_counts_and_bytes_of_a_spec_are_of_all_its_experts(profile_of, recipe: str) -> None:
    for spec in expected_tensors(profile_of(recipe)):
        bits = {"BF16": 16, "F32": 32, "U8": 8}[spec.dtype]
        assert spec.nbytes == spec.count * prod(spec.shape) * bits // 8
        assert spec.total_parameters == spec.count * spec.parameters
