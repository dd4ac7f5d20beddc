"""What a kernel's own text is: a hash that no comment, docstring or line break changes, and every other edit does.

The text is the class, its bases, and all that they use of the package they come from (functions, classes, constants),
followed from name to name. Other packages are not followed, for versions of NumPy and the like are part of the device,
but for those that say of themselves, by `KERNEL_TEXT = True`, that they are there to make the text of kernels.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import resolve_name
from types import CodeType, ModuleType


@lru_cache(maxsize=1024)
def code_hash(kind: type) -> str:
    """Sixteen hexadecimal digits of the text of a class. For a class made while running (by `type(...)`), its plain
    attributes and the text of its bases; where no source is to be had, the bytecode of its methods."""
    seen: dict[tuple[str, str], str] = {}
    made: list[str] = []
    home = next((_package(k.__module__) for k in kind.__mro__ if _written(k)), _package(kind.__module__))
    for k in kind.__mro__:
        if _written(k) and _package(k.__module__) == home:
            _follow(k.__module__, k.__name__, seen)
        elif not seen or _package(k.__module__) == home:
            made.append(repr((k.__name__, sorted(_attributes(k)))))
    text = "\n".join((*made, *(f"{m}:{n}:{t}" for (m, n), t in sorted(seen.items()))))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _written(kind: type) -> bool:
    """Whether the text of a class is in its module. What `type(...)` makes is not, and claims modules at random."""
    unit = _unit(kind.__module__)
    return unit is not None and kind.__name__ in unit.defined


def _package(module: str) -> str:
    return module.partition(".")[0]


def _attributes(kind: type) -> Iterator[tuple[str, str]]:
    for name, v in vars(kind).items():
        if name.startswith("__"):
            continue
        code = getattr(v, "__code__", None)
        if code is not None:
            yield name, _bytecode(code, v.__doc__)
        elif _plain(v):
            yield name, repr(v)


def _bytecode(code: CodeType, doc: str | None = None) -> str:
    parts = (_bytecode(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts if doc is None or c != doc)
    return f"{code.co_code.hex()} {code.co_names} {' '.join(parts)}"


def _plain(v: object) -> bool:
    """Whether a value prints the same in every process."""
    return all(map(_plain, v)) if isinstance(v, tuple) else isinstance(v, str | int | float | None)


@dataclass(frozen=True)
class _Unit:
    """A module as text: what each top-level name is made of, which names that uses, and what it imports."""

    defined: dict[str, str]
    uses: dict[str, frozenset[str]]
    imported: dict[str, tuple[str, str | None]]


def _unit(module: str) -> _Unit | None:
    m = sys.modules.get(module)
    return None if m is None else _read(m)


@lru_cache(maxsize=256)
def _read(module: ModuleType) -> _Unit | None:
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return None
    defined: dict[str, str] = {}
    uses: dict[str, frozenset[str]] = {}
    imported: dict[str, tuple[str, str | None]] = {}
    for node in tree.body:
        if _alone(node):
            continue
        bare = _Bare()
        text, names = bare.text(node), frozenset(bare.names)
        for i in bare.imports:
            imported.update(_imports(i, module))
        for name in _targets(node, bare):  # a name bound twice is made of both
            defined[name] = defined.get(name, "") + text
            uses[name] = uses.get(name, frozenset()) | names
    return _Unit(defined, uses, imported)


def _alone(node: object) -> bool:
    """Whether this is a string that stands alone: a docstring, or what describes a constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


class _Bare:
    """The text of a statement without strings that stand alone, as `ast.dump` writes it, and what is met on the way, in
    one walk: it is taken of all sources of a backend whenever a process begins."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.bound: set[str] = set()
        self.made: set[str] = set()
        self.imports: list[ast.Import | ast.ImportFrom] = []

    def text(self, node: object) -> str:
        if isinstance(node, list):
            return f"[{', '.join(self.text(n) for n in node if not _alone(n))}]"
        if not isinstance(node, ast.AST):
            return repr(node)
        kind = type(node)
        self._note(node)
        parts = []
        for name in kind._fields:
            value = getattr(node, name, None)
            if value is not None or getattr(kind, name, ...) is not None:
                parts.append(f"{name}={self.text(value)}")
        return f"{kind.__name__}({', '.join(parts)})"

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            self.names.add(node.id)
            if isinstance(node.ctx, ast.Store):
                self.bound.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            self.made.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.imports.append(node)


def _targets(node: ast.AST, bare: _Bare) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return bare.bound | bare.made


def _imports(node: ast.Import | ast.ImportFrom, module: ModuleType) -> dict[str, tuple[str, str | None]]:
    if isinstance(node, ast.Import):
        return {a.asname or _package(a.name): (a.name if a.asname else _package(a.name), None) for a in node.names}
    package = module.__package__ or module.__name__.rpartition(".")[0]
    source = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
    return {a.asname or a.name: (source, a.name) for a in node.names}


def _follow(module: str, name: str, seen: dict[tuple[str, str], str]) -> None:
    """Collect the text of a name and of every name it uses, in modules of one package."""
    waiting = [(module, name)]
    while waiting:
        at, name = waiting.pop()
        unit = _unit(at)
        if unit is None or (at, name) in seen:
            continue
        if name in unit.defined:
            seen[at, name] = unit.defined[name]
            waiting += [(at, n) for n in unit.uses[name]]
        elif name in unit.imported:
            source, what = unit.imported[name]
            if _package(source) == _package(module) or _makes_kernels(source):
                waiting += _reached(source, what)


def _makes_kernels(module: str) -> bool:
    return bool(getattr(sys.modules.get(_package(module)), "KERNEL_TEXT", False))


def _reached(source: str, what: str | None) -> list[tuple[str, str]]:
    """What an import brings in: one name, or (of a module) everything."""
    if what is not None and f"{source}.{what}" not in sys.modules:
        return [(source, what)]
    whole = source if what is None else f"{source}.{what}"
    unit = _unit(whole)
    return [(whole, n) for n in unit.defined] if unit is not None else []
