"""Why an engine did not start or ended, read from its log: signatures of known failures, each with the next step."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

LINES_KEPT = 400
"""The end of a log that is searched; a traceback of several processes is some 200 lines."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A failure by its name, what lines show it, what it is in our words, and what to do.

    Groups of the pattern may be named in `message` and `hint`.
    """

    name: str
    pattern: re.Pattern[str]
    message: str
    hint: str


def _signature(name: str, pattern: str, message: str, hint: str) -> Signature:
    return Signature(name, re.compile(pattern), message, hint)


SIGNATURES: tuple[Signature, ...] = (
    _signature(
        "unknown flag",
        r"[Ee]rror: (unrecognized arguments?:|No such option:?|ambiguous option:) *(?P<what>.+)",
        "it does not take {what}",
        "`day0 plan --engine-version` plans for what is installed; see recipes/engines for flags that were renamed",
    ),
    _signature(
        "unknown value",
        r"error: argument (?P<what>\S+): (?P<why>invalid choice: \S+|.*invalid .* value.*)",
        "{what}: {why}",
        "the engine's --help lists what this version takes",
    ),
    _signature(
        "unknown parser",
        r"invalid (?P<what>(tool call|reasoning) parser: \S+)",
        "it has no {what}",
        "--tool-call-parser and --reasoning-parser take the engine's own names",
    ),
    _signature(
        "unknown architecture",
        r"[Mm]odel architectures (?P<what>\[.*?\]) are not supported",
        "this version does not know the architecture {what}",
        "a newer version of the engine, `--engine transformers`, or `--engine day0`",
    ),
    _signature(
        "unknown architecture",
        r"has model type [`'](?P<what>[^`']+)[`'] but Transformers does not recognize",
        "the transformers beside it does not know the model type {what}",
        "install a newer transformers into the engine's environment, or `--engine day0`",
    ),
    _signature(
        "port in use",
        r"(Address already in use|address already in use)",
        "its port is in use",
        "choose another with --port, or stop what listens there",
    ),
    _signature(
        "no room for the cache",
        r"No available memory for the cache blocks|larger than the available KV cache memory"
        r"|Not enough memory\. Please try to increase --mem-fraction-static",
        "after the weights there is no room for the cache of one sequence",
        "a smaller --max-model-len, a larger --mem-fraction, or more ranks (`day0 plan` says how many)",
    ),
    _signature(
        "memory of others",
        r"Free memory on device \S+ \((?P<free>[^)]+)\) on startup is less than desired",
        "only {free} GiB of the device are free when it starts: others use it",
        "end them, or a smaller --mem-fraction",
    ),
    _signature(
        "out of memory",
        r"OutOfMemoryError|out of memory|DefaultCPUAllocator: can't allocate|MemoryError|Cannot allocate memory",
        "it ran out of memory",
        "a smaller --max-model-len, --max-num-seqs or --mem-fraction, or more ranks (`day0 plan` says how many)",
    ),
    _signature(
        "missing package",
        r"ModuleNotFoundError: No module named '(?P<what>[^']+)'",
        "its environment lacks the package {what}",
        "install {what} for the engine's interpreter (--engine-python says which that is)",
    ),
    _signature(
        "missing package",
        r"requires [`'](?P<what>[\w-]+)[`']\. You can install it|(?P<other>[\w-]+) is not installed\. Please install",
        "its environment lacks the package {what}{other}",
        "install {what}{other} for the engine's interpreter (--engine-python says which that is)",
    ),
    _signature(
        "no chat template",
        r"default chat template is no longer allowed|does not define a chat template|chat_template is not set"
        r"|chat template.*(not found|does not exist|No such file)",
        "the model has no chat template",
        "--engine-arg=--chat-template=FILE; without one only /v1/completions answers",
    ),
    _signature(
        "missing files",
        r"(does not appear to have (a file named|any files named) (?P<what>[\w.]+)"
        r"|Cannot find any model weights with (?P<other>\S+))",
        "the model lacks files: {what}{other}",
        "`day0 pull MODEL --weights` fetches and checks them",
    ),
    _signature(
        "remote code",
        r"trust_remote_code=True|--trust-remote-code",
        "the model wants code of its own repository to run",
        "read that code; then --trust-remote-code",
    ),
)
"""From the most telling to the least: a log may show several, since one failure brings others."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a log shows: a failure's name, what it is, what to do, and the line that shows it."""

    name: str
    message: str
    hint: str
    line: str


@dataclass(slots=True)
class LogEnd:
    """The last lines of a log, as they come in."""

    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES_KEPT))

    def explain(self) -> Explanation | None:
        return explain(self.lines)


def explain(lines: Iterable[str]) -> Explanation | None:
    """The first signature of the table that the lines show; None where they show none."""
    kept = list(lines)
    for signature in SIGNATURES:
        for line in kept:
            if found := signature.pattern.search(line):
                words = {name: (value or "").strip() for name, value in found.groupdict().items()}
                message, hint = signature.message.format(**words), signature.hint.format(**words)
                return Explanation(signature.name, message, hint, line.strip())
    return None


def last_error(lines: Iterable[str]) -> str | None:
    """The last line that names an exception, with the line below it where that is a part of it (pydantic's are); for a
    failure that no signature knows."""
    kept = list(lines)
    named = [place for place, line in enumerate(kept) if re.search(r"\b\w+(Error|Exception|Interrupt)\b: ", line)]
    if not named:
        return None
    below = kept[named[-1] + 1 : named[-1] + 2]
    return " ".join(line.strip() for line in (kept[named[-1]], *(line for line in below if line[:1] == " ")))
