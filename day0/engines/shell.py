"""Command lines as shell text, with the variables of a launch left for the shell to fill in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_VARIABLE = re.compile(r"\$\{HEAD_ADDRESS\}(:\d+)?|\$\{NODE_RANK\}|\$\(\(NODE_RANK \* \d+\)\)")
"""The words that a launch leaves open; any other `$`, in a model's name say, stays text."""


def shell_line(words: Sequence[str]) -> str:
    """One command, a flag and its value to a line; open words are double-quoted, so that the shell fills them in."""
    pieces: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            pieces.append([])
        pieces[-1].append(f'"{word}"' if is_open(word) else shlex.quote(word))
    return " \\\n  ".join(" ".join(piece) for piece in pieces if piece)


def is_open(word: str) -> bool:
    """Whether a word of a command line is a variable of the launch."""
    return _VARIABLE.fullmatch(word) is not None
