"""Published configs of families around latent attention against numbers computed elsewhere: counts, layers, cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from latent_family_configs import CONFIGS, OTHER_PARTS

from day0.profile.cache_sizes import cache_sizes
from day0.profile.parameters import count_parameters
from day0.profile.read import read_profile
from day0.source.resolve import resolve

SHARED = Path(__file__).resolve().parents[3] / "shared" / "model_configs"
_TYPES = {config["model_type"] for config in CONFIGS.values()} | {
    "kimi_k2",
    "kimi_k25",
    "joyai_llm_flash",
    "deepseek_ref",
}


def _published() -> list[Path]:
    folders = sorted(folder.parent for folder in SHARED.glob("*/config.json")) if SHARED.is_dir() else []
    return [f for f in folders if json.loads((f / "config.json").read_text()).get("model_type") in _TYPES]


_KINDS = {
    "indexed_attention": "dsa",
    "sliding_attention": "window",
    "compressed_sparse_attention": "csa",
    "heavily_compressed_attention": "hca",
    "linear_attention": "kda",
}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the corpus of published configs is not beside the repository")
@pytest.mark.parametrize("folder", _published(), ids=lambda folder: folder.name)
class TestPublishedConfigs:
    def test_parameters_by_group_and_active_ones(self, folder: Path) -> None:
        truth, model = json.loads((folder / "truth.json").read_text()), read_profile(resolve(str(folder)))
        counts = count_parameters(model)
        groups = truth["params_by_group"]
        for group in counts.groups.keys() - {"mtp", *OTHER_PARTS}:
            # transformers keeps the routers' biases as buffers and does not count them
            assert counts.groups[group] == pytest.approx(groups.get(group, 0), rel=5e-4), group
        text = counts.total - sum(counts.groups[part] for part in OTHER_PARTS)
        assert text == pytest.approx(truth["total_params_text_only"], rel=1e-6)
        assert counts.active == pytest.approx(truth["active_params_per_token"], rel=1e-4)
        if truth["mtp"]:
            measured = truth.get("checkpoint", {}).get("mtp_params")
            assert counts.groups["mtp"] == pytest.approx(measured or truth["mtp"]["estimated_params"], rel=3e-3)

    def test_kinds_of_layers(self, folder: Path) -> None:
        truth, model = json.loads((folder / "truth.json").read_text()), read_profile(resolve(str(folder)))
        kinds: dict[str, int] = {}
        for layer in model.layers:
            kind = "window" if getattr(layer.mixer, "window", None) else layer.mixer.kind
            kinds[kind] = kinds.get(kind, 0) + 1
        if truth["layer_types"]:
            assert kinds == {_KINDS[word]: count for word, count in truth["layer_types"].items()}
        else:
            assert kinds == {"mla": truth["num_layers"]}
        routed = sum(layer.feed_forward.kind == "moe" for layer in model.layers)
        assert routed == (truth["experts"] or {"moe_layers": 0})["moe_layers"]

    def test_cache(self, folder: Path) -> None:
        truth = json.loads((folder / "truth.json").read_text())
        sizes = cache_sizes(read_profile(resolve(str(folder))))
        planes = truth["kv_cache_per_token"]
        tokens = [p["layers"] * p["elems"] for p in planes if "window" not in p]
        shares = [p["layers"] * p.get("compressed_elems_per_token", 0) for p in planes]
        assert sizes.kv_bytes_per_token == 2 * (sum(tokens) + sum(shares))
        assert sizes.window_bytes_per_sequence == 2 * sum(
            p["layers"] * p["elems"] * p["window"] for p in planes if "window" in p
        )
        assert sizes.index_bytes_per_token == 2 * sum(
            p["layers"] * p.get("indexer_key_elems_per_token", p.get("indexer_key_elems", 0) / p.get("indexer_pool", 1))
            for p in planes
        )
        assert sizes.state_bytes_per_sequence == sum(
            state["layers"] * (4 * part["recurrent"] + 2 * part["conv_dim"] * (part["conv_kernel"] - 1))
            for state in truth["linear_state"]
            for part in state["parts"]
        )
