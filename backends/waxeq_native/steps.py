"""Calls bound to memory, and what runs them: one after another in one call of C, as one loop, or side by side."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.linalg import LinAlgError

from waxeq.backend.kernel import BESIDE
from waxeq_cfamily.functions import source
from waxeq_cfamily.sixteens import beginning, in_sixteens
from waxeq_cfamily.taken import Named
from waxeq_native import library
from waxeq_native.abreast import Abreast
from waxeq_native.compiler import CompileFailed
from waxeq_native.gemm import KINDS, api, header, made
from waxeq_native.joint import STREAMED, Joined, joined, numbered
from waxeq_native.team import Phase, Phases, Team

if TYPE_CHECKING:
    from waxeq_native.work import Work

WORKSPACE, OUT_PLACE, OPERANDS = 1, 2, 3
"""Positions of the workspace, of the result and of the first operand among a kernel's arguments; the first is the
context."""

OUTSIDE, SINGULAR, INDEFINITE = 1, 2, 3
FAULTS: Mapping[int, tuple[type[Exception], str]] = {
    OUTSIDE: (IndexError, "an index is out of bounds for the axis it points into"),
    SINGULAR: (LinAlgError, "Singular matrix"),
    INDEFINITE: (LinAlgError, "Matrix is not positive definite"),
}
"""What is raised, by what a kernel leaves in its context."""

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


def _kinds(parts: Iterable[Named]) -> list[str]:
    """The kinds of elements for which functions call products of matrices."""
    texts = [p.source for p in parts if "api->" in p.source]
    return [kind for kind in KINDS if any(re.search(rf"\bapi->\w+_{kind}\b", text) for text in texts)]


def compiled(parts: Iterable[Named], jobs: int = 1) -> dict[str, int]:
    """Addresses of functions by name; what is not in the cache is compiled, all at once, and so is what they call."""
    parts = list(parts)
    made(_kinds(parts))
    return dict(library.functions({p.name: in_sixteens(p.source) for p in parts}, prelude(), jobs=jobs))


class Step:
    """A call bound to memory: its arguments stay in place, so that they can be pointed elsewhere. `moved`: how often
    one was."""

    __slots__ = ("_held", "_spans", "_walks", "args", "context", "moved", "phases", "run", "threads", "work")

    def __init__(
        self, work: Work, threads: int, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> None:
        addresses = compiled(work.parts)
        self.work, self.context = work, Context(ctypes.addressof(api()), work.library)
        self.args = (ctypes.c_void_p * (OPERANDS + len(operands) + len(work.packs)))()
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
        self._walks = work.walks and rows[0].tasks >= 2 * threads and any(a.nbytes >= BESIDE for a in operands)
        known = self._walks or work.walk is not None
        self._spans = tuple(map(_span, (workspace, out, *operands))) if known else ()
        self.moved = 0

    def point(self, place: int, address: int) -> None:
        """Have an argument lie elsewhere from now on, in memory that the caller keeps alive."""
        self.args[place] = address
        self._held[place] = None
        self.moved += 1

    def __call__(self) -> None:
        self.run()
        self.check()

    def check(self) -> None:
        """Raises what `check` does."""
        check([self])

    def beside(self, other: Step) -> bool:
        """Whether both walk through something large that they read, and neither needs what the other writes."""
        if not self._walks or not other._walks or self.threads != other.threads:
            return False
        (*writes, a), (*others, b) = self.lies(), other.lies()
        together = {x for x in a if x[1] - x[0] >= BESIDE} & set(b)
        return bool(together) and not _meet(writes, [*others, *b]) and not _meet(others, a)

    @property
    def largest(self) -> int:
        """Bytes of the largest operand."""
        return max((high - low for low, high in self._spans[2:]), default=0)

    def lies(self) -> list[Any]:
        """Where its workspace lies, and its result; and, last, all of its operands."""
        rows = [(x + low, x + high) for x, (low, high) in zip(self._addresses(), self._spans, strict=True)]
        return [rows[0], rows[1], rows[2:]]

    @property
    def reads(self) -> list[int]:
        """Where everything lies that it reads, packed operands too."""
        return [self.args[i] or 0 for i in range(OPERANDS, len(self._held))]

    @property
    def operands(self) -> list[int]:
        """Where its operands lie."""
        return self._addresses()[2:]

    def _addresses(self) -> list[int]:
        return [self.args[i] or 0 for i in range(1, 1 + len(self._spans))]


def check(steps: Iterable[Step]) -> None:
    """Raises what the first of them that failed says: IndexError when a position lay outside its axis, LinAlgError when
    a matrix had no solution or factor. Nothing is left of it for the next run."""
    failed = [(s.context, s.context.outside) for s in steps if s.context.outside]
    for c, _ in failed:
        c.outside = 0
    if failed:
        kind, text = FAULTS[failed[0][1]]
        raise kind(text)


class Unit:
    """Steps that are one loop, or one step alone."""

    __slots__ = ("_args", "_joined", "_numbers", "_seen", "phases", "steps")

    def __init__(self, steps: Sequence[Step], one: Joined | Abreast | None, numbers: Sequence[Sequence[int]]) -> None:
        """`numbers`: by step, those of its operands among the operands of all."""
        self.steps, self._joined, self._numbers = tuple(steps), one, numbers
        self.phases = list(steps[0].phases)
        self._seen = self._moved()
        if one is not None:
            self._args = (ctypes.c_void_p * len(steps))(*(ctypes.addressof(s.args) for s in steps))
            (body,) = compiled([one.text]).values()
            both = Phase(body, ctypes.addressof(self._args), one.tasks, one.grain)
            self.phases = [both, *(p for s in steps for p in s.phases[1:])]

    @property
    def joint(self) -> bool:
        """Whether it is one loop for several steps."""
        return self._joined is not None

    @property
    def source(self) -> str:
        """The C of its loop; nothing for a step alone."""
        return "" if self._joined is None else self._joined.text.source

    def _moved(self) -> int:
        return sum([s.moved for s in self.steps])

    def stands(self) -> bool:
        """Whether what was found when steps were made one loop is still so, wherever memory lies by now."""
        if self._joined is None or self._seen == (moved := self._moved()):
            return True
        places: dict[int, int] = {}
        for s, numbers in zip(self.steps, self._numbers, strict=True):
            if any(places.setdefault(n, x) != x for n, x in zip(numbers, s.operands, strict=True)):
                return False
        if not _apart(self.steps, self._joined.replaces):
            return False
        self._seen = moved
        return True

    def beside(self, other: Unit) -> bool:
        """Whether all of its steps run beside all of the other's."""
        return all(a.beside(b) for a in self.steps for b in other.steps)

    @property
    def largest(self) -> int:
        """Bytes of the largest operand."""
        return max(s.largest for s in self.steps)


class Run:
    """Steps one after another, as one call; neighbours that compute the same things at the same points are one loop,
    those that read the same large thing take turns over pieces of it."""

    __slots__ = ("_held", "_labels", "_team", "checked", "loops", "phases", "run", "steps")

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)
        self._team = Team.of(max(s.threads for s in steps))
        self.checked = tuple(s for s in steps if s.work.may_fail)
        self._labels: list[list[Hashable]] = [
            [] if s.work.walk is None else [*s.work.walk.dtypes] for s in steps
        ]  # operands of one label are one operand of a loop
        self._arrange()

    def _arrange(self, *, anew: bool = False) -> None:
        """Find what runs how, where memory lies now. What lay apart once is never again taken for the same. Where it is
        done `anew` in a call and another loop cannot be compiled, all runs one by one."""
        self._labels = [[*zip(row, s.operands, strict=False)] for row, s in zip(self._labels, self.steps, strict=True)]
        found = list(_loops(self.steps, self._labels))
        try:
            compiled([one.text for _, one, _ in found if one is not None], self._team.threads)
        except CompileFailed:
            if not anew:
                raise
            rows = zip(self.steps, self._labels, strict=True)
            found = [((step,), None, numbered([labels])) for step, labels in rows]
        units = [Unit(*row) for row in found]
        held: list[Any] = []
        rows = [p for group in _groups(units) for p in self._phases(group, held)]
        phases = (Phase * len(rows))(*rows)
        run, loops = self._team.prepared(ctypes.addressof(phases), len(rows)), tuple(u for u in units if u.joint)
        self.run, self.phases, self.loops, self._held = run, phases, loops, (units, held)  # an interruption keeps all

    def _phases(self, group: Sequence[Unit], held: list[Any]) -> list[Phase]:
        """The phases of what runs side by side: their first ones are one."""
        if len(group) == 1:
            return list(group[0].phases)
        first = [u.phases[0] for u in group]
        threads, largest = group[0].steps[0].threads, group[0].largest
        tasks = min(min(p.tasks for p in first), max(2 * threads, largest // _PIECE))
        inner = (Phase * len(first))(*first)
        both = Phases(ctypes.addressof(inner), len(first), tasks)
        held += [inner, both]
        return [Phase(self._team.together, ctypes.addressof(both), tasks, 1), *(p for u in group for p in u.phases[1:])]

    def __call__(self) -> None:
        for u in self.loops:
            if not u.stands():
                self._arrange(anew=True)
                break
        self.run()
        check(self.checked)


def _loops(
    steps: Sequence[Step], labels: Sequence[Sequence[Hashable]]
) -> Iterator[tuple[Sequence[Step], Joined | Abreast | None, tuple[tuple[int, ...], ...]]]:
    """Steps in order, those that can be one loop together, with that loop and the numbers of its operands."""
    first, found = 0, None
    for end in range(1, len(steps) + 1):
        longer = _loop(steps[first : end + 1], labels[first : end + 1], steps[end + 1 :]) if end < len(steps) else None
        if longer is None:
            yield steps[first:end], found, numbered(labels[first:end])
            first = end
        found = longer


def _loop(
    steps: Sequence[Step], labels: Sequence[Sequence[Hashable]], later: Sequence[Step]
) -> Joined | Abreast | None:
    """The one loop of some steps. It writes past the cache what is large, and not for `later` steps."""
    walks = [s.work.walk for s in steps if s.work.walk is not None]
    if len(walks) < len(steps) or len({s.threads for s in steps}) > 1:
        return None
    outs = [s.lies()[1] for s in steps]
    large = all(high - low >= STREAMED for low, high in outs)
    read = large and any(low <= x < high for s in later for x in s.reads for low, high in outs)
    for past in (True, False) if large and not read else (False,):
        one = joined(tuple(walks), numbered(labels), OPERANDS, past)
        if one is not None and _apart(steps, one.replaces):
            return one
    return None


def _apart(steps: Sequence[Step], replaces: Collection[int]) -> bool:
    """Whether no step writes what another one reads or writes, nor what it reads itself but for those that may."""
    rows = [s.lies() for s in steps]
    for i, (*writes, own) in enumerate(rows):
        others = [x for j, (*theirs, reads) in enumerate(rows) if j != i for x in (*theirs, *reads)]
        if _meet(writes, others if i in replaces else [*others, *own]):
            return False
    return True


def _groups(units: Iterable[Unit]) -> Iterator[list[Unit]]:
    """Neighbours that can run side by side."""
    group: list[Unit] = []
    for u in units:
        if group and not all(g.beside(u) for g in group):
            yield group
            group = []
        group.append(u)
    yield group


def _span(a: np.ndarray) -> tuple[int, int]:
    """Where the bytes of an array begin and end, counted from its first element."""
    low, high = byte_bounds(a) if a.size else (a.ctypes.data,) * 2
    return low - a.ctypes.data, high - a.ctypes.data


def _meet(some: Iterable[tuple[int, int]], others: Sequence[tuple[int, int]]) -> bool:
    return any(max(a, c) < min(b, d) for a, b in some for c, d in others)
