"""Small configs of every family around latent attention: tensors against transformers, names, counts, operators."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from latent_family_configs import CONFIGS, OTHER_PARTS

from day0.inventory import inventory_findings, operators_needed
from day0.profile.cache_sizes import cache_sizes
from day0.profile.parameters import count_parameters
from day0.profile.profile import ArchitectureProfile, SparseLatentAttention
from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors, expected_tensors
from day0.source.model_files import TensorHeader


def profile(files_of, architecture: str, **edits: Any) -> ArchitectureProfile:
    return read_profile(files_of(CONFIGS[architecture] | {"architectures": [architecture]} | edits))


@pytest.mark.parametrize("architecture", CONFIGS)
class TestEveryFamily:
    def test_tensors_are_those_of_transformers_under_the_names_it_reads(self, architecture, files_of) -> None:
        ours = _loaded(profile(files_of, architecture), architecture)
        theirs = _modelled(architecture)
        if architecture == "AXK1ForCausalLM":  # its releases have no bias, and transformers starts it at zero
            theirs = {name: shape for name, shape in theirs.items() if not name.endswith("e_score_correction_bias")}
        assert ours == theirs

    def test_names_are_given_once(self, architecture, files_of) -> None:
        names = [name for spec in expected_tensors(profile(files_of, architecture)) for name in spec.names()]
        assert len(names) == len(set(names))

    def test_a_checkpoint_of_it_is_sound_and_one_tensor_less_is_not(self, architecture, files_of) -> None:
        config = CONFIGS[architecture] | {"architectures": [architecture]}
        headers = {
            name: TensorHeader(spec.dtype, spec.shape, "model.safetensors", 0, 1)
            for spec in expected_tensors(read_profile(files_of(config)))
            for name in spec.names()
        }
        whole = files_of(config, tensors=headers)
        comparison = compare_tensors(read_profile(whole), whole)
        assert comparison.sound and not comparison.findings
        gone = next(name for name in headers if "kv" in name)
        rest = files_of(config, tensors={name: header for name, header in headers.items() if name != gone})
        assert compare_tensors(read_profile(rest), rest).missing == (gone,)

    def test_every_cut_falls_between_whole_units(self, architecture, files_of) -> None:
        for spec in expected_tensors(profile(files_of, architecture)):
            if spec.shard_axis is not None:
                assert spec.shape[spec.shard_axis] % spec.shard_units == 0, spec

    def test_products_of_the_inventory_are_matrices_of_the_layer(self, architecture, files_of) -> None:
        model = profile(files_of, architecture)
        stored = {(spec.layer, _place(spec)): spec.shape for spec in _matrices(model)}
        multiplied: set[tuple[int, str]] = set()
        for need in operators_needed(model):
            if need.name not in ("linear", "head_linear"):
                continue
            for place in need.used_for:
                # Needs of the same sizes are one, whatever layer and place they come from.
                shapes = {stored.get((layer, place)) for layer in need.layers} - {None}
                if need.name == "linear":
                    assert not shapes or (need.shapes["out_features"], need.shapes["in_features"]) in shapes, place
                multiplied |= {(layer, place.replace(".keys", "").replace(".values", "")) for layer in need.layers}
        inside_others = ("ffn.experts", "mixer_res", "ffn_res", "position_bias", "pool_bias", "router.table", "_conv")
        left = {(layer, place) for layer, place in stored if not any(part in place for part in inside_others)}
        assert left <= multiplied

    def test_no_part_is_left_out_of_the_inventory(self, architecture, files_of) -> None:
        left_out = [f.where for f in inventory_findings(profile(files_of, architecture))]
        assert [where for where in left_out if where.startswith(("mixer", "feed_forward"))] == []

    def test_every_key_is_read(self, architecture, files_of) -> None:
        assert profile(files_of, architecture).unused_config_keys == ()

    def test_an_unknown_key_is_reported(self, architecture, files_of) -> None:
        assert "quite_new" in profile(files_of, architecture, quite_new=1).unused_config_keys


def _place(spec) -> str:
    """The path relative to the layer, without what kind of parameter it is."""
    path = spec.path.split(".", 2)[2]
    return path.removesuffix(".weight")


def _matrices(model: ArchitectureProfile):
    return [spec for spec in expected_tensors(model) if spec.layer is not None and len(spec.shape) == 2]


def test_predictors_are_counted_beside_the_total(files_of) -> None:
    without = count_parameters(profile(files_of, "DeepseekV3ForCausalLM", num_nextn_predict_layers=0))
    with_two = count_parameters(profile(files_of, "DeepseekV3ForCausalLM", num_nextn_predict_layers=2))
    one = count_parameters(profile(files_of, "DeepseekV3ForCausalLM"))
    assert without.total == one.total == with_two.total
    layer = count_parameters(profile(files_of, "DeepseekV3ForCausalLM", num_hidden_layers=5)).total - one.total
    hidden = 64
    assert one.groups["mtp"] == layer + 2 * hidden * hidden + 3 * hidden
    assert with_two.groups["mtp"] == 2 * one.groups["mtp"]


def test_a_predictors_copies_of_shared_tables_are_noted_and_not_unexpected(files_of) -> None:
    config = CONFIGS["DeepseekV3ForCausalLM"]
    headers = {
        name: TensorHeader(spec.dtype, spec.shape, "model.safetensors", 0, 1)
        for spec in expected_tensors(read_profile(files_of(config)))
        for name in spec.names()
    }
    copies = {
        "model.layers.4.embed_tokens.weight": TensorHeader("BF16", (130, 64), "model.safetensors", 0, 1),
        "model.layers.4.shared_head.head.weight": TensorHeader("BF16", (130, 64), "model.safetensors", 0, 1),
    }
    files = files_of(config, tensors=headers | copies)
    comparison = compare_tensors(read_profile(files), files)
    assert comparison.unexpected == ()
    assert [finding.code for finding in comparison.findings] == ["tensor-not-read"]


def test_a_shared_indexer_has_no_tensors_and_no_keys(files_of) -> None:
    model = profile(files_of, "GlmMoeDsaForCausalLM")
    runs = [layer.mixer.indexer is not None for layer in model.layers if isinstance(layer.mixer, SparseLatentAttention)]
    assert runs == [True, True, False, True]
    assert {spec.layer for spec in expected_tensors(model) if spec.group == "indexer"} == {0, 1, 3}
    assert cache_sizes(model).index_bytes_per_token == 3 * 16 * 2


def test_windows_and_compressed_shares_are_counted_apart(files_of) -> None:
    sizes = cache_sizes(profile(files_of, "DeepseekV4ForCausalLM"))
    entry, key = 32 * 2, 16 * 2
    assert sizes.window_bytes_per_sequence == 4 * 16 * entry
    assert sizes.kv_bytes_per_token == 2 * entry // 4 + 1  # half a byte of the 128-fold layer is rounded up
    assert sizes.index_bytes_per_token == 2 * key // 4
    assert sizes.state_bytes_per_sequence == 0


def test_pooled_keys_and_linear_states_are_counted(files_of) -> None:
    sizes = cache_sizes(profile(files_of, "Glm5NextForConditionalGeneration"))
    assert sizes.kv_bytes_per_token == 20 * 2
    assert sizes.index_bytes_per_token == 16 * 2 // 4
    assert sizes.state_bytes_per_sequence == 3 * (5 * 8 * 8 * 4 + 3 * 40 * 3 * 2)


def test_words_that_families_share_are_told_apart_by_architecture(files_of) -> None:
    for architecture in ("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM"):
        known = profile(files_of, architecture)
        assert profile(files_of, architecture, model_type="deepseek_ref").family == known.family
    unsure = profile(files_of, "DeepseekV3ForCausalLM", model_type="deepseek_ref", architectures=[])
    assert "unknown-family" in {finding.code for finding in unsure.findings}


def _modelled(architecture: str) -> dict[str, tuple[int, ...]]:
    """Parameters and persistent buffers of transformers' model on the meta device, without other parts' towers."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(**json.loads(json.dumps(CONFIGS[architecture])))
    with torch.device("meta"):
        model = getattr(transformers, architecture)(config)
    towers = ("tower", "visual", "vision", "audio")
    state = model.state_dict().items()
    return {name: tuple(value.shape) for name, value in state if not any(tower in name for tower in towers)}


def _loaded(model: ArchitectureProfile, architecture: str) -> dict[str, tuple[int, ...]]:
    """Our tensors as transformers holds them: renamed by its own table of checkpoints, experts and parts joined."""
    shapes: dict[str, tuple[int, ...]] = {}
    renames = _renames(CONFIGS[architecture]["model_type"])
    for spec in expected_tensors(model):
        if spec.group in ("mtp", *OTHER_PARTS):
            continue
        name = spec.name.replace(".{expert}", "")
        for pattern, replacement in renames:
            name = re.sub(pattern, replacement, name)
        if architecture == "DeepseekV4ForCausalLM" and not name.startswith("lm_head"):
            name = f"model.{name}"
        if architecture == "Dots3NoteForConditionalGeneration":
            name = re.sub(r"^model\.", "model.language_model.", name)
        shapes[name] = (spec.experts, *spec.shape) if spec.experts else spec.shape
    _join(shapes, "mlp.experts", ("gate_proj.weight", "up_proj.weight"), "gate_up_proj", 1)
    _join(shapes, "mlp.experts", ("w1.weight", "w3.weight"), "gate_up_proj", 1)
    for old in ("down_proj.weight", "w2.weight"):
        _join(shapes, "mlp.experts", (old,), "down_proj", 1)
    _join(shapes, "self_attn", tuple(f"{axis}_conv1d.weight" for axis in "qkv"), "conv1d.weight", 0)
    return shapes


def _join(shapes: dict[str, tuple[int, ...]], module: str, parts: tuple[str, ...], whole: str, axis: int) -> None:
    first = f"{module}.{parts[0]}"
    for name in [name for name in shapes if name.endswith(first)]:
        prefix = name.removesuffix(parts[0])
        found = [shapes.pop(prefix + part) for part in parts]
        joined = list(found[0])
        joined[axis] = sum(shape[axis] for shape in found)
        shapes[prefix + whole] = tuple(joined)


def _renames(model_type: str) -> list[tuple[str, str]]:
    conversion = pytest.importorskip("transformers.conversion_mapping")
    loading = pytest.importorskip("transformers.core_model_loading")
    found = []
    for step in conversion.get_checkpoint_conversion_mapping(model_type) or []:
        if isinstance(step, loading.WeightRenaming):
            sources, targets = step.source_patterns, step.target_patterns
            pairs = zip(
                [sources] if isinstance(sources, str) else sources,
                [targets] if isinstance(targets, str) else targets,
                strict=True,
            )
            found += [(source, target.replace("\\.", ".")) for source, target in pairs]
    return found
