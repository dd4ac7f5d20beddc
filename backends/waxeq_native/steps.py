"""Calls bound to memory, and what runs them: one after another in one call of C, or side by side."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.lib.array_utils import byte_bounds

from waxeq.backend.kernel import BESIDE
from waxeq_cfamily.functions import source
from waxeq_cfamily.loops import beginning
from waxeq_native import library
from waxeq_native.gemm import api, header
from waxeq_native.team import Phase, Phases, Team

if TYPE_CHECKING:
    from waxeq_native.work import Part, Work

OUT_PLACE, OPERANDS = 2, 3
"""Positions of the result and of the first operand among a kernel's arguments: before them are the context and the
workspace."""

_PIECE = 1 << 20
"""Bytes of what calls that run side by side read that one task of all takes at least."""


class Context(ctypes.Structure):
    """`wx_context` of prelude.h."""

    _fields_: ClassVar = [
        ("api", ctypes.c_void_p),
        ("library", ctypes.c_void_p),
        ("outside", ctypes.c_int32),
        ("kept", ctypes.c_int32),
    ]


@cache
def prelude() -> str:
    """The text before every kernel."""
    return "\n".join([source(), beginning(), header()])


def compiled(parts: Iterable[Part], jobs: int = 1) -> dict[str, int]:
    """Addresses of the functions of parts by name; what is not in the cache is compiled, all at once."""
    return dict(library.functions({p.name: p.source for p in parts}, prelude(), jobs=jobs))


class Step:
    """A call bound to memory: its arguments stay in place, so that they can be pointed elsewhere."""

    __slots__ = ("_held", "_spans", "args", "context", "phases", "run", "threads", "work")

    def __init__(
        self, work: Work, threads: int, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> None:
        addresses = compiled(work.parts)
        self.work, self.context = work, Context(ctypes.addressof(api()), work.library)
        self.args = (ctypes.c_void_p * 64)()
        self.args[0] = ctypes.addressof(self.context)
        at = ctypes.addressof(self.args)
        rows = [Phase(addresses[p.name], at, p.tasks, p.grain) for p in work.parts]
        self.phases = (Phase * len(rows))(*rows)
        self.threads = threads
        self.run = Team.of(threads).prepared(ctypes.addressof(self.phases), len(rows))
        panels = tuple(p.made(operands[p.operand]) for p in work.packs)
        self._held: list[np.ndarray | None] = [None, workspace, out, *operands, *panels]
        for i, a in enumerate((workspace, out, *operands, *panels), start=1):
            self.args[i] = a.ctypes.data
        walks = work.walks and rows[0].tasks >= 2 * threads and any(a.nbytes >= BESIDE for a in operands)
        self._spans = tuple(map(_span, (workspace, out, *operands))) if walks else ()

    def point(self, place: int, address: int) -> None:
        """Have an argument lie elsewhere from now on, in memory that the caller keeps alive."""
        self.args[place] = address
        self._held[place] = None

    def __call__(self) -> None:
        self.run()
        self.check()

    def check(self) -> None:
        """Raises IndexError when a position lay outside its axis."""
        if self.context.outside:
            self.context.outside = 0
            raise IndexError("an index is out of bounds for the axis it points into")

    def beside(self, other: Step) -> bool:
        """Whether both walk through something large that they read, and neither needs what the other writes."""
        if not self._spans or not other._spans or self.threads != other.threads:
            return False
        (*writes, a), (*others, b) = self._lies(), other._lies()
        together = {x for x in a if x[1] - x[0] >= BESIDE} & set(b)
        return bool(together) and not _meet(writes, [*others, *b]) and not _meet(others, a)

    @property
    def largest(self) -> int:
        """Bytes of the largest operand."""
        return max((high - low for low, high in self._spans[2:]), default=0)

    def _lies(self) -> list[Any]:
        """Where its workspace lies, and its result; and, last, all of its operands."""
        rows = [(x + low, x + high) for x, (low, high) in zip(self._addresses(), self._spans, strict=True)]
        return [rows[0], rows[1], rows[2:]]

    def _addresses(self) -> list[int]:
        return [self.args[i] or 0 for i in range(1, 1 + len(self._spans))]


class Run:
    """Steps one after another, as one call; those that read the same large thing take turns over pieces of it."""

    __slots__ = ("_inner", "checked", "phases", "run", "steps")

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)
        team = Team.of(max(s.threads for s in steps))
        self._inner: list[Any] = []
        rows = [p for group in _groups(steps) for p in self._phases(group, team)]
        self.phases = (Phase * len(rows))(*rows)
        self.run = team.prepared(ctypes.addressof(self.phases), len(rows))
        self.checked = tuple(s for s in steps if s.work.looked_up)

    def _phases(self, group: Sequence[Step], team: Team) -> list[Phase]:
        """The phases of steps that run side by side: their first ones are one."""
        if len(group) == 1:
            return list(group[0].phases)
        first = [s.phases[0] for s in group]
        tasks = min(min(p.tasks for p in first), max(2 * group[0].threads, group[0].largest // _PIECE))
        inner = (Phase * len(first))(*first)
        both = Phases(ctypes.addressof(inner), len(first), tasks)
        self._inner += [inner, both]
        return [Phase(team.together, ctypes.addressof(both), tasks, 1), *(p for s in group for p in s.phases[1:])]

    def __call__(self) -> None:
        self.run()
        for s in self.checked:
            s.check()


def _groups(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Neighbours that can run side by side."""
    group: list[Step] = []
    for s in steps:
        if group and not all(g.beside(s) for g in group):
            yield group
            group = []
        group.append(s)
    yield group


def _span(a: np.ndarray) -> tuple[int, int]:
    """Where the bytes of an array begin and end, counted from its first element."""
    low, high = byte_bounds(a) if a.size else (a.ctypes.data,) * 2
    return low - a.ctypes.data, high - a.ctypes.data


def _meet(some: Iterable[tuple[int, int]], others: Sequence[tuple[int, int]]) -> bool:
    return any(a < d and c < b for a, b in some for c, d in others)
