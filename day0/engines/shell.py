"""Command lines as shell text, with the variables of a launch left for the shell to fill in."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def shell_line(words: Sequence[str]) -> str:
    """One command, a flag and its value to a line; words with a variable are double-quoted so that it is expanded."""
    pieces: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            pieces.append([])
        pieces[-1].append(quote(word))
    return " \\\n  ".join(" ".join(piece) for piece in pieces if piece)


def quote(word: str) -> str:
    """Quote for the shell. A `$` in our own command lines only ever starts a variable of the launch."""
    return f'"{word}"' if "$" in word else shlex.quote(word)
