"""How tests of native kernels compile: some with few optimizations, some many kernels at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

import pytest

from waxeq_native import library, work

Ahead = Callable[[Callable[..., object], Iterable[Sequence[Any]]], None]


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


@pytest.fixture(scope="session")
def ahead() -> Ahead:
    """`ahead(bind, rows)` is `compiled_ahead`."""
    return compiled_ahead


@pytest.fixture(autouse=True)
def nothing_is_known_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test finds for a call is not what another one found under limits that it changed, whatever their order."""
    monkeypatch.setattr(work, "_known", {})


@pytest.fixture(autouse=True)
def most_cases_are_compiled_little(
    request: pytest.FixtureRequest, little: library.Library, machine_is_wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the cases of a test whose time is that of its compiler, every tenth is compiled as plans are, and of dtypes
    float32 alone: vectors of the others take compilers longest, and tests/backends/test_conformance.py has all kernels,
    and all dtypes, as plans have them. Of tests without cases likewise a tenth. Which they are is told from their
    names: how pytest numbers cases changes from version to version.
    """
    callspec = getattr(request.node, "callspec", None)
    if "wide" in request.fixturenames and not machine_is_wide:  # two vectors for one take compilers far longer
        monkeypatch.setattr(library, "shared", lambda: little)
        return
    dtype = "float32" if callspec is None else callspec.params.get("dtype", "float32")
    if crc32(request.node.name.encode()) % 10 or dtype != "float32":
        monkeypatch.setattr(library, "shared", lambda: little)
