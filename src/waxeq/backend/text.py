"""A module as text: what each of its top-level names is made of, without comments, docstrings and line breaks."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import resolve_name
from operator import attrgetter
from typing import Any

from waxeq.collecting import uncollected

Import = tuple[str, str | None]
"""Of which module, and what of it: a name, or (None) the module itself."""
_Writer = Callable[[Any, "_Met"], str]


@dataclass(frozen=True)
class Text:
    """What each top-level name of a module is made of, which others of these and of what is imported that uses, and
    what is imported, by the name it has in the module."""

    made: dict[str, str]
    uses: dict[str, list[str]]
    imported: dict[str, Import]


def text_of(source: str | bytes, package: str) -> Text:
    """The text of a module of `package`. Raises SyntaxError."""
    made: dict[str, str] = {}
    uses: dict[str, set[str]] = {}
    imported: dict[str, Import] = {}
    with uncollected():
        for node in ast.parse(source).body:
            if _alone(node):
                continue
            met = _Met()
            text = _WRITERS[type(node)](node, met)
            for i in met.imports:
                imported.update(_imports(i, package))
            for name in _targets(node, met):  # a name bound twice is made of both
                made[name] = made.get(name, "") + text
                uses.setdefault(name, set()).update(met.names)
    known = made.keys() | imported.keys()
    return Text(made, {n: sorted(names & known) for n, names in uses.items()}, imported)


def _alone(node: object) -> bool:
    """Whether this is a string that stands alone: a docstring, or what describes a constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@dataclass
class _Met:
    """What is met on the way through a statement."""

    names: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)


class _Writers(dict[type, "_Writer"]):
    """How nodes, lists of nodes and plain values are written, by type: as `ast.dump` does, without strings that stand
    alone. What can be known of a type is found out once."""

    def __missing__(self, kind: type) -> _Writer:
        self[kind] = write = _node(kind) if issubclass(kind, ast.AST) else lambda value, met: repr(value)
        return write


def _node(kind: type[ast.AST]) -> _Writer:
    """How nodes of a type are written: with all fields but those that are None where they need not be there."""
    title, names = kind.__name__, kind._fields
    optional = {n for n in names if getattr(kind, n, ...) is None}
    if not names:
        return lambda node, met: f"{title}()"
    if not optional and len(names) > 1:
        pattern, values = f"{title}({', '.join(f'{n}=%s' for n in names)})", attrgetter(*names)
        return lambda node, met: pattern % tuple([_WRITERS[type(v)](v, met) for v in values(node)])

    def write(node: ast.AST, met: _Met) -> str:
        fields = [(n, v) for n in names if (v := getattr(node, n)) is not None or n not in optional]
        return f"{title}({', '.join([f'{n}={_WRITERS[type(v)](v, met)}' for n, v in fields])})"

    return write


def _noted(kind: type[ast.AST], note: Callable[[Any, _Met], object]) -> _Writer:
    plain = _node(kind)

    def write(node: ast.AST, met: _Met) -> str:
        note(node, met)
        return plain(node, met)

    return write


def _several(nodes: list, met: _Met) -> str:
    return f"[{', '.join([text for n in nodes if (text := _WRITERS[type(n)](n, met))])}]" if nodes else "[]"


def _name(node: ast.Name, met: _Met) -> str:
    met.names.add(node.id)
    if type(node.ctx) is ast.Load:
        return f"Name(id={node.id!r}, ctx=Load())"
    if type(node.ctx) is ast.Store:
        met.bound.add(node.id)
    return f"Name(id={node.id!r}, ctx={type(node.ctx).__name__}())"


def _constant(node: ast.Constant, met: _Met) -> str:
    return f"Constant(value={node.value!r}{'' if node.kind is None else f', kind={node.kind!r}'})"


def _expression(node: ast.Expr, met: _Met) -> str:
    """Nothing of a string that stands alone: `_several` leaves it out."""
    return "" if _alone(node) else f"Expr(value={_WRITERS[type(node.value)](node.value, met)})"


_WRITERS = _Writers(
    {
        list: _several,
        ast.Name: _name,
        ast.Constant: _constant,
        ast.Expr: _expression,
        ast.FunctionDef: _noted(ast.FunctionDef, lambda node, met: met.made.add(node.name)),
        ast.ClassDef: _noted(ast.ClassDef, lambda node, met: met.made.add(node.name)),
        ast.Import: _noted(ast.Import, lambda node, met: met.imports.append(node)),
        ast.ImportFrom: _noted(ast.ImportFrom, lambda node, met: met.imports.append(node)),
    }
)


def _targets(node: ast.AST, met: _Met) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return met.bound | met.made


def _imports(node: ast.Import | ast.ImportFrom, package: str) -> dict[str, Import]:
    if isinstance(node, ast.Import):
        return {a.asname or _top(a.name): (a.name if a.asname else _top(a.name), None) for a in node.names}
    source = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
    return {a.asname or a.name: (source, a.name) for a in node.names}


def _top(module: str) -> str:
    return module.partition(".")[0]
