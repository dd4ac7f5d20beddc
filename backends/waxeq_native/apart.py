"""C text of loops over rows of a few neighbours each, written out: these are taken apart in pieces before the loop.

Compilers take such a group apart in registers. gcc 12 does so by instructions that carry numbers across the middle of a
register, which take a Zen 3 two cycles: six of them for every register of a row of eight. Rows four apart as the halves
of a register need none, for numbers change places within halves only: 0.4 of the time of such a fold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.asked import in_pieces
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.nest import Loop
from waxeq_cfamily.past import Line, Past
from waxeq_cfamily.pipelined import Pipelined
from waxeq_cfamily.scalars import CTYPES, var, variable
from waxeq_cfamily.stages import Stage
from waxeq_cfamily.turned import turns
from waxeq_cfamily.values import Atom, Index, Row, pointed

_PIECE, _SHORTEST = 128, 32
"""Places of a loop whose neighbours are taken apart in one go, so that all of them lie in the first cache; and those
that a loop has at least."""
_LANES, _BYTES = 4, 4
"""Neighbours that are taken apart at once, in half a register, and the bytes of each. Compilers are as fast with pairs,
and with numbers of eight bytes, of which a half has no more."""
_NEAREST, _FARTHEST = 3, 64
"""How many elements rows are apart at least and at most: of what is further apart few are read of each line."""

HELD = "#if defined(WX_TURNS) && defined(__AVX__) && !defined(__AVX512F__)"
"""Where this is worth it: vectors of sixteen are taken apart by two instructions a register, and other machines read
neighbours apart."""

TEXT = """\
#ifndef WX_APART
#define WX_APART
/* `to[j * room + i]` becomes neighbour j of row i, for j from `first` to before `last`, which are constants, and `rows`
   rows that lie `step` numbers apart. `safe`: how many rows have four neighbours that lie in the array. */
#ifdef WX_TURNS
typedef uint32_t wx_row_of_four __attribute__((vector_size(16)));
static inline __attribute__((always_inline)) wx_eight wx_apart_two(const wx_number *f, const wx_number *g) {
  wx_row_of_four x, y;
  __builtin_memcpy(&x, f, 16);
  __builtin_memcpy(&y, g, 16);
  return __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7);
}
#define WX_APART_NEIGHBOUR(j, ...) \\
  if (first <= (j) && (j) < last) { \\
    const wx_eight found = __builtin_shufflevector(__VA_ARGS__); \\
    __builtin_memcpy(to + (j) * room, &found, 32); \\
  }
static inline __attribute__((always_inline)) void wx_apart_eight(
    const wx_number *f, int64_t step, int first, int last, wx_number *to, int64_t room) {
  const wx_eight a = wx_apart_two(f, f + 4 * step), b = wx_apart_two(f + step, f + 5 * step);
  const wx_eight c = wx_apart_two(f + 2 * step, f + 6 * step), d = wx_apart_two(f + 3 * step, f + 7 * step);
  const wx_eight s = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
  const wx_eight t = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13);
  const wx_eight u = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
  const wx_eight v = __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
  WX_APART_NEIGHBOUR(0, s, t, 0, 1, 8, 9, 4, 5, 12, 13)
  WX_APART_NEIGHBOUR(1, s, t, 2, 3, 10, 11, 6, 7, 14, 15)
  WX_APART_NEIGHBOUR(2, u, v, 0, 1, 8, 9, 4, 5, 12, 13)
  WX_APART_NEIGHBOUR(3, u, v, 2, 3, 10, 11, 6, 7, 14, 15)
}
#endif
static inline __attribute__((always_inline)) void wx_apart(
    const void *from, int64_t step, int64_t rows, int64_t safe, int first, int last, void *into, int64_t room) {
  const wx_number *f = (const wx_number *)from;
  wx_number *to = (wx_number *)into;
  int64_t i = 0;
#ifdef WX_TURNS
  const int64_t inside = rows < safe ? rows : safe;
  if (inside >= 8) {
    for (; i + 8 <= inside; i += 8) wx_apart_eight(f + i * step, step, first, last, to + i, room);
    if (i < inside) wx_apart_eight(f + (inside - 8) * step, step, first, last, to + inside - 8, room);
    i = inside;
  }
#endif
  for (; i < rows; i++)
    for (int j = first; j < last; j++) to[j * room + i] = f[i * step + j];
}
#endif
"""


@dataclass(frozen=True)
class _Taken:
    """Neighbours that are taken apart at once, some of those that are read `along` these terms of an operand: from the
    place `start` of a row on. Those from `first` to `last` are read and in no other group. `beyond`: how many rows at
    the end of the axis may have fewer neighbours from `start` on than are taken apart at once."""

    along: _Along
    start: int
    first: int
    last: int
    beyond: int


@dataclass(frozen=True)
class _Along:
    """What some rows read: an operand of a dtype along these terms, one row of it `step` elements after another."""

    operand: int
    dtype: str
    terms: tuple[tuple[Atom, int], ...]
    step: int

    @staticmethod
    def of(r: Row, axis: str, operands: Sequence[str]) -> tuple[_Along, int] | None:
        """What a row reads along an axis, and its place among neighbours; None where that cannot be taken apart.
        Nothing may lie where a guard does not hold."""
        if r.op != "load" or r.guards or numpy_dtype(r.dtype).itemsize != _BYTES:
            return None
        operand, where = r.name
        step = where.stride(axis)
        if any(pointed(where)) or step is None or not _NEAREST <= step <= _FARTHEST:
            return None
        first, apart = _told(operands, operand)
        return _Along(first, r.dtype, where.terms, step), where.const + apart // _BYTES

    def taken(self, places: Sequence[int]) -> Iterator[_Taken]:
        """How the elements at these places of each row, in rising order, are taken apart."""
        done = places[0] - 1
        for p in places:
            if p <= done:
                continue
            start = max(places[0], min(p, places[-1] - _LANES + 1))
            done = max(q for q in places if q < start + _LANES)
            more = max(0, start + _LANES - 1 - places[-1])
            yield _Taken(self, start, p - start, done - start + 1, -(-more // self.step))


def _told(operands: Sequence[str], n: int) -> tuple[int, int]:
    """The operand of which another is a column by its text, and how many bytes from there it begins; else itself."""
    for first, text in enumerate(operands[:n]):
        apart = operands[n].removeprefix(f"({text} + ").removesuffix(")")
        if apart.isdecimal() and int(apart) % _BYTES == 0:
            return first, int(apart)
    return n, 0


class _Apart(Loop):
    """The text of a stage, what its innermost loop reads taken apart where most of the neighbours are read."""

    @cached_property
    def taken(self) -> tuple[_Taken, ...]:
        places: dict[_Along, set[int]] = {}
        for along, place in self._read.values():
            places.setdefault(along, set()).add(place)
        found = ((along, [*along.taken(sorted(some))]) for along, some in places.items())
        return tuple(g for along, groups in found if len(places[along]) >= 2 * len(groups) for g in groups)

    @cached_property
    def _read(self) -> Mapping[int, tuple[_Along, int]]:
        """What the rows of the innermost loop read, and where, in a loop that folds nothing."""
        if self.stage.folds or not self.stage.straight or not self.order:
            return {}
        *others, v = self.order
        if self.space.width(v) < _SHORTEST or (others and turns(self)):
            return {}
        rows = {n: _Along.of(self.values.rows[n], v, self.e.operands) for n in self.cone() if not self.loaded(n)}
        return {n: read for n, read in rows.items() if read is not None}

    @cached_property
    def _places(self) -> Mapping[int, str]:
        """Where elements of rows lie that were taken apart."""
        v, found = var(self.order[-1]), dict[int, str]()
        for n, (along, place) in self._read.items():
            for i, g in enumerate(self.taken):
                nth = place - g.start
                if g.along == along and g.first <= nth < g.last:
                    found[n] = f"apart{i}[{nth}][{v} - {v}_apart]"
        return found

    def row(self, n: int, held: str = "") -> Iterator[str]:
        if n in self._places:
            yield f"const {variable(self.values.rows[n].dtype)} r{n} = {self._places[n]};"
        else:
            yield from super().row(n, held)

    def innermost(self, low: str, high: str, most: int | None = None) -> list[str]:
        k = self.order[-1]
        first, last = f"{var(k)}_apart", f"{var(k)}_last"
        most = self.space.width(k) if most is None else most
        inside = [*self._before(first, last), *super().innermost(first, last, min(most, _PIECE))]
        return in_pieces(var(k), _PIECE, low, high, inside, first, last)

    def _before(self, first: str, last: str) -> Iterator[str]:
        """What is read from the place `first` of the loop to the place `last` is taken apart."""
        v, size = var(self.order[-1]), self.values.sizes[self.order[-1]]
        for i, g in enumerate(self.taken):
            where = f"x{g.along.operand} + {self.e.index(Index(g.along.terms, g.start))}"
            rows = f"{last} - {first}, {size - g.beyond} - {first}"
            yield f"WX_ALIGNED {CTYPES[g.along.dtype]} apart{i}[{_LANES}][{_PIECE}];"
            yield f"{{ const int64_t {v} = {first};"
            yield f"  wx_apart({where}, {g.along.step}, {rows}, {g.first}, {g.last}, apart{i}, {_PIECE}); }}"


class _ApartLine(_Apart, Line):
    """The same of the elements of a line, which lie in a piece that is taken apart around it."""


class _ApartPast(_Apart, Past):
    """The same of a stage whose results go past the cache by lines."""

    lines = _ApartLine


_KINDS: Mapping[type[Loop], type[_Apart]] = {Loop: _Apart, Past: _ApartPast}


@dataclass(frozen=True)
class Apart(Emitter):
    """Text of a walk with what its loops read taken apart, where machines gain by that, and else as usual."""

    usual: ClassVar[type[Emitter]] = Emitter

    def loop(self, stage: Stage) -> Loop:
        loop = super().loop(stage)
        kind = _KINDS.get(type(loop))
        own = None if kind is None else kind(self, stage)
        return loop if own is None or not own.taken else own

    @cached_property
    def takes(self) -> bool:
        """Whether anything is taken apart."""
        return any(isinstance(self.loop(s), _Apart) for s in self.space.stages if s.product is None)

    def function(self, name: str) -> str:
        return f"{TEXT}{super().function(name)}" if self.takes else super().function(name)

    def walked(self) -> Iterator[str]:
        if not self.takes:
            yield from super().walked()
            return
        as_usual = self.usual(**{f.name: getattr(self, f.name) for f in fields(self)})
        yield from (HELD, *super().walked(), "#else", *as_usual.walked(), "#endif")


@dataclass(frozen=True)
class PipelinedApart(Apart, Pipelined):
    """The same of walks whose stages may go side by side."""

    usual = Pipelined
