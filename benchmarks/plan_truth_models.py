"""Finding the config of a model by its name alone: its own, a recipe's, or one of the same series and size."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.data_files import list_data, load_yaml
from day0.source.model_files import ModelFiles
from day0.source.resolve import resolve

_PACKINGS = ("nvfp4", "mxfp4", "fp8", "awq", "int4", "fp4", "w4a16")
_SAYS_NOTHING = {
    *_PACKINGS,
    *("instruct", "it", "chat", "thinking", "exp", "code", "mtp", "meta", "dynamic", "4bit", "dflash", "with"),
    *("experts", "bf16", "base", "static", "pertensor", "preview"),
}
_FP8_BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
_FP8_ROWS = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False},
        }
    },
}


class NoConfig(Exception):
    """No config of the model or of its kin is at hand."""


class Models:
    """Configs under a folder of `org--name/config.json`, and the packaged recipes."""

    def __init__(self, folder: Path) -> None:
        self._paths = {path.parent.name.replace("--", "/"): path for path in sorted(folder.glob("*/config.json"))}
        self._recipes = {
            load_yaml(path).get("launch", {}).get("model"): path.stem for path in list_data("recipes/models", ".yaml")
        }

    def profile(self, name: str) -> tuple[ArchitectureProfile, bool]:
        """The profile of a model, and whether its config is only a relative's."""
        inner = re.search(r"\(([^)]+/[^)]+)\)", name)
        words = name if inner is None else f"{name.split('(')[0]} {inner.group(1)}"
        for known in (name, inner.group(1) if inner else name):
            if known in self._paths and (inner is None or not _packing(name.split("(")[0])):
                return _read(known, json.loads(self._paths[known].read_text())), False
            if known in self._recipes and inner is None:
                return read_profile(resolve(f"recipe:{self._recipes[known]}")), False
        return self._kin(inner.group(1) if inner else name, _packing(words)), True

    def _kin(self, name: str, packing: str | None) -> ArchitectureProfile:
        """A config of the same series, without its minor version if need be, packed as the name says."""
        for loose in (False, True):
            kin = [known for known in self._paths if _series(known, loose) == _series(name, loose)]
            if kin:
                same = [known for known in kin if _packing(known) == packing]
                chosen = (same or [known for known in kin if _packing(known) is None] or kin)[-1]
                config = json.loads(self._paths[chosen].read_text())
                return _read(name, _packed(config, packing, name))
        raise NoConfig(f"no config of {name} or of its series")


def _read(name: str, config: dict[str, Any]) -> ArchitectureProfile:
    return read_profile(ModelFiles(name, None, "config", Path("."), config, "config.json", None, (), (), {}))


def _packing(name: str) -> str | None:
    return next((word for word in _PACKINGS if word in name.lower()), None)


def _series(name: str, loose: bool) -> tuple[str, ...]:
    """What names a model's shape: its series, version and size; a `loose` version has no minor part."""
    words = re.split(r"[-_ ]+", name.rpartition("/")[2].lower())
    kept = [word for word in words if word not in _SAYS_NOTHING and not re.fullmatch(r"\d{4}", word)]
    return tuple(re.sub(r"(\d)\.\d+$", r"\1", word) if loose else word for word in kept)


def _packed(config: dict[str, Any], packing: str | None, name: str) -> dict[str, Any]:
    """The config with the packing that a name announces, where its usual section is known."""
    if packing is None or "quantization_config" in config:
        return config
    if packing != "fp8":
        raise NoConfig(f"no section known for {packing} of {name}")
    packed = copy.deepcopy(config)
    packed["quantization_config"] = dict(_FP8_ROWS if "dynamic" in name.lower() else _FP8_BLOCKS)
    return packed
