"""C text of loops over rows that take several of them at a time: what all of them read is read once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from waxeq.backend.extent import Extent
from waxeq.ir.types import is_float, numpy_dtype
from waxeq_cfamily.asked import ROWS_ASKED, ask_row, in_whole, rows_ahead
from waxeq_cfamily.scalars import var, variable

if TYPE_CHECKING:
    from waxeq_cfamily.nest import Loop

_TOGETHER = 8
"""Rows that are added to a row in one go: it is read and written once for so many."""


@dataclass(frozen=True)
class Several:
    """The last loops of a stage that does nothing but fold."""

    loop: Loop

    @cached_property
    def added(self) -> bool:
        """Whether all that this stage does is to add rows to rows, along the loop before the innermost. Their elements
        lie side by side: gcc 12 looks for hours at several columns."""
        loop, s = self.loop, self.loop.stage
        if not s.folds or loop.scalar or s.kept or not s.straight or len(loop.order) < 2:
            return False
        loads = (loop.values.rows[n] for n in loop.cone() if not loop.loaded(n) and loop.values.rows[n].op == "load")
        beside = all(r.name[1].stride(loop.order[-1]) in (-1, 0, 1) for r in loads)
        return beside and all(loop.order[-2] in loop.sources[f][0] for f in s.folds)

    @property
    def many(self) -> int:
        """How many rows are added in one go: of a few all, or as many as pairs can be made of."""
        size = self.loop.space.width(self.loop.order[-2])
        return _TOGETHER if isinstance(size, Extent) or size >= _TOGETHER else 1 << max(0, size.bit_length() - 1)

    def together(self, low: str, high: str) -> list[str]:
        """The loop before the innermost: its rows are added to one row. So many of them are added in pairs first, which
        takes as many additions and rounds each element less often."""
        loop, depth = self.loop, len(self.loop.order) - 2
        k, many = var(loop.order[depth]), self.many
        along = frozenset(n for n in loop.cone() if loop.depth(n) == depth + 1)
        before = [of_row(x, k, i, along) for i in range(many) for x in loop.at.get(depth + 1, ())]
        body = [f"{variable(loop.values.rows[f].dtype)} a{f} = {loop.e.buffer(f)};" for f in loop.stage.folds]
        paired = [f for f in loop.sources if loop.values.rows[f].name == "sum" and is_float(loop.values.rows[f].dtype)]
        for f in paired:
            names = (f"a{f}_{i}" for i in range(many))
            body.append(f"{variable(loop.values.rows[f].dtype)} {', '.join(names)};")
        for i in range(many):
            taken = (
                f"a{f}_{i} = {loop.e.name(loop.sources[f][1])};" if f in paired else x
                for f, x in zip(loop.sources, loop.sums("a"), strict=True)
            )
            lines = (*loop.at.get(depth + 2, ()), *taken)
            body += ["{", *("  " + of_row(x, k, i, along) for x in lines), "}"]
        for f in paired:
            *pairs, last = in_pairs(f"a{f}", many)
            body += [*pairs, f"a{f} = a{f} + {last};"]
        body += [f"{loop.e.buffer(f)} = a{f};" for f in loop.stage.folds]
        soon = rows_ahead(loop, many)
        asking = [of_row(x, k, i) for i in range(many) for x in ask_row(loop, soon)]
        return self._over(depth, many, low, high, before, body, asking)

    @cached_property
    def held(self) -> bool:
        """Whether folds stay in registers: those of some rows, that read the same columns, along the whole depth.
        Around a loop that reads what is narrower than what it adds up gcc 12 makes no vectors."""
        loop = self.loop
        if not loop.space.held or len(loop.order) < 3 or not self.added:
            return False
        rows = [loop.values.rows[n] for n in loop.cone() if not loop.loaded(n)]
        read = [r.dtype for r in rows if r.op == "load" and any(r.name[1].stride(k) for k in loop.order[-2:])]
        sizes = {numpy_dtype(d).itemsize for d in (*read, *(loop.values.rows[f].dtype for f in loop.stage.folds))}
        return len(sizes) == 1 and all(axes == (loop.order[-2],) for axes, _ in loop.sources.values())

    def in_registers(self, low: str, high: str) -> list[str]:
        """The loop over rows that stands before the depth and the columns. The vectors are around the depth: each has
        an accumulator for every row, and goes on to the result from there where nothing else is needed."""
        loop, depth = self.loop, len(self.loop.order) - 3
        rows, deep, _ = loop.order[depth:]
        k, held = var(rows), loop.space.held
        own = [n for n in loop.cone() if rows in loop.space.under(n)]
        body = [x for n in loop.cone() if n not in own and loop.depth(n) > depth for x in loop.row(n)]
        for i in range(held):
            lines = (*(x for n in own for x in loop.row(n)), *loop.sums(f"a{i}_"))
            body += ["{", *("  " + of_row(x, k, i) for x in lines), "}"]
        sums = [(f, i) for f in loop.stage.folds for i in range(held)]
        begin, end = loop.bounds(deep)
        body = [
            *(f"{variable(loop.values.rows[f].dtype)} a{i}_{f} = {loop.empty(f, 'a')};" for f, i in sums),
            f"for (int64_t {var(deep)} = {begin}; {var(deep)} < {end}; {var(deep)}++) {{",
            *("  " + x for x in body),
            "}",
        ]
        ending = loop.finishing
        if ending is None:
            body += [f"{of_row(loop.e.buffer(f), k, i)} = a{i}_{f};" for f, i in sums]
            return self._over(depth, held, low, high, (), body)
        for i in range(held):
            lines = (*(x for n in ending.cone() for x in ending.row(n, f"a{i}_")), *ending.written())
            body += ["{", *("  " + of_row(x, k, i) for x in lines), "}"]
        rows = self._over(depth, held, low, high, (), body)
        return [f"int64_t {done(k)} = {low};", *rows[:-1], f"  {done(k)} = {k}_at;", rows[-1]]

    def _over(
        self,
        depth: int,
        many: int,
        low: str,
        high: str,
        before: Sequence[str],
        body: Sequence[str],
        asking: Sequence[str] = (),
    ) -> list[str]:
        """A loop over rows, so many at a time, with a body that is made of vectors; those that are left one by one.
        `asking`: for what is read soon, piece by piece of the innermost axis."""
        loop = self.loop
        k, v = var(loop.order[depth]), var(loop.order[-1])
        begin, end = loop.bounds(loop.order[-1])
        rest = ["  " + x for x in loop.nest(depth + 1)]

        def inner(first: str, last: str) -> list[str]:
            loops = f"for (int64_t {v} = {first}; {v} < {last}; {v}++) {{"
            return [loop.pragma(body), loops, *("  " + x for x in body), "}"]

        vectors = in_whole(v, ROWS_ASKED, begin, end, asking, inner) if asking else inner(begin, end)
        lines = [
            f"int64_t {k}_at = {low};",
            f"for (; {k}_at + {many} <= {high}; {k}_at += {many}) {{",
            *("  " + x for x in before),
            *("  " + x for x in vectors),
            "}",
            f"for (int64_t {k} = {k}_at; {k} < {high}; {k}++) {{",
            *rest,
            "}",
        ]
        return ["{", *("  " + x for x in lines), "}"]


def in_pairs(x: str, many: int) -> Iterator[str]:
    """So many numbers, which are called after `x`, become one in pairs; the last line is the name of that."""
    half = many // 2
    while half:
        yield from (f"{x}_{i} = {x}_{i} + {x}_{i + half};" for i in range(half))
        half //= 2
    yield f"{x}_0"


def done(axis: str) -> str:
    """The variable that says how many rows have their result already."""
    return f"{axis}_done"


def of_row(line: str, axis: str, i: int, along: frozenset[int] = frozenset()) -> str:
    """A line for the i-th of several rows; values `along` have names of their own for each."""
    line = re.sub(rf"\b{axis}\b", f"({axis}_at + {i})", line)
    return re.sub(r"\br(\d+)\b", lambda m: f"{m[0]}_{i}" if int(m[1]) in along else m[0], line)
