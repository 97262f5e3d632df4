"""Finding the config of a model by its name alone: its own, a recipe's, or one of the same series and size."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

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


@dataclass(frozen=True, slots=True)
class Found:
    """A profile and how it was found: the model's "own", a "kin" of the same packing, or a kin of its "shape" alone,
    whose weights say nothing of the model's."""

    profile: ArchitectureProfile
    how: Literal["own", "kin", "shape"]


class Models:
    """Configs under a folder of `org--name/config.json`, and the packaged recipes."""

    def __init__(self, folder: Path) -> None:
        self._paths = {path.parent.name.replace("--", "/"): path for path in sorted(folder.glob("*/config.json"))}
        self._recipes: dict[str, str] = {}
        for path in list_data("recipes/models", ".yaml"):
            launch = load_yaml(path).get("launch", {})
            self._recipes |= {name: path.stem for name in (launch.get("model"), *launch.get("also", ())) if name}

    def find(self, name: str) -> Found:
        inner = re.search(r"\(([^)]+/[^)]+)\)", name)
        if inner is not None:  # "a packing of (org/base)"
            return self._kin(inner.group(1), _packing(name))
        if name in self._paths:
            return Found(_read(name, json.loads(self._paths[name].read_text())), "own")
        if name in self._recipes:
            return Found(read_profile(resolve(f"recipe:{self._recipes[name]}")), "own")
        return self._kin(name, _packing(name))

    def _kin(self, name: str, packing: str | None) -> Found:
        """A config of the same series, without its minor version if need be, packed as the name says."""
        for loose in (False, True):
            kin = [known for known in self._paths if _series(known, loose) == _series(name, loose)]
            if not kin:
                continue
            same = [known for known in kin if _packing(known) == packing]
            plain = [known for known in kin if _packing(known) is None]
            config = json.loads(self._paths[(same or plain or kin)[-1]].read_text())
            sections = "quantization_config" in config
            if packing == "fp8" and not sections:
                config, same = _packed_fp8(config, name), same or kin
            # A name without a packing word may still be of a packed release; then its kin is one as well.
            return Found(_read(name, config), "kin" if same else "shape")
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


def _packed_fp8(config: dict[str, Any], name: str) -> dict[str, Any]:
    """The config with the usual section of an FP8 release, by rows where the name says "dynamic", else by blocks."""
    packed = copy.deepcopy(config)
    packed["quantization_config"] = dict(_FP8_ROWS if "dynamic" in name.lower() else _FP8_BLOCKS)
    return packed
