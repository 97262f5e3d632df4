"""The plain torch reference of an operator, cut out of the library of references with all it calls."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

LIBRARY = Path(__file__).parent / "templates" / "references"


@dataclass(frozen=True, slots=True)
class _Piece:
    """One function or constant at the top of a module; `imports` are statements by the name that they bind."""

    name: str
    source: str
    uses: frozenset[str]
    imports: dict[str, str]


class References:
    """All pieces of the library by name, read once."""

    def __init__(self, library: Path = LIBRARY) -> None:
        self._pieces: dict[str, _Piece] = {}
        for path in sorted(library.glob("*.py")):
            for piece in _pieces(path.read_text("utf-8")):
                assert piece.name not in self._pieces, f"{path}: {piece.name} is there twice"
                self._pieces[piece.name] = piece

    def __contains__(self, operator: str) -> bool:
        return operator in self._pieces

    def source(self, operator: str) -> str:
        """A module's text without a docstring: imports, what the reference calls, the reference itself."""
        order: dict[str, None] = {}
        self._gather(operator, order)
        pieces = [self._pieces[name] for name in order]
        lines = {line for piece in pieces for name, line in piece.imports.items() if name in piece.uses}
        plain = sorted(line for line in lines if "torch" not in line)
        torch_lines = sorted((line for line in lines if "torch" in line), key=lambda line: (line[0] != "i", line))
        head = "\n\n".join("\n".join(group) for group in (plain, torch_lines) if group)
        constants = [piece.source for piece in pieces if not piece.source.startswith("def ")]
        functions = [piece.source for piece in pieces if piece.source.startswith("def ")]
        top = "\n\n".join(part for part in (head, "\n".join(constants)) if part)
        return "\n\n\n".join([*([top] if top else []), *functions]) + "\n"

    def _gather(self, name: str, order: dict[str, None]) -> None:
        """What is called comes before what calls it."""
        for used in sorted(self._pieces[name].uses):
            if used in self._pieces and used != name and used not in order:
                self._gather(used, order)
        order[name] = None


def _pieces(text: str) -> list[_Piece]:
    tree = ast.parse(text)
    imports: dict[str, str] = {}
    pieces = []
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            if not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("day0.")):
                imports |= {alias.asname or alias.name: ast.unparse(node) for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.Assign):
            name = node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node.targets[0])
            # A name that the function binds itself is none of the library's, whatever it is called there.
            bound = _bound(node) if isinstance(node, ast.FunctionDef) else set()
            uses = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} - bound
            pieces.append(_Piece(name, ast.get_source_segment(text, node) or "", frozenset(uses), imports))
    return pieces


def _bound(function: ast.FunctionDef) -> set[str]:
    arguments = {part.arg for part in ast.walk(function) if isinstance(part, ast.arg)}
    stored = {p.id for p in ast.walk(function) if isinstance(p, ast.Name) and isinstance(p.ctx, ast.Store)}
    return arguments | stored
