"""How tests of native kernels compile: some with few optimizations, some many kernels at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from inspect import signature
from types import FunctionType
from typing import Any, ClassVar
from zlib import crc32

import pytest

from waxeq_native import library, work
from waxeq_native.compiler import CompileFailed

Ahead = Callable[[Callable[..., object], Iterable[Sequence[Any]]], None]

NEXT = 20
"""Cases of a test that are compiled with one of it."""
SOON = 0.04
"""Seconds of a core in which a test has come to what it has compiled: it takes as long to start a compiler."""


class Noted:
    """Stands for a library while kernels are bound that are not run: which functions they need."""

    def __init__(self, of: library.Library) -> None:
        self.units, self.texts = of.units, dict[str, dict[str, str]]()

    def functions(self, sources: Mapping[str, str], prelude: str, *, jobs: int = 1) -> Mapping[str, int]:
        self.texts.setdefault(prelude, {}).update(sources)
        return dict.fromkeys(sources, 1)


def compiled_ahead(bind: Callable[..., object], rows: Iterable[Sequence[Any]]) -> None:
    """Compiles what `bind(*row)` needs of each row, all at once, with the flags that it would have been compiled with:
    to start a compiler takes as long as most kernels take it. What `bind` makes must not be run."""
    own = library.shared()
    noted = Noted(own)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "shared", lambda: noted)
        for row in rows:
            bind(*row)
    for prelude, sources in noted.texts.items():
        own.functions(sources, prelude)


class Needed(BaseException):
    """Ends a case as soon as it is known what it has compiled first; no test catches it."""


class First(Noted):
    """Notes what a case has compiled first, and ends it there."""

    def functions(self, sources: Mapping[str, str], prelude: str, *, jobs: int = 1) -> Mapping[str, int]:
        super().functions(sources, prelude)
        raise Needed


class Together:
    """Stands for a library in one case of a test: with what it has compiled first, that of the next cases is, where it
    comes to it soon. To start a compiler takes as long as most kernels take it."""

    met: ClassVar[set[str]] = set()
    """Cases of which it was found out what they need."""

    def __init__(self, of: library.Library, case: pytest.Function, machine_is_wide: bool) -> None:
        self._of, self._case, self._began = of, case, time.thread_time()
        self._others = [] if case.nodeid in self.met else next_cases(case, machine_is_wide)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def functions(self, sources: Mapping[str, str], prelude: str, *, jobs: int = 1) -> Mapping[str, int]:
        others, self._others = self._others, []
        here = threading.current_thread() is threading.main_thread()
        if others and here and time.thread_time() - self._began < SOON:
            first = First(self._of)
            first.texts[prelude] = dict(sources)
            for case in others:
                self._begin(case, first)
            for shared, texts in first.texts.items():
                with suppress(CompileFailed):  # the case whose text it is says so
                    self._of.functions(texts, shared)
        return self._of.functions(sources, prelude, jobs=jobs)

    def _begin(self, case: pytest.Function, first: First) -> None:
        """Runs a case up to what it has compiled first. Whatever else ends it does so when it is run as a test."""
        self.met.add(case.nodeid)
        with pytest.MonkeyPatch.context() as patch, suppress(Needed, Exception, pytest.skip.Exception):
            patch.setattr(library, "shared", lambda: first)
            patch.setattr(work, "_known", {})
            given = {name: self._case.funcargs[name] for name in signature(case.obj).parameters}
            case.obj(**given | ({"monkeypatch": patch} if "monkeypatch" in given else {}) | case.callspec.params)


def next_cases(case: pytest.Function, machine_is_wide: bool) -> list[pytest.Function]:
    """The next cases of a test that are compiled little. None where it has examples drawn, or fixtures that are not the
    same for all cases, as functions are."""
    params = getattr(getattr(case, "callspec", None), "params", {})
    kept = (case.funcargs[name] for name in signature(case.obj).parameters if name not in (*params, "monkeypatch"))
    if not params or hasattr(case.obj, "hypothesis") or not all(isinstance(value, FunctionType) for value in kept):
        return []
    beside = (
        other for other in case.session.items if other.parent is case.parent and isinstance(other, pytest.Function)
    )
    same = [other for other in beside if other.originalname == case.originalname]
    after = same[same.index(case) + 1 :]
    return [other for other in after[:NEXT] if is_little(other, machine_is_wide)]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    machine_is_wide = bool(pyfuncitem.funcargs["machine_is_wide"])
    with pytest.MonkeyPatch.context() as patch:
        if is_little(pyfuncitem, machine_is_wide):
            stands = Together(library.shared(), pyfuncitem, machine_is_wide)
            patch.setattr(library, "shared", lambda: stands)
        return (yield)


@pytest.fixture(scope="session")
def ahead() -> Ahead:
    """`ahead(bind, rows)` is `compiled_ahead`."""
    return compiled_ahead


@pytest.fixture(autouse=True)
def nothing_is_known_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test finds for a call is not what another one found under limits that it changed, whatever their order."""
    monkeypatch.setattr(work, "_known", {})


def is_little(item: pytest.Item, machine_is_wide: bool) -> bool:
    """Of the cases of a test whose time is that of its compiler, every tenth is compiled as plans are, and of dtypes
    float32 alone: vectors of the others take compilers longest, and tests/backends/test_conformance.py has all kernels,
    and all dtypes, as plans have them. Of tests without cases likewise a tenth. Which they are is told from their
    names: how pytest numbers cases changes from version to version.
    """
    callspec = getattr(item, "callspec", None)
    if "wide" in getattr(item, "fixturenames", ()) and not machine_is_wide:
        return True  # two vectors for one take compilers far longer
    dtype = "float32" if callspec is None else callspec.params.get("dtype", "float32")
    return bool(crc32(item.name.encode()) % 10) or dtype != "float32"


@pytest.fixture(autouse=True)
def most_cases_are_compiled_little(
    request: pytest.FixtureRequest, little: library.Library, machine_is_wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`is_little` says which."""
    if is_little(request.node, machine_is_wide):
        monkeypatch.setattr(library, "shared", lambda: little)
