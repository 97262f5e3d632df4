"""Change a module one small step at a time and see which changes no test notices:
`python scripts/mutate.py day0/checklist/acceptance.py tests/checklist/test_acceptance.py`."""

from __future__ import annotations

import ast
import copy
import importlib.abc
import importlib.machinery
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import ModuleType

SECONDS = 60
"""A mutant that takes longer runs for ever: noticed."""
OTHER_COMPARISON = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OTHER_OPERATION = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Other nodes that could stand here, each with its kind. Texts stay: what a message says is not a judgement."""
    other = copy.deepcopy(node)
    if isinstance(other, ast.Compare) and type(other.ops[0]) in OTHER_COMPARISON:
        other.ops[0] = OTHER_COMPARISON[type(other.ops[0])]()
        yield "comparison", other
    elif isinstance(other, ast.BinOp) and type(other.op) in OTHER_OPERATION:
        other.op = OTHER_OPERATION[type(other.op)]()
        yield "arithmetic", other
    elif isinstance(other, ast.BoolOp):
        other.op = ast.Or() if isinstance(other.op, ast.And) else ast.And()
        yield "and/or", other
    elif isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.Not):
        yield "not", other.operand
    elif isinstance(other, ast.IfExp):
        other.body, other.orelse = other.orelse, other.body
        yield "choice", other
    elif isinstance(other, ast.Constant) and isinstance(other.value, bool):
        yield "constant", ast.Constant(not other.value)
    elif isinstance(other, ast.Constant) and isinstance(other.value, int | float):
        yield "constant", ast.Constant(other.value + 1)
    elif isinstance(other, ast.Return) and other.value is not None:
        other.value = ast.Constant(None)
        yield "return", other


def mutants(source: str) -> Iterator[tuple[int, str, ast.Module]]:
    """(line, kind, tree) of every change; docstrings, annotations, decorators and asserts stay as they are."""
    tree = ast.parse(source)
    for path in list(_places(tree, ())):
        for kind, other in changes(_at(tree, path)):
            changed = copy.deepcopy(tree)
            holder, (name, index) = _at(changed, path[:-1]), path[-1]
            if index is None:
                setattr(holder, name, other)
            else:
                getattr(holder, name)[index] = other
            yield getattr(_at(tree, path), "lineno", 0), kind, ast.fix_missing_locations(changed)


Step = tuple[str, int | None]


def _places(node: ast.AST, path: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(value, ast.Assert):
            continue
        entries = [(None, value)] if isinstance(value, ast.AST) else []
        entries = list(enumerate(value)) if isinstance(value, list) else entries
        for index, entry in entries:
            docstring = isinstance(entry, ast.Expr) and isinstance(entry.value, ast.Constant)
            if isinstance(entry, ast.AST) and not docstring and not isinstance(entry, ast.Assert | ast.JoinedStr):
                yield (*path, (name, index))
                yield from _places(entry, (*path, (name, index)))


def _at(node: ast.AST, path: tuple[Step, ...]) -> ast.AST:
    for name, index in path:
        node = getattr(node, name) if index is None else getattr(node, name)[index]
    return node


class Exchanged(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed tree."""

    def __init__(self, name: str, tree: ast.Module, path: str) -> None:
        self.name, self.tree, self.path = name, tree, path

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin=self.path)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.tree, self.path, "exec"), module.__dict__)


def noticed(module: str, tree: ast.Module, path: str, tests: list[str]) -> bool:
    """Whether a test fails with the changed module; each in a process of its own, so that nothing stays behind."""
    child = os.fork()
    if child == 0:
        import pytest

        signal.alarm(SECONDS)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        sys.meta_path.insert(0, Exchanged(module, tree, path))
        os._exit(int(pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests])))
    return os.waitpid(child, 0)[1] != 0


def main(file: str, tests: list[str]) -> None:
    import hypothesis
    import numpy
    import pytest
    import torch

    loaded = (hypothesis, numpy, pytest, torch)  # once, before the processes part
    assert all(name.__name__ in sys.modules for name in loaded)
    module = ".".join(PurePosixPath(file).with_suffix("").parts)
    source = Path(file).read_text()
    assert not noticed(module, ast.parse(source), file, tests), "the tests fail without any change"
    changed, tried, survivors = list(mutants(source)), 0, 0
    try:
        for line, kind, tree in changed:
            seen = noticed(module, tree, file, tests)
            tried += 1
            if not seen:
                survivors += 1
                print(f"{file}:{line}: {kind} | {source.splitlines()[line - 1].strip()}", flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    print(f"{file}: {tried - survivors} of {tried} changes noticed, of {len(changed)} in all", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
