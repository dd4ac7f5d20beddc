"""C text of loops whose results go past the cache from the registers that they were made in, a line at a time: nobody
reads them soon, and a line that is overwritten whole need not be fetched first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.asked import next_lines
from waxeq_cfamily.fission import Fission
from waxeq_cfamily.nest import Loop
from waxeq_cfamily.scalars import CTYPES, narrowed, nth, var
from waxeq_cfamily.values import Values

LINES = 16
"""Elements that are written at a time: one or two lines."""

_MANY = 128
"""Elements of a piece before which something is asked for."""


def in_lines(values: Values, axis: str) -> bool:
    """Whether all results lie side by side along an axis, and places of it that are multiples of `LINES` begin lines
    of theirs where the arrays do."""
    for n, where in values.results:
        if numpy_dtype(values.rows[n].dtype).itemsize not in (4, 8) or where.stride(axis) != 1 or where.const % LINES:
            return False
        if any(c % LINES for a, c in where.terms if a != axis):
            return False
    return True


class Line(Loop):
    """The text of the elements of a line."""

    def written(self) -> Iterator[str]:
        v = var(self.order[-1])
        for i in self.stage.results:
            n = self.values.results[i][0]
            result = narrowed(self.e.name(n), self.values.rows[n].dtype)
            yield f"line{nth(i)}[{v} - {v}_line] = {result};"


class Past(Loop):
    """The text of a stage whose results are `in_lines`. Only lines at the ends of a row, which others may have part
    of, go through the cache."""

    lines: ClassVar[type[Loop]] = Line
    """The text of the elements of a line, for the same stage."""

    @cached_property
    def streamed(self) -> bool:
        """Nothing goes past the cache a piece at a time."""
        return False

    @staticmethod
    def takes(loop: Loop) -> bool:
        """Whether what a stage writes past the cache a piece at a time can go there by lines instead."""
        return loop.streamed and in_lines(loop.values, loop.order[-1]) and Past._straight_on(loop)

    @staticmethod
    def _straight_on(loop: Loop) -> bool:
        """Whether results are all that the innermost loop makes, and are made in one loop."""
        return loop.stage.result and not loop.stage.folds and len(Fission(loop).parts) == 1

    def _vectors(self, low: str, high: str, most: int) -> list[str]:
        if most < LINES or not self._straight_on(self):
            return super()._vectors(low, high, most)
        v, body = var(self.order[-1]), self.nest(len(self.order))
        at, line = f"{v}_at", f"{v}_line"

        def plain(first: str, last: str) -> list[str]:
            text = [f"for (int64_t {v} = {first}; {v} < {last}; {v}++) {{", *("  " + x for x in body), "}"]
            return self._straight(text, v, first, last)

        return [
            f"{{ int64_t {at} = {low};",
            f"if ({at} % {LINES} && {at} + {LINES} <= {high}) {{",
            *plain(at, f"{at} + {LINES} - {at} % {LINES}"),
            f"  {at} += {LINES} - {at} % {LINES};",
            "}",
            *self._pieces(v, high, [*self.e.soon(v, _MANY)] if most >= _MANY else []),
            f"for (; {at} + {LINES} <= {high}; {at} += {LINES}) {{",
            f"  const int64_t {line} = {at};",
            *("  " + x for x in self._line(line)),
            "}",
            *plain(at, high),
            "}",
        ]

    def _pieces(self, v: str, high: str, soon: list[str]) -> Iterator[str]:
        """The loop over pieces of lines, where something is asked for before each."""
        if soon:
            at, line = f"{v}_at", f"{v}_line"
            yield f"for (; {at} + {_MANY} <= {high}; {at} += {_MANY}) {{"
            yield from ("  " + x for x in soon)
            yield f"  for (int64_t {line} = {at}; {line} < {at} + {_MANY}; {line} += {LINES}) {{"
            yield from ("    " + x for x in self._line(line))
            yield "  }"
            yield "}"

    def _line(self, line: str) -> Iterator[str]:
        """The elements from one that begins a line: a compiler keeps them in registers until they are written."""
        v = var(self.order[-1])
        body = self.lines(self.e, self.stage).nest(len(self.order))
        made = [(nth(i), CTYPES[self.values.rows[n].dtype], at) for i, (n, at) in enumerate(self.values.results)]
        yield from next_lines(self, line, f"{line} + {LINES}") if self.e.streams else ()
        yield from (f"WX_ALIGNED {t} line{i}[{LINES}];" for i, t, _ in made)
        yield "#pragma omp simd"
        yield f"for (int64_t {v} = {line}; {v} < {line} + {LINES}; {v}++) {{"
        yield from ("  " + x for x in body)
        yield "}"
        yield f"const int64_t {v} = {line};"
        for i, (name, _, _) in enumerate(made):
            yield f"wx_stream_lines(&{self.e.written(i)}, line{name}, sizeof line{name});"
