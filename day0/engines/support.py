"""What an installed engine knows, asked in its own interpreter: architectures and parsers; no model's code runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from day0.engines.installed import PARSE_SECONDS
from day0.errors import EnvironmentFault, InputError

_VLLM = """
from vllm.model_executor.models.registry import ModelRegistry
known = sorted(ModelRegistry.get_supported_archs())
def names(manager, field):
    listed = getattr(manager, "list_registered", None)
    return sorted(listed() if listed is not None else getattr(manager, field))
try:
    from vllm.tool_parsers import ToolParserManager
except ImportError:
    from vllm.entrypoints.openai.tool_parsers import ToolParserManager
from vllm.reasoning import ReasoningParserManager
tools = names(ToolParserManager, "tool_parsers")
reasoning = names(ReasoningParserManager, "reasoning_parsers")
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
types = sorted(CONFIG_MAPPING_NAMES)
"""

_SGLANG = """
import ast, importlib.util, pathlib
root = pathlib.Path(importlib.util.find_spec("sglang").origin).parent / "srt"
def assigned(path, name):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            yield node.value
known = set()
for path in (root / "models").rglob("*.py"):
    for value in assigned(path, "EntryClass"):
        known |= {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
known = sorted(known)
def names(path, name):
    path = root / path
    if not path.is_file():
        return None
    values = [ast.literal_eval(value) for value in assigned(path, name)]
    return sorted(values[0]) if values else None
tools = names("function_call/parser_names.py", "TOOL_CALL_PARSER_NAMES")
reasoning = names("parser/reasoning_parser_names.py", "REASONING_PARSER_NAMES")
types = None
"""

_TRANSFORMERS = """
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
known = set()
for name, mapping in vars(modeling_auto).items():
    if name.endswith("MAPPING_NAMES"):
        for value in mapping.values():
            known |= {value} if isinstance(value, str) else set(value)
known = sorted(known)
tools = reasoning = None
types = sorted(CONFIG_MAPPING_NAMES)
"""

PROGRAMS: Mapping[str, str] = {"vllm": _VLLM, "sglang": _SGLANG, "transformers": _TRANSFORMERS}
"""Each sets `known` (architectures), `tools`, `reasoning` (names of parsers) and `types` (model types of the
transformers beside the engine, which it falls back on); None is what it does not tell."""


@dataclass(frozen=True, slots=True)
class Support:
    """What an engine knows; None is what it does not tell. `fault` says why it could not be asked at all."""

    architectures: tuple[str, ...] | None = None
    tool_parsers: tuple[str, ...] | None = None
    reasoning_parsers: tuple[str, ...] | None = None
    model_types: tuple[str, ...] | None = None
    fault: str = ""


def ask_support(engine: str, python: str) -> Support:
    """Ask the engine that an interpreter has, in a process of its own."""
    program = f"{PROGRAMS[engine]}\nimport json\nprint(json.dumps([known, tools, reasoning, types]))\n"
    try:
        done = subprocess.run(
            [python, "-c", program],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PARSE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Support(fault=f"it did not answer within {PARSE_SECONDS} s")
    said = [line for line in done.stdout.splitlines() if line.strip()]
    try:
        answers = json.loads(said[-1]) if done.returncode == 0 and said else None
    except ValueError:
        answers = None
    if not isinstance(answers, list) or len(answers) != 4:
        errors = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        return Support(fault=errors[-1] if errors else f"it ended with status {done.returncode}")
    known, tools, reasoning, types = (None if names is None else tuple(names) for names in answers)
    return Support(known, tools, reasoning, types)


def remarks(
    support: Support,
    engine: str,
    architectures: Sequence[str],
    model_type: str | None,
    tool_parser: str | None = None,
    reasoning_parser: str | None = None,
) -> tuple[str, ...]:
    """What is weaker or could not be asked, for the log; nothing where the engine knows all that it is to run.

    Raises EnvironmentFault where the engine does not know the architecture, and InputError for a parser it has not.
    """
    if support.fault:
        return (f"what {engine} supports could not be asked: {support.fault}",)
    _check_parser(engine, "--tool-call-parser", tool_parser, support.tool_parsers)
    _check_parser(engine, "--reasoning-parser", reasoning_parser, support.reasoning_parsers)
    if support.architectures is None or not architectures or set(architectures) & set(support.architectures):
        return ()
    names = ", ".join(architectures)
    if engine != "transformers" and support.model_types is not None and model_type in support.model_types:
        return (f"{engine} has no {names} of its own and runs the definition of the transformers beside it: slower",)
    raise EnvironmentFault(
        f"the {engine} installed here does not know {names}",
        where=f"--engine {engine}",
        hint="a newer version in --engine-python, or `--engine day0`",
    )


def _check_parser(engine: str, option: str, name: str | None, known: Sequence[str] | None) -> None:
    if name in (None, "none") or known is None or name in known:
        return
    close = get_close_matches(str(name), known, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"
    raise InputError(f"the {engine} installed here has no parser {name!r}", where=option, hint=hint)
