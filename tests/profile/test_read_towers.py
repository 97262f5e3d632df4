"""Towers as configs describe them: defaults, contradictions, placeholders, fit to the text model; and real configs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.qwen_vision import read_qwen3_tower
from day0.profile.families.table import FAMILIES
from day0.profile.parameters import count_parameters
from day0.profile.profile import ArchitectureProfile, AudioTower, VisionTower
from day0.profile.read import read_profile
from day0.profile.read_towers import read_towers
from day0.profile.tensors import compare_tensors
from day0.source.resolve import resolve

TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "vocab_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "head_dim": 16,
}
QWEN3: dict[str, Any] = {
    "model_type": "qwen3_vl",
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "image_token_id": 100,
    "video_token_id": 101,
    "text_config": TEXT | {"rope_scaling": {"rope_type": "default", "mrope_section": [4, 2, 2]}},
    "vision_config": {
        "depth": 4,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "out_hidden_size": 64,
        "patch_size": 8,
        "num_position_embeddings": 49,
        "deepstack_visual_indexes": [1, 3],
    },
}
QWEN2_5: dict[str, Any] = {
    "model_type": "qwen2_5_vl",
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    **TEXT,
    "vision_config": {"depth": 5, "hidden_size": 32, "num_heads": 2, "out_hidden_size": 64, "patch_size": 4}
    | {"window_size": 24, "fullatt_block_indexes": [1, 4]},
}


def tower(files_of, config: dict[str, Any], **edits: Any) -> VisionTower:
    section = {key: value for key, value in (config["vision_config"] | edits).items() if value is not None}
    vision = read_profile(files_of(config | {"vision_config": section})).vision
    assert isinstance(vision, VisionTower)
    return vision


class TestQwen:
    def test_sizes_positions_and_placeholders(self, files_of) -> None:
        vision = tower(files_of, QWEN3)
        assert (vision.kind, vision.num_layers, vision.hidden_size, vision.num_heads) == ("qwen3_vl", 4, 32, 2)
        assert (vision.patch_size, vision.temporal_patch_size, vision.merge) == (8, 2, (2, 2))
        assert vision.positions == ("grid", "rotary")
        assert vision.deepstack == (1, 3)
        assert dict(vision.placeholders) == {"image": 100, "video": 101}
        assert vision.placeholder_token_id == 100

    def test_count_by_hand(self, files_of) -> None:
        hidden, inner, out, joined = 32, 48, 64, 128
        block = 4 * hidden + 3 * hidden * hidden + 3 * hidden + hidden * hidden + hidden
        block += 2 * hidden * inner + inner + hidden
        merger = 2 * hidden + joined * joined + joined + joined * out + out
        deep = merger - 2 * hidden + 2 * joined
        patches = hidden * 3 * 2 * 8 * 8 + hidden
        counts = count_parameters(read_profile(files_of(QWEN3)))
        assert counts.groups["vision"] == patches + 49 * hidden + 4 * block + merger + 2 * deep
        assert counts.total - counts.active == counts.groups["vision"]

    def test_windows_of_whole_merged_patches_beside_full_blocks(self, files_of) -> None:
        vision = tower(files_of, QWEN2_5)
        windows = {
            block: part.window
            for stage in vision.stages
            for block in stage.blocks or ()
            for part in stage.parts
            if hasattr(part, "window")
        }
        assert windows == {0: 6, 1: None, 2: 6, 3: 6, 4: None}
        assert (vision.window, vision.full_blocks) == (24, (1, 4))
        assert vision.placeholders == ()

    def test_a_config_without_the_section_has_the_architectures_tower(self, files_of) -> None:
        config = {key: value for key, value in QWEN3.items() if key != "vision_config"}
        profile = read_profile(files_of(config))
        assert isinstance(profile.vision, VisionTower)
        assert (profile.vision.num_layers, profile.vision.hidden_size) == (27, 1152)
        assert "vision_config.depth" in profile.defaulted_config_keys
        codes = [finding.code for finding in profile.findings]
        assert codes == ["tower-width"]  # the default is made for another text model

    @pytest.mark.parametrize(
        ("edit", "where"),
        [
            ({"num_heads": 5}, "vision_config.num_heads"),
            ({"num_position_embeddings": 50}, "vision_config.num_position_embeddings"),
            ({"deepstack_visual_indexes": [1, 4]}, "vision_config.deepstack_visual_indexes"),
            ({"hidden_act": "swoosh"}, "vision_config.hidden_act"),
            ({"depth": 0}, "vision_config.depth"),
            ({"depth": 10**9}, "vision_config.depth"),
            ({"patch_size": [8, 9]}, "vision_config.patch_size"),
        ],
    )
    def test_contradictions_name_the_field(self, files_of, edit: dict[str, Any], where: str) -> None:
        with pytest.raises(InputError) as caught:
            tower(files_of, QWEN3, **edit)
        assert where in str(caught.value)

    def test_a_window_smaller_than_a_merged_patch_is_refused(self, files_of) -> None:
        with pytest.raises(InputError) as caught:
            tower(files_of, QWEN2_5, window_size=7)
        assert "vision_config.window_size" in str(caught.value)

    def test_equal_sides_are_one_length(self, files_of) -> None:
        assert tower(files_of, QWEN3, patch_size=[8, 8]).patch_size == 8

    def test_an_unknown_key_of_the_section_is_reported(self, files_of) -> None:
        section = QWEN3["vision_config"] | {"quite_new": 1}
        profile = read_profile(files_of(QWEN3 | {"vision_config": section}))
        assert profile.unused_config_keys == ("vision_config.quite_new",)


class TestFit:
    def test_a_projector_of_another_width_is_a_warning(self, files_of) -> None:
        section = QWEN3["vision_config"] | {"out_hidden_size": 60}
        (finding,) = read_profile(files_of(QWEN3 | {"vision_config": section})).findings
        assert (finding.code, finding.severity) == ("tower-width", "warning")
        assert "60" in finding.message and "64" in finding.message

    def test_a_tower_that_the_runtime_lacks_is_told_of(self) -> None:
        family = FAMILIES["qwen3_vl"]

        def unknown(top: ConfigReader) -> VisionTower:
            return replace(read_qwen3_tower(top), native=False)

        config = ConfigReader(QWEN3, "config.json")
        towers = read_towers(replace(family, read_vision=unknown), config, 64)
        assert [(f.code, f.severity) for f in towers.findings] == [("tower-not-native", "note")]
        towers = read_towers(family, config, 64)
        assert towers.findings == ()

    def test_text_alone_has_no_tower(self, files_of) -> None:
        config = TEXT | {"model_type": "qwen3_5_text", "head_dim": 16, "layer_types": ["full_attention"] * 2}
        assert read_profile(files_of(config)).vision is None


class TestHeaders:
    def test_files_without_the_tower_are_the_text_model(self, files_of, headers_of) -> None:
        headers = headers_of(read_profile(files_of(QWEN3)))
        text = {name: header for name, header in headers.items() if ".visual." not in name}
        files = files_of(QWEN3, tensors=text)
        comparison = compare_tensors(read_profile(files), files)
        assert comparison.missing == () and comparison.unexpected == ()
        assert [(f.code, f.severity) for f in comparison.findings] == [("tower-not-stored", "warning")]

    def test_a_tower_that_lacks_one_tensor_lacks_it(self, files_of, headers_of) -> None:
        headers = headers_of(read_profile(files_of(QWEN3)))
        gone = "model.visual.blocks.2.attn.qkv.weight"
        files = files_of(QWEN3, tensors={name: header for name, header in headers.items() if name != gone})
        assert compare_tensors(read_profile(files), files).missing == (gone,)


def test_an_optional_audio_tower_is_there_only_with_its_section(files_of) -> None:
    config = {
        "model_type": "gemma4",
        "architectures": ["Gemma4ForConditionalGeneration"],
        "audio_token_id": 99,
        "text_config": TEXT | {"global_head_dim": 16},
    }
    assert read_profile(files_of(config)).audio is None
    audio = read_profile(files_of(config | {"audio_config": {"num_hidden_layers": 3}})).audio
    assert isinstance(audio, AudioTower)
    assert (audio.num_layers, audio.hidden_size, audio.frames_per_token, audio.placeholder_token_id) == (3, 1024, 4, 99)


SHARED = Path(__file__).resolve().parents[3] / "shared" / "model_configs"
MISFILED = {"muse_spark"}
"""There the patch embedders of the audio tower are counted as vision: both groups are right in sum only."""


def _published() -> list[Path]:
    folders = sorted(path.parent for path in SHARED.glob("*/truth.json")) if SHARED.is_dir() else []
    truths = {folder: json.loads((folder / "truth.json").read_text()) for folder in folders}
    return [f for f, t in truths.items() if {"vision", "audio"} & set(t.get("params_by_group") or {})]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the corpus of published configs is not beside the repository")
@pytest.mark.parametrize("folder", _published(), ids=lambda folder: folder.name)
class TestPublishedConfigs:
    def test_parameters_of_the_towers(self, folder: Path) -> None:
        groups = json.loads((folder / "truth.json").read_text())["params_by_group"]
        counts = count_parameters(_read(folder)).groups
        kinds = ("vision", "audio")
        if _read(folder).family in MISFILED:
            assert sum(counts[kind] for kind in kinds) == sum(groups[kind] for kind in kinds)
        else:
            assert [counts[kind] for kind in kinds] == [groups.get(kind, 0) for kind in kinds]

    def test_every_key_is_read(self, folder: Path) -> None:
        assert _read(folder).unused_config_keys == ()

    def test_placeholders_are_those_of_the_config(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        named = {
            config[key]
            for key in ("image_token_id", "image_token_index", "media_placeholder_token_id")
            if key in config
        }
        vision = _read(folder).vision
        assert vision is not None
        assert named in ({vision.placeholder_token_id}, set())


def _read(folder: Path) -> ArchitectureProfile:
    return read_profile(resolve(str(folder / "config.json")))
