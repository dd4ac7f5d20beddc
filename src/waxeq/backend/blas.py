"""The threads of the BLAS that NumPy has loaded: a plan has as many as it was made for while it runs.

Only OpenBLAS is told, which NumPy's own wheels bring: any other multiplies with the threads that the process gave it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from waxeq.amounts import cores
from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel
from waxeq.forks import renewed_in_children

_STARTS, _ENDS = ("scipy_", ""), ("64_", "_64", "")
"""What builds put around the names of OpenBLAS's functions."""


class Borrower(Protocol):
    """Code without Python that has the threads of BLAS to itself, one each, as long as it has `users`: when the last
    one is done it lets BLAS have the number that was there `before`."""

    users: int
    before: int


class Pool:
    """The threads of OpenBLAS, which are the whole process's: there is no number for one thread of Python alone.

    Code that runs in several threads of Python at once, and wants different numbers, has the one that was asked for
    last, each time that another begins or ends; when all is done, BLAS has the number of before again. What somebody
    else says meanwhile (threadpoolctl) is lost then, and holds for the code that runs. A product that has begun keeps
    the threads it began with.
    """

    def __init__(self, get: Callable[[], int], put: Callable[[int], object]) -> None:
        self._get, self._put = get, put
        self._wanted: dict[object, int] = {}
        self._before = 0
        self._lock = Lock()

    def run(self, threads: int, code: Iterable[Callable[[], object]]) -> None:
        """Run instructions in order, BLAS having so many threads."""
        if not self._wanted and self._get() == threads:  # then there is nothing to give back
            for f in code:
                f()
            return
        turn = object()
        try:
            self._take(turn, threads)
            for f in code:
                f()
        finally:
            self._give(turn)

    def forked(self) -> None:
        """In a new process, where none of the threads runs that had something to give back."""
        self._lock, wanted, self._wanted = Lock(), self._wanted, {}
        if wanted:
            self._put(self._before)

    def _take(self, turn: object, threads: int) -> None:
        with self._lock:
            if not self._wanted:
                now = self._get()
                other = _borrowing() if now == 1 else None
                self._before = now if other is None else other.before
            self._wanted[turn] = threads
            self._put(threads)

    def _give(self, turn: object) -> None:
        with self._lock:
            if self._wanted.pop(turn, None) is None:  # an interruption came before it was taken
                return
            if self._wanted:
                self._put([*self._wanted.values()][-1])
                return
            other = _borrowing()
            if other is None:
                self._put(self._before)
            else:
                other.before = self._before
                self._put(1)


BORROWERS: list[Callable[[], Borrower | None]] = []
"""What else takes the threads of BLAS, once it is there: backends that call BLAS past Python say so."""


def _borrowing() -> Borrower | None:
    for find in BORROWERS:
        found = find()
        if found is not None and found.users > 0:
            return found
    return None


Runs = Callable[[Iterable[Callable[[], object]]], None]
"""Runs instructions in order."""


def within(rows: Iterable[tuple[Kernel, Call]]) -> Runs | None:
    """What runs the instructions of these calls with as many threads of BLAS as its callers among them may use. None
    where none calls it, or it cannot be told."""
    wanted = [c.threads for k, c in rows if k.blas]
    return bound(max(wanted)) if wanted else None


def bound(threads: int) -> Runs | None:
    """What runs instructions with so many threads of BLAS, and no more than there are cores. None where it cannot be
    told."""
    found = pool()
    return None if found is None else partial(found.run, min(threads, cores()))


@cache
def pool() -> Pool | None:
    """That of this process; None where NumPy's BLAS is not OpenBLAS."""
    get, put = function("get_num_threads"), function("set_num_threads")
    if get is None or put is None:
        return None
    get.argtypes, get.restype = (), ctypes.c_int
    put.argtypes, put.restype = (ctypes.c_int,), None
    found = Pool(get, put)
    return renewed_in_children(found, Pool.forked)


def function(name: str) -> Any:
    """`openblas_` and this, under whatever name NumPy's OpenBLAS has it; None where there is no such function. It is
    called with the global lock held: what these do is over in less than it takes to give that up."""
    library = _library()
    names = (f"{start}openblas_{name}{end}" for start, end in product(_STARTS, _ENDS))
    return None if library is None else next((f for n in names if (f := getattr(library, n, None))), None)


@cache
def _library() -> ctypes.PyDLL | None:
    for path in _paths():
        try:
            return ctypes.PyDLL(path)  # loaded already: this only names it
        except OSError:
            continue
    return None


def _paths() -> Iterator[str]:
    """Where NumPy's OpenBLAS may lie: in its wheel, or among what this process has loaded, SciPy's not before it."""
    import numpy  # its import loads the library

    ours = Path(numpy.__file__).parent
    for folder in (ours.with_name("numpy.libs"), ours / ".dylibs"):
        yield from sorted(map(str, folder.glob("*openblas*")))
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    yield from sorted(
        {p for line in lines if "openblas" in (p := line.split()[-1])}, key=lambda p: ("numpy" not in p, p)
    )
