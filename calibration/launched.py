"""What the kernels of a checkout launch on a GPU that is not here: a program that `renamed.py` runs, once with each
version of the kernels to import. It prints what they are as JSON, by name: the `code` of each, and by call a hash of
all that it has the GPU do: the text of its launches, and of what stands before it whatever this comes to, without
comments.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import PropertyMock, patch


def described(o: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """What the kernels that this process imports are. `o`: the `gpu` as the driver calls it, the newest `cuda` that the
    `driver` of that release takes, the versions of `nvrtc`, `cublas` (none) and `python` there."""
    if _newer(o["python"]) and sys.version_info < (3, 12):
        _write_as_newer_pythons()
    rows: dict[str, dict[str, Any]] = {}
    with device(o):
        import waxeq_cupy

        known = waxeq_cupy.backend().kernels
        for name, call, launches in _launches(known):
            row = rows.setdefault(name, {"code": known[name].code, "calls": {}})
            row["calls"][call] = launches
    return rows


@contextmanager
def device(o: Mapping[str, str]) -> Iterator[None]:
    """The virtual device says that it is that GPU, with its library of products."""
    from waxeq_cupy.gpu import Gpu
    from waxeq_cupy.virtual import Virtual

    driver = SimpleNamespace(name=o["gpu"], version=o["cuda"], release=o["driver"])
    that = SimpleNamespace(way=Gpu.way, driver=driver, cubins=SimpleNamespace(version=o["nvrtc"]))
    identity = Gpu.identity.fget(that)  # pyright: ignore[reportOptionalCall, reportArgumentType]
    library = None if o["cublas"] == "none" else SimpleNamespace(version=o["cublas"], takes=lambda m: True)
    with (
        patch.object(Virtual, "identity", PropertyMock(return_value=identity)),
        patch.object(Virtual, "blas", PropertyMock(return_value=library), create=True),
    ):
        yield


def _newer(python: str) -> bool:
    return tuple(map(int, python.split(".")[:2])) >= (3, 12)


def _write_as_newer_pythons() -> None:
    """Since Python 3.12 functions and classes have parameters of types; texts of kernels say that they have none."""
    from waxeq.backend import kept, text

    kept.read, kept.write = lambda *_: None, lambda *_: None  # what is kept is as this Python writes it
    for kind in (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        plain = text._WRITERS[kind]
        text._WRITERS[kind] = lambda node, met, plain=plain: f"{plain(node, met)[:-1]}, type_params=[])"


def _launches(known: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """A kernel, a call of it, and a hash of what it launches or asks the library for, for every call that the check of
    a GPU has."""
    from calibration.gpu.prepare import Scope, _correct, _grid, _targets  # as they are called in any commit
    from calibration.gpu.targets import targets

    from waxeq.search.worker import encode_calls

    wanted, scope = list(targets()), Scope(grid=1 << 30)
    kernels = {n: k for n, k in known.items() if k.form != "transfer"}
    for i in (*_correct(kernels, wanted, scope.drawn), *_targets(kernels, wanted, scope), *_grid(kernels, scope.grid)):
        said = _said(kernels[i.call.kernel], i.call)
        if said is not None:
            yield i.call.kernel, encode_calls([i.call]), hashlib.sha256(said.encode()).hexdigest()


def _said(kernel: Any, call: Any) -> str | None:
    """All that a call has a GPU do; None for one that the kernel does not take."""
    from waxeq_cupy.kernels import prelude

    if hasattr(kernel, "multiplication"):
        return repr(kernel.multiplication(call))
    made = kernel.work(call)
    launches = None if made is None else [f"{x.source}|{x.blocks}|{x.threads}|{x.shared}" for x in made.launches]
    return None if launches is None else "\0".join((needed(prelude(), "".join(launches)), *launches))


def needed(before: str, text: str) -> str:
    """What stands before a kernel's text, without comments and without the functions and macros that the text does not
    come to: functions are inlined wherever they are called, so that of others nothing is compiled."""
    known, functions, rest = _definitions(before)
    met = set[str]()
    more = [_words(_MACRO.sub("", rest)), frozenset(re.findall(r"\w+", text))]
    while more:
        names = (more.pop() & known.keys()) - met
        met |= names
        more += (_words(known[n]) for n in names)
    kept = _MACRO.sub(lambda m: m[0] * (m[1] in met), rest)
    return "\n".join([" ".join(kept.split()), *(known[n] for n in functions if n in met)])


@cache
def _definitions(before: str) -> tuple[Mapping[str, str], Sequence[str], str]:
    """What functions and macros are by name, which are functions, and what else there is: the same for all kernels."""
    bare = without_comments(before)
    known = dict[str, str]()
    for m in (*_FUNCTION.finditer(bare), *_MACRO.finditer(bare)):
        known[m[1]] = known.get(m[1], "") + m[0]
    functions = tuple(dict.fromkeys(m[1] for m in _FUNCTION.finditer(bare)))
    return known, functions, _FUNCTION.sub("", bare)


@cache
def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


def without_comments(text: str) -> str:
    """C without its comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


_FUNCTION = re.compile(r"^WX_FN (?:\w+ )+\**(\w+)\((?:.*\}$|(?:.*\n)+?\}$)", re.MULTILINE)
"""The whole of a function that is always inlined, by its name."""
_MACRO = re.compile(r"^#define (\w+)(?:.*\\\n)*.*$", re.MULTILINE)
"""The whole of a macro, by its name."""


if __name__ == "__main__":
    print(json.dumps(described(json.loads(sys.argv[1]))))
