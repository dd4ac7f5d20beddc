"""C text of a loop over rows that are folded each and added to one row as well: it takes several of them at a time.

The row that they are added to is read and written once for so many, and takes them in in pairs, which rounds it less
often; their own folds do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from waxeq.ir.types import is_float
from waxeq_cfamily.asked import ROWS_ASKED, ask_row, rows_ahead
from waxeq_cfamily.converted import Converted
from waxeq_cfamily.nest import Loop
from waxeq_cfamily.scalars import var, variable
from waxeq_cfamily.several import in_pairs, of_row

if TYPE_CHECKING:
    from waxeq_cfamily.loops import Emitter
    from waxeq_cfamily.stages import Stage

_ROWS = 4
"""Rows at a time: memory is read from as many places, and each has a vector of its own. Eight that lie apart by a power
of two fill a first cache, and take 1.2 of the time where the next ones are asked for (Zen 4)."""


class Paired(Loop):
    """The text of a stage that `takes` says so of."""

    def __init__(self, e: Emitter, stage: Stage) -> None:
        super().__init__(e, stage)
        self.converted = Converted(self, never=True)  # several rows are read at a time

    @cached_property
    def added(self) -> list[int]:
        """The folds that add rows to one row."""
        return [f for f in self.stage.folds if f not in self.scalar]

    @staticmethod
    def takes(loop: Loop) -> bool:
        """Whether all that a stage does is to sum rows, and to add them to one row; what takes long to compute takes
        as long for several."""
        s, rows = loop.stage, loop.values.rows
        if s.kept or s.result or not s.straight or len(loop.order) < 2 or not loop.lanes.many:
            return False
        added = [f for f in s.folds if f not in loop.scalar]
        sums = all(rows[f].name == "sum" and is_float(rows[f].dtype) for f in s.folds)
        each = all(loop.sources[f][0] == (loop.order[-1],) and f in loop.space.buffered for f in loop.scalar)
        once = all(loop.depth(n) == len(loop.order) and not rows[n].costly for n in loop.cone())
        return bool(added) and sums and each and once and all(loop.sources[f][0] == (loop.order[-2],) for f in added)

    def nest(self, depth: int) -> list[str]:
        return super().nest(depth) if depth < len(self.order) else self._body()

    def opened(self, depth: int) -> list[str]:
        if depth != len(self.order) - 2:
            return super().opened(depth)
        alone = Loop(self.e, self.stage)
        alone.at, alone.converted = self.at, self.converted
        k, (low, high) = self.rows, self.bounds(self.order[depth])
        return [
            "{",
            f"  int64_t {k}_at = {low};",
            f"  for (; {k}_at + {_ROWS} <= {high}; {k}_at += {_ROWS}) {{",
            *("    " + x for x in self.nest(depth + 1)),
            "  }",
            f"  for (int64_t {k} = {k}_at; {k} < {high}; {k}++) {{",
            *("    " + x for x in alone.nest(depth + 1)),
            "  }",
            "}",
        ]

    @property
    def rows(self) -> str:
        return var(self.order[-2])

    asked_once = ROWS_ASKED

    def asked(self) -> Iterator[str]:
        """The next so many rows, into the second cache: in a first one of 32 KiB they would take the place of these,
        and of the row that is added to."""
        soon = [*ask_row(self, rows_ahead(self, _ROWS))]
        for i in range(_ROWS):
            yield from (of_row(x, self.rows, i) for x in soon)

    def accumulators(self, f: int, kind: str) -> tuple[str, ...]:
        return tuple(f"{kind}{f}_{i}" for i in range(_ROWS))

    def end(self, f: int) -> Iterator[str]:
        for i, x in enumerate(self.held(f)):
            yield from self.lanes.merged(f, x)
            yield of_row(f"{self.e.buffer(f)} = {self.lanes.whole(x)};", self.rows, i)

    def _body(self) -> list[str]:
        kinds = {f: variable(self.values.rows[f].dtype) for f in self.added}
        lines = [f"{t} {', '.join(f'p{f}_{i}' for i in range(_ROWS))};" for f, t in kinds.items()]
        for i in range(_ROWS):
            taken = [f"{(a := self.lanes.taken(f'a{f}_{i}'))} = {a} + {self._source(f)};" for f in self.scalar]
            taken += [f"p{f}_{i} = {self._source(f)};" for f in self.added]
            lines += ["{", *("  " + of_row(x, self.rows, i) for x in (*self.at[len(self.order)], *taken)), "}"]
        for f in self.added:
            *pairs, last = in_pairs(f"p{f}", _ROWS)
            lines += [*pairs, f"{self.e.buffer(f)} = {self.e.buffer(f)} + {last};"]
        return lines

    def _source(self, f: int) -> str:
        return self.e.name(self.sources[f][1])
