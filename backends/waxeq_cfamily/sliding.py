"""C text of loops that read each other at places around their own, all of them in one walk over rows: of what one
makes, the rows that a later one still reads lie in cache, each in the place of one that is read no more.

Sources: tiles that overlap, with windows that slide through them (J. Ragan-Kelley et al., Halide, PLDI 2013); loops one
row behind the other (M. Wolfe, Loop skewing, 1986).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from waxeq.backend.call import View
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.asked import LINE
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.scalars import CTYPES, nth, var, widened
from waxeq_cfamily.stages import Space
from waxeq_cfamily.sweeps import Places, Sweep, place, reach, shifted
from waxeq_cfamily.values import Index, Unsupported, Values

_RINGS = 1 << 17
"""Bytes of all rows that are kept at a time: they lie in the second cache with what is read."""

_ROWS = 64
"""Rows that a tile has at least: its first ones are made by the tile before as well."""

_TILES = 4
"""Tiles of rows that each thread takes, so that one can help another."""

_COLUMNS = 256
"""Elements of a row from which it is worth the beginnings of its loops."""

_LANES = 16
"""Elements that rows in cache begin at multiples of, and most vectors of a loop too: what lies across two lines is read
and written twice (four sweeps of Jacobi 2048^2 took 1.15 times as long)."""

_TWICE = 0.25
"""The part of a tile that may be made by its neighbours as well."""


@dataclass(frozen=True)
class Walk:
    """How sweeps are walked: along axis number `rows` row by row (None: there is one), tiles of `height` rows and
    `width` elements of the last axis; the axes numbered `points` are apart. The last sweeps make the `results`, which
    no other one reads."""

    sweeps: tuple[Sweep, ...]
    rows: int | None
    points: tuple[int, ...]
    height: int
    width: int
    results: int = 1

    @staticmethod
    def of(found: tuple[Sweep, ...], threads: int, results: int = 1) -> Walk:
        """Raises Unsupported where rows that must be kept fit no cache."""
        last, sizes = len(found[-1].axes) - 1, _sizes(found[-results:])
        moved = [*shifted(found)]
        if last < 0 or any(i.stride(s.axes[last]) != 1 for s in found[-results:] for _, i in s.values.results):
            raise Unsupported("no axis along which the result lies side by side")
        rows = next((i for i in moved if i != last), None)
        points = tuple(i for i in range(last) if i not in moved)
        height = 1 if rows is None else min(sizes[rows], max(_ROWS, -(-sizes[rows] // (_TILES * threads))))
        width = sizes[last]
        while (walk := Walk(found, rows, points, height, width, results)).bytes > _RINGS:
            width = -(-width // (2 * _LANES)) * _LANES
            if width < _COLUMNS:
                raise Unsupported("rows that fit no cache")
        if max(walk.twice(n) for n in range(len(found))) > _TWICE:
            raise Unsupported("tiles of which most is made by others too")
        return walk

    @cached_property
    def reach(self) -> tuple[tuple[Places, ...], ...]:
        return reach(self.sweeps, self.results)

    @property
    def first(self) -> int:
        """The number of the first sweep that makes a result; what those before it make is read by others."""
        return len(self.sweeps) - self.results

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Elements along each axis that tiles cover."""
        return _sizes(self.sweeps[self.first :])

    def along(self, n: int) -> Places:
        """At which rows around one of the result sweep n is needed."""
        return (0, 0) if self.rows is None else self.reach[n][self.rows]

    def beside(self, n: int) -> Places:
        """At which elements of the last axis around one of the result sweep n is needed."""
        return self.reach[n][-1]

    def twice(self, n: int) -> float:
        """What part of a tile of sweep n its neighbours make as well, in addition to the tile."""
        high, wide = self.tiles()
        rows, columns = (b - a for a, b in (self.along(n), self.beside(n)))
        return (1 + (high > 1) * rows / self.height) * (1 + (wide > 1) * columns / self.width) - 1

    def kept(self, n: int) -> int:
        """Rows of sweep n that are kept at a time: a power of two, so that a place is found by a mask."""
        if self.rows is None:
            return 1
        reads = ((m, s.reads[n][self.rows][0]) for m, s in enumerate(self.sweeps) if n in s.reads)
        oldest = min(self.along(m)[1] + low for m, low in reads)
        return 1 << (self.along(n)[1] - oldest).bit_length()

    def begin(self, n: int) -> int:
        """The element of the last axis, counted from a tile's first, that rows of sweep n begin with in cache."""
        return self.beside(n)[0] // _LANES * _LANES

    def spans(self, n: int) -> Mapping[str, int]:
        """Elements of sweep n that a row has room for in cache, along its inner axes: of the last one all that a tile
        may need, those before its beginning too, in whole lines."""
        s, inner = self.sweeps[n], self.inner(n)
        lines = -(-(self.width + self.beside(n)[1] - self.begin(n)) // _LANES)
        return {**{k: s.values.sizes[k] for k in inner}, inner[-1]: lines * _LANES}

    def inner(self, n: int) -> tuple[str, ...]:
        """Axes of the loops inside a row of sweep n, the last one innermost."""
        return tuple(k for i, k in enumerate(self.sweeps[n].axes) if i != self.rows and i not in self.points)

    def address(self, n: int, where: Index) -> str | None:
        """Where the element of a tile's first column is that sweep n finds there in the next step of the walk. None
        where rows do not lie side by side in one loop."""
        s, inner = self.sweeps[n], self.inner(n)
        if self.rows is None or len(inner) != 1 or where.stride(inner[0]) != 1:
            return None
        at = {inner[0]: "left", s.axes[self.rows]: f"(now + {self.along(n)[1] + 1})"}
        at |= {s.axes[i]: f"at{i}" for i in self.points}
        if not all(a in at for a, _ in where.terms):
            return None
        return " + ".join([*(f"{at[a]} * {c}" for a, c in where.terms if isinstance(a, str)), str(where.const)])

    def row(self, n: int) -> int:
        """Elements that a row of sweep n takes in cache."""
        return math.prod(self.spans(n).values())

    @cached_property
    def bytes(self) -> int:
        rows = range(self.first)
        return sum(self.kept(n) * self.row(n) * numpy_dtype(self.dtype(n)).itemsize for n in rows)

    def dtype(self, n: int) -> str:
        values = self.sweeps[n].values
        return values.rows[values.root].dtype

    def tiles(self) -> tuple[int, int]:
        """Tiles along the rows, and along the last axis."""
        sizes = self.sizes
        high = 1 if self.rows is None else -(-sizes[self.rows] // self.height)
        return high, -(-sizes[-1] // self.width)

    def tasks(self) -> int:
        return math.prod((*self.tiles(), *(self.sizes[i] for i in self.points)))

    def space(self, n: int) -> Space:
        """The walk of one row of sweep n. Raises Unsupported where it is not one loop nest."""
        s, inner = self.sweeps[n], self.inner(n)
        low, high = self.beside(n)
        values = s.values if n >= self.first else self._kept_at(n)
        outer = tuple(k for k in s.axes if k not in inner)
        made = Space(values, outer, {inner[-1]: self.width + high - low}, (inner[-1],))
        if len(made.stages) != 1 or made.buffered:
            raise Unsupported("a sweep of several loops")
        return made

    def _kept_at(self, n: int) -> Values:
        """The values of a sweep, written to a row in cache."""
        s, where = self.sweeps[n], Index()
        step = 1
        for k, span in reversed([*self.spans(n).items()]):
            where = where.plus(Index.of(k).scaled(step))
            step *= span
        return Values(s.values.rows, s.values.sizes, where.plus(Index.of(_origin(n)).scaled(-1)))


def _sizes(results: Sequence[Sweep]) -> tuple[int, ...]:
    """The largest of each axis among some sweeps."""
    return tuple(map(max, zip(*(s.sizes() for s in results), strict=True)))


def _origin(n: int) -> str:
    """The C name of the element of the last axis that rows of sweep n begin with in cache."""
    return f"origin{n}"


@dataclass(frozen=True)
class Sought:
    """A row of an array that is asked for a step of the walk before it is needed: the address of its element number
    `left` is `text`, its elements take `size` bytes."""

    text: str
    size: int
    write: bool = False

    def lines(self, many: int) -> Iterator[str]:
        """Asks for the next so many elements."""
        for at in range(max(1, -(-many * self.size // LINE))):
            yield f"__builtin_prefetch({self.text} + next + {at * LINE // self.size}{', 1' * self.write});"


def sought(
    walk: Walk, operands: Sequence[View], shared: Sequence[Hashable], results: Sequence[str]
) -> tuple[Sought, ...]:
    """What is asked for: of each array the row that any sweep reads first, and the row of each result. `operands` are
    the meaning's own, those of one buffer have equal names in `shared`; `results`: the texts of their addresses."""
    if walk.rows is None:
        return ()
    found: dict[Hashable, tuple[int, Sought]] = {}
    for n, s in enumerate(walk.sweeps):
        for r in s.values.rows:
            if r.op != "load" or r.name[0] >= len(operands):
                continue
            k, where = r.name
            step, text = where.stride(s.axes[walk.rows]), walk.address(n, where)
            if text is None or not step or step < 0:
                continue
            place = operands[k].offset + where.const + step * walk.along(n)[1]
            group = shared[k] if shared else k
            if group not in found or found[group][0] < place:
                found[group] = place, Sought(f"x{k} + {text}", numpy_dtype(r.dtype).itemsize)
    written = []
    ends = ((n, row) for n in range(walk.first, len(walk.sweeps)) for row in walk.sweeps[n].values.results)
    for (n, (row, where)), result in zip(ends, results, strict=True):
        dtype, text = walk.sweeps[n].values.rows[row].dtype, walk.address(n, where)
        if text is not None:
            written.append(Sought(f"({CTYPES[dtype]} *){result} + {text}", numpy_dtype(dtype).itemsize, True))
    return (*(row for _, row in found.values()), *written)


@dataclass(frozen=True)
class Row(Emitter):
    """Text of one row of sweep `number` of a walk; operands from number `own` on are earlier sweeps. What is `sought`
    is asked for bit by bit, as a core waits for so many lines only: a part in each sweep, by its whole pieces; the last
    of a part, and rows shorter than a piece, come when they are read."""

    walk: Walk | None = None
    number: int = 0
    own: int = 0
    sought: tuple[Sought, ...] = ()
    converts: ClassVar[bool] = False
    ahead: ClassVar[str | None] = None
    lined: ClassVar[int] = _LANES
    grouped: ClassVar[bool] = False

    def text(self) -> list[str]:
        """What is done for one step of the walk."""
        return [*self._hidden(), *self.point()]

    def pointers(self) -> Iterator[str]:
        """The addresses of all operands, and of the result."""
        return self._pointers()

    @cached_property
    def _walk(self) -> Walk:
        assert self.walk is not None
        return self.walk

    def place(self) -> Iterator[str]:
        """The place of the row: sweeps that others read are ahead of those."""
        w, n = self._walk, self.number
        axes = w.sweeps[n].axes
        if w.rows is not None:
            yield f"const int64_t {var(axes[w.rows])} = now + {w.along(n)[1]};"
        for i in w.points:
            yield f"const int64_t {var(axes[i])} = at{i};"
        v, size, (low, high) = var(axes[-1]), w.sweeps[n].sizes()[-1], w.beside(n)
        yield f"const int64_t {v}_lo = left + {low} > 0 ? left + {low} : 0;"
        yield f"const int64_t {v}_hi = right + {high} < {size} ? right + {high} : {size};"
        if n < len(w.sweeps) - 1:
            places = [f"ring{n}{self._slot(n, 0)}"] if n < w.first else [row[1] for row in self.named()]
            for i, place in enumerate(places):
                t = CTYPES[self.values.rows[self.values.results[i][0]].dtype]
                yield f"{t} *restrict out{nth(i)} = {place};"

    def named(self) -> Iterator[tuple[str, str, str]]:
        """Of each result of the row its type, its name in the function, and the text of its address."""
        for i, ((n, _), text) in enumerate(zip(self.values.results, (self.result, *self.others), strict=True)):
            yield CTYPES[self.values.rows[n].dtype], f"result{self.number}{nth(i)}", text

    def soon(self, v: str, many: int) -> Iterator[str]:
        w, parts = self._walk, len(self._walk.sweeps)
        if not self.sought:
            return
        yield f"const int64_t next = {self.number * w.width // parts} + ({v}_at - left) / {parts};"
        for row in self.sought:
            yield from row.lines(many // parts)

    def _slot(self, n: int, beside: int) -> str:
        """Where a row of sweep n lies, so many rows on from that of this one."""
        w = self._walk
        if w.rows is None:
            return ""
        row = f"({var(w.sweeps[self.number].axes[w.rows])} + {beside})"
        return f" + ({row} & {w.kept(n) - 1}) * {w.row(n)}"

    def _expression(self, n: int) -> str:
        r = self.values.rows[n]
        if r.op != "load" or r.name[0] < self.own:
            return super()._expression(n)
        element = widened(self._element(r.name[0] - self.own, r.name[1]), r.dtype)
        holds = self.holds(r.guards)
        return {"1": element, "0": "0"}.get(holds, f"({holds} ? {element} : 0)")

    def _element(self, m: int, where: Index) -> str:
        """An element that sweep m has made."""
        w, axes = self._walk, self._walk.sweeps[m].axes
        found, step = place(where, sorted(axes)), 1
        assert found is not None, "what is read otherwise is no sweep"
        inside = Index.of(_origin(m)).scaled(-1)
        for k, span in reversed([*w.spans(m).items()]):
            along, beside = found[k]
            inside = inside.plus(Index(((along, step),), beside * step))
            step *= span
        slot = self._slot(m, 0 if w.rows is None else found[axes[w.rows]][1])
        return f"ring{m}[{self.index(inside)}{slot}]"


def function(rows: Sequence[Row], name: str) -> str:
    """The whole function: a task is a tile of the results."""
    last = rows[-1]
    w = last._walk
    lines = [f"void {name}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{", "  (void)thread;"]
    lines += last.pointers()
    for r in rows[w.first : -1]:
        lines += [f"  {t} * restrict {name} = ({t} *)({text});" for t, name, text in r.named()]
    lines.append("  for (int64_t t = begin; t < end; t++) {")
    lines += ["    " + x for x in (*_tile(w), *_rings(w))]
    body = [x for r in rows for x in _step(w, r)]
    if w.rows is None:
        return "\n".join([*lines, *("    " + x for x in body), "  }", "}"])
    before = max(high - low for low, high in map(w.along, range(len(rows))))
    lines.append(f"    for (int64_t now = low - {before}; now < high; now++) {{")
    return "\n".join([*lines, *("      " + x for x in body), "    }", "  }", "}"])


def _tile(w: Walk) -> Iterator[str]:
    """The places of a tile, from its number."""
    (high, wide), sizes, rest = w.tiles(), w.sizes, "t"
    yield f"const int64_t left = {rest} % {wide} * {w.width};"
    yield f"const int64_t right = left + {w.width} < {sizes[-1]} ? left + {w.width} : {sizes[-1]};"
    rest = f"{rest} / {wide}"
    if w.rows is not None:
        yield f"const int64_t low = {rest} % {high} * {w.height};"
        yield f"const int64_t high = low + {w.height} < {sizes[w.rows]} ? low + {w.height} : {sizes[w.rows]};"
        rest = f"{rest} / {high}"
    for i in reversed(w.points):
        yield f"const int64_t at{i} = {rest} % {sizes[i]};"
        rest = f"{rest} / {sizes[i]}"


def _rings(w: Walk) -> Iterator[str]:
    """The rows that are kept of each sweep, and which of its rows a tile needs."""
    for n in range(w.first):
        yield f"WX_ALIGNED {CTYPES[w.dtype(n)]} ring{n}[{w.kept(n) * w.row(n)}];"
        yield f"const int64_t {_origin(n)} = left + {w.begin(n)};"
    for n, s in enumerate(w.sweeps if w.rows is not None else ()):
        assert w.rows is not None
        (low, high), size = w.along(n), s.sizes()[w.rows]
        yield f"const int64_t first{n} = low + {low} > 0 ? low + {low} : 0;"
        yield f"const int64_t last{n} = high + {high} < {size} ? high + {high} : {size};"


def _step(w: Walk, r: Row) -> list[str]:
    """One row of a sweep, where it has that row and the tile needs it."""
    inside = ["  " + x for x in r.text()]
    if w.rows is None:
        return ["{", *inside, "}"]
    row = f"now + {w.along(r.number)[1]}"
    return [f"if ({row} >= first{r.number} && {row} < last{r.number}) {{", *inside, "}"]
