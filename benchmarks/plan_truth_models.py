"""Finding the config of a model by its name alone: its own, a recipe's, or one of the same series and size."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.data_files import list_data, load_yaml
from day0.source.model_files import ModelFiles
from day0.source.resolve import resolve

_PACKINGS = ("nvfp4", "mxfp4", "fp8", "awq", "int4", "fp4", "w4a16")
_CHOSEN = ("nvfp4", "awq", "int4", "fp4", "w4a16")
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
    """Configs under a folder of `org--name/config.json`, and those of the packaged recipes."""

    def __init__(self, folder: Path) -> None:
        paths = sorted(folder.glob("*/config.json"))
        self._configs: dict[str, Mapping[str, Any]] = {
            path.parent.name.replace("--", "/"): json.loads(path.read_text()) for path in paths
        }
        for path in list_data("recipes/models", ".yaml"):
            launch = load_yaml(path).get("launch", {})
            for name in (launch.get("model"), *launch.get("also", ())):
                if name:
                    self._configs.setdefault(name, resolve(f"recipe:{path.stem}").config)

    def find(self, name: str) -> Found:
        inner = re.search(r"\(([^)]+/[^)]+)\)", name)
        if inner is not None:  # "a packing of (org/base)"
            return self._kin(inner.group(1), _packing(name), publisher=None)
        if name in self._configs:
            return Found(_read(name, self._configs[name]), "own")
        return self._kin(name, _packing(name), name.partition("/")[0])

    def _kin(self, name: str, packing: str | None, publisher: str | None) -> Found:
        """A config of the same series, without its minor version if need be, packed as the name says."""
        series = [
            [known for known in self._configs if _series(known, loose) == _series(name, loose)]
            for loose in (False, True)
        ]
        for kin in series:
            same = [known for known in kin if _packing(known) == packing and _same_choice(known, packing, publisher)]
            if same:
                config = self._configs[same[-1]]
                # ModelOpt's releases say how they are packed in a file beside, which is not at hand
                unsaid = packing == "fp8" and "quantization_config" not in config
                return Found(_read(name, _packed_fp8(config, name) if unsaid else config), "kin")
        for kin in series:
            if not kin:
                continue
            plain = [known for known in kin if _packing(known) is None]
            config = self._configs[(plain or kin)[-1]]
            if packing == "fp8" and "quantization_config" not in config:
                return Found(_read(name, _packed_fp8(config, name)), "kin")
            return Found(_read(name, config), "shape")
        raise NoConfig(f"no config of {name} or of its series")


def _same_choice(known: str, packing: str | None, publisher: str | None) -> bool:
    """Whether two releases of a packing have the same weights packed: who packs to 4 bits chooses what to leave out."""
    return packing not in _CHOSEN or known.partition("/")[0] == publisher


def _read(name: str, config: Mapping[str, Any]) -> ArchitectureProfile:
    return read_profile(ModelFiles(name, None, "config", Path("."), dict(config), "config.json", None, (), (), {}))


def _packing(name: str) -> str | None:
    return next((word for word in _PACKINGS if word in name.lower()), None)


def _series(name: str, loose: bool) -> tuple[str, ...]:
    """What names a model's shape: its series, version and size; a `loose` version has no minor part."""
    words = re.split(r"[-_ ]+", name.rpartition("/")[2].lower())
    kept = [word for word in words if word not in _SAYS_NOTHING and not re.fullmatch(r"\d{4}", word)]
    return tuple(re.sub(r"(\d)\.\d+$", r"\1", word) if loose else word for word in kept)


def _packed_fp8(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The config with the usual section of an FP8 release, by rows where the name says "dynamic", else by blocks."""
    packed = copy.deepcopy(dict(config))
    packed["quantization_config"] = dict(_FP8_ROWS if "dynamic" in name.lower() else _FP8_BLOCKS)
    return packed
