"""YAML, and the data files that come with day0 (whitelist, checklists, recipes), from a wheel or a checkout.

Scalars follow the core schema of YAML 1.2: `1e-5` is a number, and `no`, `12:30` and `2026-09-01` are text.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

try:  # libyaml, where PyYAML was built with it, is ten times faster
    from yaml import CSafeLoader as SafeLoader
except ImportError:
    from yaml import SafeLoader  # type: ignore[assignment]

from day0.errors import EnvironmentFault, InputError

# In a wheel the data lies inside the package (pyproject.toml puts it there); in a checkout, beside it.
_PACKAGE = Path(__file__).resolve().parent.parent
MAX_YAML_CHARACTERS = 16_000_000
_ODD_LINE_ENDS = "\r\x85\u2028\u2029"
_MERGE = "tag:yaml.org,2002:merge"


def data_path(*parts: str) -> Path:
    """The path of a packaged file or folder, e.g. `data_path("recipes", "models")`."""
    for root in (_PACKAGE / "data", _PACKAGE.parent):
        path = root.joinpath(*parts)
        if path.exists():
            return path
    raise EnvironmentFault(
        "this file should have come with day0 and is not there",
        where="/".join(parts),
        hint="install day0 again",
    )


def list_data(folder: str, suffix: str) -> list[Path]:
    """The packaged files of `folder` ("recipes/clusters") that end with `suffix`, sorted by name."""
    return sorted(path for path in data_path(*folder.split("/")).iterdir() if path.name.endswith(suffix))


def load_yaml(path: Path) -> Any:
    """Load one YAML document. Which keys it may hold is the caller's to check."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_YAML_CHARACTERS + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text (byte {error.start})", where=str(path)) from None
    if len(text) > MAX_YAML_CHARACTERS:
        raise InputError(f"has more than {MAX_YAML_CHARACTERS:,} characters, which nobody wrote", where=str(path))
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise InputError(f"not valid YAML: {error.problem or error.context}", where=where) from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"not valid YAML: {' '.join(str(error).split())}", where=str(path)) from None
    except RecursionError:
        raise InputError("not usable YAML: nested too deeply", where=str(path)) from None


class OneLine(dict[str, Any]):
    """A mapping that `dump_table` writes on one line, with what is in it."""


def dump_table(document: Any) -> str:
    """One YAML document whose rows are one line each: lists of plain values, and what is an `OneLine`."""
    return yaml.dump(document, Dumper=_TableDumper, sort_keys=False, width=10_000, default_flow_style=None)


def dump_yaml(document: Any) -> str:
    """One YAML document in block style, keys in the order given, that `load_yaml` reads back as it was."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Safe dumping without anchors, and with text of several lines as it is."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = '"' if any(char in text for char in _ODD_LINE_ENDS) else "|" if "\n" in text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


class _TableDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


_TableDumper.add_representer(
    OneLine, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True)
)


class _Loader(SafeLoader):
    """Safe loading with the scalars of YAML 1.2, where a key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            if key.value in seen:
                problem = f"key {key.value!r} is given twice, first on line {seen[key.value]}"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep)


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    value = loader.construct_scalar(node)
    return int(value, 0) if value[:2] in ("0x", "0o") else int(value)


def _construct_float(loader: _Loader, node: yaml.ScalarNode) -> float:
    return float(loader.construct_scalar(node).replace(".inf", "inf").replace(".nan", "nan"))


def _resolve(kind: str, pattern: str, first: list[str]) -> None:
    # The dumper keeps the rules of YAML 1.1 beside these, and so quotes what readers of either version would convert.
    for user in (_Loader, _Dumper):
        user.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{pattern})\Z"), first)


_Loader.yaml_implicit_resolvers = {}  # without the ones of YAML 1.1
_resolve("null", r"~|null|Null|NULL|", ["~", "n", "N", ""])
_resolve("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF"))
_resolve("int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+", list("-+0123456789"))
_resolve("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789"))
_resolve("float", r"[-+]?\.inf|\.nan", list("-+."))
_resolve("merge", r"<<", ["<"])
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
