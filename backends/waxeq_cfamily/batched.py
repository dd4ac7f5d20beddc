"""C text of walks whose points go through their stages several at a time.

What a fold comes to is known long after it has read its last element: its lanes are put together one after another, a
root and a quotient take dozens of cycles. A later stage of the same point waits for all that, as a core looks ahead by
a few hundred instructions only; the same stage of another point is there to be computed meanwhile.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from waxeq.backend.extent import Extent
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.lanes import LANES
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.scalars import carried, variable

_WAITING = ((1 << 8, 4), (1 << 10, 2))
"""Bytes of a row up to which so many points are taken at a time where two folds wait for each other (Zen 4). Of longer
ones the elements take long enough themselves, and the first cache has less room: a layer norm of 512 numbers took 1.05
of the time with two."""
_ROOTED = ((1 << 11, 1), (1 << 12, 4), (3 << 11, 2))
"""The same where one fold is waited for, and a root of it is taken. A core comes to the fold of the next point before
that is known where rows are shorter: it looks ahead as far."""
_CACHED = 2 << 20
"""Bytes up to which what is read may lie in the second cache: such rows from further away are better asked for."""
_DIVIDED = frozenset(("div", "sqrt", "rsqrt"))
"""What a vector takes that long for that nothing is left to wait for."""


@dataclass(frozen=True)
class Passes:
    """The text of each stage for one point, with the scalars that the next one needs; in which of them each variable is
    `made`; and those that each has `taken` from stages before it."""

    lines: Sequence[Sequence[str]]
    made: Mapping[int, int]
    taken: Sequence[Collection[int]]

    @property
    def kept(self) -> list[int]:
        """What later stages take."""
        return sorted({n for some in self.taken for n in some})


@dataclass(frozen=True)
class Batched(Emitter):
    """Text of such a walk where that is worth it, else as usual."""

    @cached_property
    def many(self) -> int:
        """How many points are taken at a time."""
        row = self.row
        if row is None:
            return 1
        sizes = _WAITING if self.waiting else _ROOTED if self._rooted(row) else ()
        found = next((n for most, n in sizes if row <= most), 1)
        return found if self.space.points() >= 2 * found else 1

    @cached_property
    def row(self) -> int | None:
        """Bytes that the folds of a point take in, where stages are loops over whole rows; None where they are else."""
        s, v = self.space, self.space.vector
        one = self.limited or self.streams or bool(self.values.positions or self.values.scans or s.products or s.tiles)
        if v is None or s.inner != (v,) or one or any(x.order not in ((v,), ()) for x in s.stages):
            return None
        width, folds = self.values.sizes[v], [f for x in s.stages for f in x.folds]
        if isinstance(width, Extent) or width < LANES or not folds:
            return None
        return width * max(numpy_dtype(carried(self.values.rows[f].dtype)).itemsize for f in folds)

    @cached_property
    def waiting(self) -> bool:
        """Whether a fold waits for another one."""
        return len({x.level for x in self.space.stages if x.folds}) > 1

    @cached_property
    def slow(self) -> tuple[int, ...]:
        """What a vector takes long for."""
        rows = enumerate(self.values.rows)
        return tuple(n for n, r in rows if r.op == "apply" and (r.costly or r.name in _DIVIDED))

    def near(self, row: int) -> bool:
        """Whether what is read may lie in the second cache, with rows of so many bytes."""
        loads = [r for r in self.values.rows if r.op == "load" and r.axes - {self.space.vector}]
        return self.space.points() * row * len(loads) <= _CACHED

    def _rooted(self, row: int) -> bool:
        """Whether a root is taken of what a row comes to, and the loop after it does no more than products."""
        s = self.space
        roots = [n for n in self.slow if self.values.rows[n].name in ("sqrt", "rsqrt")]
        several = len([x for x in s.stages if x.order]) > 1
        return bool(roots) and self.near(row) and several and not any(map(s.under, self.slow))

    def walked(self) -> Iterator[str]:
        if self.many == 1:
            yield from super().walked()
            return
        yield "  int64_t first = begin;"
        yield from ("  " + x for x in self.batches())
        yield "  for (int64_t t = first; t < end; t++) {"
        yield from ("    " + x for x in self.point())
        yield "  }"

    def batches(self) -> Iterator[str]:
        """The loop over points that are taken together."""
        yield f"for (; first + {self.many} <= end; first += {self.many}) {{"
        yield from (
            "  " + x for x in (*self.room(), *(x for i in range(len(self.passes.lines)) for x in self.batch(i)))
        )
        yield "}"

    def room(self) -> Iterator[str]:
        """Where values of all points lie that later stages take."""
        yield from (f"{self.kind(n)} {self.state(n)}[{self.many}];" for n in self.passes.kept)
        yield from (f"WX_ALIGNED {self.kind(n)} b{n}_all[{self.many}][{self.room_of(n)}];" for n in self._buffered)

    def batch(self, i: int) -> Iterator[str]:
        """A stage of all points, before the next one of any. Nothing is asked for: the next rows are these."""
        taken, made = self.passes.taken[i], self.passes.made
        yield f"#pragma GCC unroll {self.many}"
        yield f"for (int64_t row = 0; row < {self.many}; row++) {{"
        yield "  const int64_t t = first + row;"
        yield from ("  " + x for x in self.place())
        yield from (f"  {self.kind(n)} *const b{n} = b{n}_all[row];" for n in self._buffered)
        yield from (f"  const {self.kind(n)} r{n} = {self.state(n)}[row];" for n in sorted(taken))
        yield from ("  " + x for x in self.passes.lines[i])
        yield from (f"  {self.state(n)}[row] = r{n};" for n in self.passes.kept if made[n] == i)
        yield "}"

    @cached_property
    def passes(self) -> Passes:
        """The stages of one point after another."""
        stages = self.space.stages
        done: set[int] = set()
        made: dict[int, int] = {}
        lines = [[*self._scalars(stages[0], done)]]
        for i, s in enumerate(stages):
            lines[i] += self.loop(s).nest(0)
            if i + 1 < len(stages):
                lines[i] += self._scalars(stages[i + 1], done)
                lines.append([])
            for n in (*done, *(f for f in s.folds if f not in self.space.buffered)):
                made.setdefault(n, i)
        read = [{int(n) for n in re.findall(r"\br(\d+)\b", "\n".join(some))} for some in lines]
        return Passes(lines, made, [{n for n in some if made.get(n, i) < i} for i, some in enumerate(read)])

    @property
    def _buffered(self) -> list[int]:
        return [n for n in self.space.buffered if n != self.space.rewritten]

    def state(self, n: int) -> str:
        """The variable of what later stages take: long sums have accumulators that are called s."""
        return f"{'late' if n in self._blocked else 's'}{n}"

    @cached_property
    def _blocked(self) -> frozenset[int]:
        """Sums that are made in blocks."""
        return frozenset(f for s in self.space.stages for f in self.loop(s).blocked)

    def kind(self, n: int) -> str:
        return variable(self.values.rows[n].dtype)

    def room_of(self, n: int) -> int:
        """Elements of a buffer for one point, in whole vectors."""
        return -(-math.prod(map(self.space.width, self.space.buffered[n])) // LANES) * LANES
