"""C text of folds whose accumulators are numbers side by side, which are put together in pairs at the end.

Compilers put the lanes of an `omp simd reduction` together one after another: that takes as long as dozens of vectors,
and the last lanes of a sum are added to what is large already. In pairs the error grows with the logarithm of their
number (N. J. Higham, The accuracy of floating point summation, 1993).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from waxeq.backend.extent import Extent
from waxeq_cfamily.scalars import carried, combine, var, variable
from waxeq_cfamily.stretches import stretches

if TYPE_CHECKING:
    from waxeq_cfamily.nest import Loop

LANES = 16
"""Numbers side by side in one accumulator: one vector of the widest machines."""


_FEWEST = 4
"""Elements of a row from which so many numbers are made side by side; fewer are left to the compiler."""


@dataclass(frozen=True)
class Lanes:
    """Of the folds that end in a stage's innermost loop."""

    loop: Loop

    @cached_property
    def many(self) -> int:
        """How many numbers an accumulator has; 0 where its form is left to the compiler: where the loop is no vector,
        or flags are folded beside."""
        loop = self.loop
        flags = loop.e.limited or bool(loop.values.positions)
        width = loop.space.width(loop.order[-1])
        if not loop.scalar or flags or not loop.stage.straight or width < _FEWEST:
            return 0
        if width >= LANES:
            return LANES * loop.chains
        return 0 if isinstance(width, Extent) else 1 << (width.bit_length() - 1)

    @property
    def wide(self) -> int:
        """How many of them are one vector."""
        return min(LANES, self.many)

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Into how many elements at a time the end of a row falls that fills no vector, where its length is known. They
        have accumulators of their own: a core waits for what was written in part and is read as a whole (a row of 100
        took 16 ns, and takes 6)."""
        k = self.loop.order[-1]
        size = self.loop.values.sizes[k]
        known = not isinstance(size, Extent) and self.loop.bounds(k) == ("0", str(size)) and not stretches(self.loop, k)
        if not self.many or self.loop.blocked or self.loop.converted.several or not known:
            return ()
        return tuple(n for n in (8, 4, 2, 1) if size % self.wide & n)

    def cleared(self, f: int, x: str) -> Iterator[str]:
        """The accumulator `x` of a fold before it has met anything."""
        empty = self.loop.empty(f, x)
        if not self.many:
            yield f"{self._dtype(f, x)} {x} = {empty};"
            return
        for n, name in ((self._count(x), x), *((n, _end(x, n)) for n in self.ends)):
            yield f"{self._dtype(f, x)} {name}[{n}];"
            yield from _once(n, f"{name}[lane] = {empty};")

    def taken(self, x: str) -> str:
        """The number of an accumulator that takes in an element."""
        return f"{x}[lane]" if self.many else x

    def together(self, f: int, x: str, other: str) -> Iterator[str]:
        """A sum takes in another."""
        yield from self._halved(f, other, self.many, least=self._count(x))
        yield from _once(self._count(x), f"{self.taken(x)} += {self.taken(other)};")

    @property
    def around_block(self) -> tuple[list[str], list[str]]:
        """What clears the accumulators of a block of a long sum, and what adds them to those of all blocks."""
        loop = self.loop
        begin = [x for f in loop.blocked for a in loop.accumulators(f, "a") for x in self.cleared(f, a)]
        pairs = [(f, *p) for f in loop.blocked for p in zip(loop.held(f), loop.accumulators(f, "a"), strict=True)]
        return begin, [x for p in pairs for x in self.together(*p)]

    def _count(self, x: str) -> int:
        """How many numbers an accumulator has: a sum of what blocks come to has no more than a vector where those are
        halved. It is float64: of four vectors of the widest machines narrower ones make 32."""
        return self.wide if x[0] == "s" and self.loop.e.halved else self.many

    def merged(self, f: int, x: str) -> Iterator[str]:
        """The numbers of an accumulator become its first one."""
        yield from self._halved(f, x, self._count(x))
        for n in self.ends:
            yield from self._halved(f, x, n, _end(x, n))
            yield f"{x}[0] = {self._both(f, x, f'{x}[0]', f'{_end(x, n)}[0]')};"

    def _halved(self, f: int, x: str, many: int, name: str = "", least: int = 1) -> Iterator[str]:
        a, half = f"{name or x}[lane]", many // 2
        while half >= max(1, least):
            yield from _once(half, f"{a} = {self._both(f, x, a, f'{a[:-1]} + {half}]')};")
            half //= 2

    def _both(self, f: int, x: str, a: str, b: str) -> str:
        r = self.loop.values.rows[f]
        return f"{a} | {b}" if x[0] == "n" else combine(r.name, r.dtype, a, b)

    def whole(self, x: str) -> str:
        """An accumulator when it is one number."""
        return f"{x}[0]" if self.many else x

    def text(self, body: Sequence[str], low: str, high: str) -> list[str]:
        """The innermost loop: so many elements at a time, one for each number; those that are left go to the first, or
        to accumulators of their own."""
        n, v = self.many, var(self.loop.order[-1])
        lines = [
            f"const int64_t {v}_whole = {low} + ({high} - {low}) / {n} * {n};",
            f"for (int64_t {v}_lane = {low}; {v}_lane < {v}_whole; {v}_lane += {n}) {{",
            *("  " + x for x in self.full(body)),
            "}",
            *self.left(body, high),
        ]
        return ["{", *("  " + x for x in lines), "}"]

    def left(self, body: Sequence[str], high: str) -> list[str]:
        """What is left of a row whose end is `high` after so many elements at a time."""
        n, k = self.many, self.loop.order[-1]
        v, size = var(k), self.loop.values.sizes[k]
        if self.ends:
            return [*self._left(body, v, size // n * n, size)]
        if k in self.loop.spans or size % n or self.loop.space.width(k) % n:
            return _each(f"{high} - {v}_whole", [f"  const int64_t {v} = {v}_whole + lane;", *body])
        return []

    def _left(self, body: Sequence[str], v: str, at: int, size: int) -> Iterator[str]:
        """The elements from `at` on of a row of this size."""
        if vectors := (size - at) // self.wide * self.wide:
            yield from _each(str(vectors), [f"  const int64_t {v} = {at} + lane;", *body])
            at += vectors
        for n in self.ends:
            moved = (re.sub(r"\b([ans]\d\w*)\[lane\]", lambda x, n=n: f"{_end(x[1], n)}[lane]", line) for line in body)
            yield from _each(str(n), [f"  const int64_t {v} = {at} + lane;", *moved])
            at += n

    def full(self, body: Sequence[str], low: int = 0, high: int | None = None) -> list[str]:
        """One element for each number, or for those of a part of them. NaN is looked for in two at once: one comparison
        tells of both."""
        high = self.many if high is None else high
        v = var(self.loop.order[-1])
        seen = [f for f in self.loop.scalar if self.loop.watches(f)]
        if not seen or self.many == LANES:
            return _each(str(high), [f"  const int64_t {v} = {v}_lane + lane;", *body], low)
        half = self.many // 2
        lines = [f"  {self._dtype(f, 'u')} u{f};" for f in seen]
        for i, place in enumerate(("lane", f"lane + {half}")):
            moved = (_paired(x, i).replace("[lane]", f"[{place}]") for x in body)
            lines += [f"  {{ const int64_t {v} = {v}_lane + {place};", *("  " + x for x in moved), "  }"]
        return _each(str(high // 2), lines, low // 2)

    def _dtype(self, f: int, x: str) -> str:
        if x[0] == "n":
            return "int32_t"
        return "double" if self._wide(f, x) else variable(self.loop.values.rows[f].dtype)

    def _wide(self, f: int, x: str) -> bool:
        """Whether an accumulator has more digits than what it takes in: where that costs nothing, one addition for many
        numbers or one at a time."""
        r = self.loop.values.rows[f]
        return r.name == "sum" and carried(r.dtype) == "float32" and (x[0] == "s" or not self.loop.stage.straight)


def _end(x: str, n: int) -> str:
    """The accumulator beside `x` that takes n elements of a row's end."""
    return f"{x}_end{n}"


def _paired(line: str, i: int) -> str:
    if (found := re.fullmatch(r"( *)n(\d+)\[lane\] \|= (\w+) != \3;", line)) is None:
        return line
    indent, f, x = found.groups()
    return f"{indent}n{f}[lane] |= __builtin_isunordered(u{f}, {x});" if i else f"{indent}u{f} = {x};"


def _once(many: int, line: str) -> Iterator[str]:
    """A line for each lane. Without being asked gcc makes scalars of an array that it unrolls a loop over."""
    if many > 1:
        yield "#pragma omp simd"
        yield f"for (int64_t lane = 0; lane < {many}; lane++) {line}"
    else:
        yield line.replace("lane + ", "").replace("[lane]", "[0]")


def _each(many: str, body: Sequence[str], low: int = 0) -> list[str]:
    return ["#pragma omp simd", f"for (int64_t lane = {low}; lane < {many}; lane++) {{", *body, "}"]
