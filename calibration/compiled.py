"""What the kernels of a checkout run on a CPU that is not here: a program that `renamed.py` runs, once with each
version of the kernels to import. It prints as JSON what there would be compiled, and for what, for each call that
`waxeq calibrate` times (`described` says in what form); `preprocessed.py` tells what of it a compiler there sees.

The process takes itself for that machine as far as kernels ask what it is: how large caches are, what processor it
has, and how wide its vectors are. That is told by the products of matrices in C, which are compiled for it here, as
plainly as can be: functions that answer with a number run on any machine of the kind, the others are never called.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

_PLAIN = ("-O1", "-fno-tree-vectorize", "-mmove-max=128", "-mstore-max=128")
"""No vectors but those that a text asks for."""
_NATIVE = "-march=native"
_DRIVEN = {
    "steps": ("Context", "Step", "check", "Run.__call__"),
    "team": ("Phase", "Team"),
    "work": ("NativeKernel.bind", "Pack.made", "Pack._flat"),
}
"""What starts phases, and makes the panels that they read, by module: Python that is run where a call is timed."""
_BORROWED = {"blas": ("",), "products_blas": ("Library", "table", "usable")}
"""What finds functions of NumPy's BLAS, for calls that are given them."""


def described(o: Mapping[str, Any]) -> dict[str, Any]:
    """What the kernels that this process imports would have compiled on a machine. `o`: its `cpu` as its kernels are
    named by, `flags` that have a compiler make code for it, its `device` as the table describes it.

    `command`, `flags`: the compiler, with its flags there; `prelude`: what stands before every function; `functions`:
    texts; `files`: by purpose (products, team) units of files, each a text by name, with its flags; `kernels`: of each
    its `code`, and by call the places of its functions in `functions`, whether products of matrices are called, and a
    hash of all else that makes a run of it what it is.
    """
    with _machine(o) as asked:
        from waxeq.backend.discover import backends, kernels
        from waxeq_native import gemm, library, team

        files = {}
        for purpose, make in (("products", partial(gemm.made, gemm.KINDS)), ("team", team.code)):
            asked.clear()
            make()
            files[purpose] = [_unit(paths, flags) for paths, flags in asked]
        known = kernels(backends(("native", "numpy")))
        with _Compiled() as compiled:
            rows = {n: {"code": k.code, "calls": {}} for n, k in known.items()}
            for key, call in _grid(known, int(o["device"]["threads"])):
                said = compiled.said(known[call.kernel], call)
                found = rows[call.kernel]["calls"].setdefault(key, [])
                found += [said] * (said not in found)
        it = library.shared().compiler
    return {
        "command": it.command, "flags": _there(it.flags, o["flags"]), "prelude": compiled.prelude,
        "functions": list(compiled.functions), "files": files, "kernels": rows,
    }  # fmt: skip


@contextmanager
def _machine(o: Mapping[str, Any]) -> Iterator[list[Any]]:
    """The process takes itself for the machine; what units of files it asks a compiler for."""
    from waxeq.backend import caches

    asked: list[Any] = []
    sizes = {n: int(o["device"][f"l{n}_bytes"]) for n in (1, 2, 3)}
    with ExitStack() as patches:
        patches.enter_context(patch.object(caches, "cache_bytes", sizes.__getitem__))  # before a kernel asks
        from waxeq_native import compiler, library

        start, units = compiler.Compiler.start, library.units

        def start_for(self: Any, *args: Any, **more: Any) -> Any:
            return start(replace(self, flags=(*_there(self.flags, o["flags"]), *_PLAIN)), *args, **more)

        def units_of(wanted: Sequence[Any]) -> Any:
            asked.extend(wanted)
            return units(wanted)

        patches.enter_context(patch.object(compiler, "cpu", lambda: o["cpu"]))
        patches.enter_context(patch.object(compiler.Compiler, "start", start_for))
        patches.enter_context(patch.object(library, "units", units_of))
        yield asked


def _there(flags: Iterable[str], there: Sequence[str]) -> tuple[str, ...]:
    """Flags of a compiler on that machine."""
    return tuple(x for f in flags for x in (there if f == _NATIVE else (f,)))


def _unit(paths: Iterable[Path], flags: Iterable[str]) -> dict[str, Any]:
    return {"texts": {p.name: p.read_text(encoding="utf-8") for p in paths}, "flags": list(flags)}


def _grid(known: Mapping[str, Any], threads: int) -> Iterator[tuple[str, Any]]:
    """Calls of compiled kernels that a calibration times, quick or not, and what tells each from others."""
    from waxeq.egraph.kernels import patterns
    from waxeq.search.samples import samples
    from waxeq_native.work import NativeKernel

    compiled = {n: k for n, k in known.items() if isinstance(k, NativeKernel)}
    forms = patterns(compiled)
    for s in chain(samples(False), samples(True)):
        for call in s.calls(compiled, forms, threads):
            yield json.dumps([call.text, call.dims, call.layout, call.out.dtype]), call


class _Compiled:
    """What kernels hand to the compiler: the distinct texts of their functions, in order, and what stands before."""

    def __init__(self) -> None:
        self.functions: dict[str, int] = {}
        self.prelude = ""
        self._driven, self._borrowed = _texts(_DRIVEN), _texts(_BORROWED)

    def __enter__(self) -> _Compiled:
        from waxeq_native import library

        self._patch = patch.object(library, "functions", self._functions)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def _functions(self, sources: Mapping[str, str], prelude: str, **_: Any) -> dict[str, int]:
        """In the place of `library.functions`: a function's place among all texts for its address."""
        assert self.prelude in ("", prelude), "one text stands before all functions"
        self.prelude = prelude
        bare = {n: text.replace(n, "wx_this") for n, text in sources.items()}  # which is a hash of the rest
        return {n: self.functions.setdefault(text, len(self.functions)) for n, text in bare.items()}

    def said(self, kernel: Any, call: Any) -> dict[str, Any]:
        """All that makes a run of a call what it is."""
        from waxeq_native.steps import compiled
        from waxeq_native.work import NativeKernel

        work = kernel.of(call)
        addresses = compiled(work.parts)
        usual = all(getattr(type(kernel), n) is getattr(NativeKernel, n) for n in ("bind", "of", "join"))
        rest = {
            "phases": [_fields(p, "text") for p in work.parts],
            "work": _fields(work, "write", "walk", "library"),
            "memory": (kernel.workspace(call), kernel.retained(call)),
            "features": sorted(kernel.features(call).items()),
            "driven": self._driven if usual else kernel.code,
            "borrowed": None if work.library is None else self._borrowed,
        }
        calls = any("api" in p.text for p in work.parts) or bool(work.packs)
        digest = hashlib.sha256(repr(rest).encode()).hexdigest()
        return {"functions": [addresses[p.name] for p in work.parts], "products": calls, "rest": digest}


def _fields(value: Any, *without: str) -> list[tuple[str, str]]:
    return [(f.name, repr(getattr(value, f.name))) for f in fields(value) if f.name not in without]


def _texts(wanted: Mapping[str, Sequence[str]]) -> list[str]:
    """What definitions of modules are made of, without docstrings and comments; of a module "" is all of it. One that
    is not there has no text that is like another's."""
    from importlib import import_module

    found = []
    for module, names in wanted.items():
        for name in names:
            at: Any = import_module(f"waxeq_native.{module}")
            for part in filter(None, name.split(".")):
                at = getattr(at, part, None)
            found.append(f"{module}.{name} is nowhere" if at is None else _bare(inspect.getsource(at)))
    return found


def _bare(source: str) -> str:
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [x for x in node.body if not _alone(x)]
    return ast.dump(tree)


def _alone(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


if __name__ == "__main__":
    found = described(json.loads(sys.argv[1]))
    assert all(found["files"].values()), "files that were asked for before are not told of"
    print(json.dumps(found))
