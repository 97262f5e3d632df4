"""Lists of modules in quantisation sections: names, wildcards and regular expressions, matched as engines do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from day0.errors import InputError

_EXPRESSION = "re:"
_FUSED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj"} | dict.fromkeys(
    ("gate_proj", "up_proj"), "gate_up_proj"
)
_PARTS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
_EXPERT = re.compile(r"(?<=experts)\.\d+")
_MAX_LENGTH = 1000
_MAX_OPEN = 8
"""Repetitions without end in one expression: more could take for ever on a long name."""
_OPEN = re.compile(r"(?<!\\)(?:[*+]|\{\d+,\})")
_NESTED = re.compile(r"\([^()]*(?:[*+]|\{\d+,\})[^()]*\)(?:[*+]|\{)")


@dataclass(frozen=True, slots=True)
class ModulePatterns:
    """Entries of one list. `names` are those without wildcards; `expressions` has the others, compiled,
    and `together` is any of these."""

    entries: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    expressions: tuple[tuple[str, re.Pattern[str]], ...] = ()
    together: re.Pattern[str] | None = None

    def cover(self, modules: Iterable[str]) -> bool:
        """Whether an entry names one of the modules or something that they are inside of.

        A name covers what has it as a run of whole components: "mlp.gate" is in "layers.0.mlp.gate" and not in
        "layers.0.mlp.gate_proj".
        """
        return any(
            not self.names.isdisjoint(_runs(spelled)) or (self.together is not None and self.together.match(spelled))
            for module in modules
            for spelled in _spellings(module)
        )

    def idle(self, modules: Iterable[str]) -> tuple[str, ...]:
        """Entries that cover none of the modules, as the list spells them."""
        spelled = {spelling for module in modules for spelling in _spellings(module)}
        hit = {run for module in spelled for run in _runs(module) if run in self.names} if self.names else set()
        hit |= {entry for entry, expression in self.expressions if any(map(expression.match, spelled))}
        return tuple(entry for entry in self.entries if not hit.intersection(_likely(entry)))


def read_patterns(entries: Sequence[object], where: str) -> ModulePatterns:
    """The patterns of a list in a config; raises InputError for what is no list of patterns."""
    if not isinstance(entries, list | tuple) or any(not isinstance(entry, str) for entry in entries):
        raise InputError("must be a list of module names", where=where)
    names: set[str] = set()
    expressions: list[tuple[str, re.Pattern[str]]] = []
    words = [entry for entry in entries if isinstance(entry, str)]
    for entry in words:
        if entry.startswith(_EXPRESSION):
            expressions.append((entry, _compile(entry.removeprefix(_EXPRESSION), where)))
        elif "\\" in entry or any(mark in entry for mark in "()[]|^$+"):
            expressions.append((entry, _compile(entry, where)))
        elif any(mark in entry for mark in "*?"):
            # A wildcard that ends before the module's name does covers all below it.
            expressions.append((entry, _compile(rf"{_glob(entry)}(?:\..*)?$", where)))
        else:
            names.update((entry, *_short(entry)))
            inner = entry.removeprefix("model.")
            if inner != entry and "." not in inner:  # a name so short means what stands at the top
                expressions.append((entry, _compile(rf"{re.escape(inner)}(?:\..*)?$", where)))
    joined = "|".join(f"(?:{expression.pattern})" for _, expression in expressions)
    together = re.compile(joined) if expressions else None
    return ModulePatterns(tuple(words), frozenset(names), tuple(expressions), together)


def _glob(entry: str) -> str:
    """A wildcard as an expression without its end."""
    marks = {"*": ".*", "?": "."}
    return "".join(marks.get(mark, re.escape(mark)) for mark in re.sub(r"\*+", "*", entry))


def _short(entry: str) -> tuple[str, ...]:
    """The entry without the outer prefix that some checkpoints leave out; layers keep it, a predictor has such too."""
    inner = entry.removeprefix("model.")
    return (inner,) if inner != entry and not inner.startswith("layers.") and "." in inner else ()


def _likely(entry: str) -> tuple[str, ...]:
    """How a hit on an entry may be spelled: as it is, shortened, and as the first expert, who stands for the others."""
    first = _EXPERT.sub(".0", entry)
    return (entry, first, *_short(entry))


def _spellings(module: str) -> Iterator[str]:
    """The module, and how it is called where projections are written as one or as several."""
    yield module
    stem, _, leaf = module.rpartition(".")
    if leaf in _FUSED:
        yield f"{stem}.{_FUSED[leaf]}"
    for part in _PARTS.get(leaf, ()):
        yield f"{stem}.{part}"


def _runs(module: str) -> Iterator[str]:
    """Every run of whole components, but none that begins inside a predictor: its layers are numbered anew."""
    parts = module.split(".")
    for start in range(len(parts)):
        if start and parts[start - 1] == "mtp":
            return
        for end in range(start + 1, len(parts) + 1):
            yield ".".join(parts[start:end])


def _compile(expression: str, where: str) -> re.Pattern[str]:
    """The expression; what could run for ever on a stranger's word is refused."""
    if len(expression) > _MAX_LENGTH or _NESTED.search(expression) or len(_OPEN.findall(expression)) > _MAX_OPEN:
        raise InputError(f"the expression {expression[:60]!r} repeats too much to be tried", where=where)
    try:
        return re.compile(expression)
    except re.error as error:
        raise InputError(f"{expression[:60]!r} is no regular expression: {error}", where=where) from error
