"""The Python face of the threads in team.c."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

from waxeq_native import library

HERE = Path(__file__).parent
UNIT = ((HERE / "team.c", HERE / "team.h"), ("-pthread",))


class Phase(ctypes.Structure):
    """`wx_phase` of team.h: the address of a body, of its arguments, how many tasks, and how many are taken at once."""

    _fields_: ClassVar = [
        ("body", ctypes.c_void_p),
        ("args", ctypes.c_void_p),
        ("tasks", ctypes.c_int64),
        ("grain", ctypes.c_int64),
    ]


class Phases(ctypes.Structure):
    """`wx_phases` of team.h: the address of phases, how many they are, and of how many tasks they are as one."""

    _fields_: ClassVar = [("phases", ctypes.c_void_p), ("count", ctypes.c_int64), ("tasks", ctypes.c_int64)]


def code() -> ctypes.CDLL:
    """The library of the threads. Raises MissingCompiler, CompileFailed."""
    return library.unit(*UNIT)


class Team:
    """Threads that stay alive between runs, the caller being one of them.

    `run(phases, n)` runs the n phases at the address `phases` (of an array of Phase) and returns when all are done;
    other Python threads run meanwhile, and the memory must live until then. `handle` is the address of the wx_team,
    `together` that of the body of a phase made of several.
    """

    __slots__ = ("_plain", "handle", "run", "threads", "together")

    run: Callable[[int | ctypes.c_void_p, int], None]

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"a team has at least one thread, not {threads}")
        built = code()
        new = built.wx_team_new
        new.argtypes, new.restype = (ctypes.c_int,), ctypes.c_void_p
        handle = new(threads)
        if handle is None:
            raise MemoryError("no memory for a team of threads")
        self.threads = threads
        self.handle: int = handle
        run = built["wx_run"]
        run.argtypes, run.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64), None
        self.run = partial(run, ctypes.c_void_p(handle))
        self.together: int = ctypes.cast(built["wx_together"], ctypes.c_void_p).value or 0
        self._plain = built["wx_run"]  # of no declared types: arguments that are C values already are not converted
        self._plain.restype = None

    def prepared(self, phases: int, n: int) -> Callable[[], None]:
        """`run` of these phases as a call without arguments, which takes half the time to begin."""
        return partial(self._plain, ctypes.c_void_p(self.handle), ctypes.c_void_p(phases), ctypes.c_int64(n))

    @staticmethod
    def of(threads: int) -> Team:
        """The team of this size, one per process. Raises MissingCompiler, CompileFailed."""
        return _teams.get(threads) or _teams.setdefault(threads, Team(threads))


_teams: dict[int, Team] = {}
