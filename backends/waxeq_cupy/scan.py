"""Running folds (prefix sums, products, extremes) with anything element-wise before and after them.

The ranks of a team have a row: each runs through some elements side by side, then through what the ranks before it
have. Where rows lie across memory a thread has a column of its own. Long rows of which there are few are cut in pieces:
a launch folds each, and in a second one a piece begins with the fold of those before it. The order of every fold is
fixed (G. E. Blelloch, Prefix Sums and Their Applications, 1990).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from waxeq.backend.call import Call
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import is_float, numpy_dtype
from waxeq_cfamily.resolved import INDEX_MAPS
from waxeq_cfamily.scalars import CTYPES, number, rounded, start, var
from waxeq_cfamily.scans import Scan
from waxeq_cfamily.split import piece
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Index, Unsupported
from waxeq_cupy.kernels import (
    MOST_BLOCKS,
    Launch,
    Loops,
    Slot,
    Work,
    decided,
    launched,
    library,
    operations,
    values_of,
)
from waxeq_cupy.pieces import WIDTHS, threaded
from waxeq_cupy.rows import step
from waxeq_cupy.sides import indented
from waxeq_cupy.text import Text
from waxeq_cupy.threads import divides, side_by_side

_THREADS, _WARP = 256, 32
_OWN = 4
"""Elements of a row that a rank runs through at least."""
_TEAMS, _COLUMNS = 264, 132 * 1024
"""Blocks, and threads with a column each, from which a large GPU has enough."""
_PIECE, _SHORT = 4096, 64
"""Elements that a piece of a row, of a column, has at least."""


@dataclass(frozen=True)
class Written:
    """The kernels of one scan."""

    scan: Scan
    dtypes: tuple[str, ...]
    replaced: frozenset[int]
    aligned: bool

    @cached_property
    def width(self) -> int:
        """Elements that are moved at once."""
        values, k = self.scan.values, self.scan.axis
        sizes = [numpy_dtype(d).itemsize for _, d in side_by_side(values, k)]
        if not self.scan.beside or not self.aligned or not sizes:
            return 1
        width = min(8, 16 // min(sizes))
        while values.sizes[k] % width or not all(divides(i, k, width) for i, _ in side_by_side(values, k)):
            width //= 2
        return width

    @property
    def own(self) -> int:
        """Elements that a rank runs through at a time."""
        return max(self.width, _OWN) if self.scan.beside else 1

    @cached_property
    def ranks(self) -> int:
        """Threads that share out a row."""
        if not self.scan.beside:
            return 1
        ranks = 1
        while ranks < _WARP and ranks * self.own < self.scan.size:
            ranks *= 2
        long = self.scan.size > 2 * _WARP * self.own and self.scan.points < _COLUMNS // _WARP
        return _THREADS if long or self.scan.size > 16 * _WARP * self.own else ranks

    @property
    def alone(self) -> bool:
        """Whether a thread waits for no other."""
        return not self.scan.beside

    @cached_property
    def piece(self) -> int | None:
        """Elements of a piece; None where a team has a whole row."""
        s = self.scan
        if s.beside:
            pieces, step = min(-(-_TEAMS // s.points), s.size // _PIECE), self.ranks * self.own
        else:
            pieces, step = min(-(-_COLUMNS // s.points), s.size // _SHORT, 64), 1
        if pieces < 2:
            return None
        width = -(-s.size // pieces // step) * step
        return width if width < s.size else None

    @property
    def pieces(self) -> int:
        return 1 if self.piece is None else -(-self.scan.size // self.piece)

    def work(self) -> Work:
        """Raises Unsupported."""
        s, reads = self.scan, tuple(range(len(self.dtypes)))
        beside = sum(operations(s.values, n) for n in range(len(s.values.rows))) + float(s.points * s.size)
        if self.piece is None:
            return Work((self._launch(reads, self.dtypes, None),), operations=beside)
        nest = threaded(s.totals(self.piece, WIDTHS, len(reads), s.dtype).space)
        slot = Slot(0, s.points * self.pieces, s.dtype)
        first = launched(nest, self.dtypes, frozenset(), reads, slot, self.aligned)
        last = self._launch((*reads, slot), (*self.dtypes, slot.dtype), nest.values.out)
        return Work((first, last), slot.room, 2.0 * beside)

    def _launch(self, reads: tuple[int | Slot, ...], dtypes: tuple[str, ...], before: Index | None) -> Launch:
        s, values = self.scan, self.scan.values
        space = Space(values, (*s.around, s.axis), {}, (s.axis,))
        text = Text(space, library(), (), "", dtypes, self.replaced, threads=_THREADS, width=self.width)
        text.check()
        teams = _THREADS // self.ranks
        blocks = -(-s.points * self.pieces // teams)
        if blocks > MOST_BLOCKS or s.points * self.pieces >= 1 << 31 or s.size >= 1 << 30:
            raise Unsupported("more than a launch has")
        body = self._body(text, before)
        return Launch(text.written(body), blocks, _THREADS, reads, None, bool(values.positions))

    # -- text

    def _body(self, text: Text, before: Index | None) -> Iterator[str]:
        s, i = self.scan, text.integer
        k, t, points = var(s.axis), CTYPES[s.dtype], s.points * self.pieces
        one = self.ranks == _THREADS
        yield f"const int rank = threadIdx.x % {self.ranks}; (void)rank;"
        yield f"{i} t = ({i})blockIdx.x{'' if one else f' * {_THREADS // self.ranks} + threadIdx.x / {self.ranks}'};"
        if points % (_THREADS // self.ranks):
            if self.alone:
                yield f"if (t >= {points}) return;"
            else:  # who waits for others does another's work again, and writes nothing
                yield f"const bool mine = t < {points};"
                yield f"t = mine ? t : {points - 1};"
        elif not self.alone:
            yield "const bool mine = true;"
        if self.piece is None:
            yield f"const {i} {k}_lo = 0, {k}_hi = {s.size};"
        else:
            columns = 1 if s.beside else s.points  # columns of one piece side by side
            number = f"t % {self.pieces}" if columns == 1 else f"t / {columns}"
            yield f"const {i} {k}_t = {number}, {k}_lo = {k}_t * {self.piece};"
            yield f"const {i} {k}_hi = {k}_lo + {self.piece} < {s.size} ? {k}_lo + {self.piece} : {s.size};"
            yield f"t = t {f'/ {self.pieces}' if columns == 1 else f'% {columns}'};"
        yield from text.places("t", s.around, s.values.sizes)
        yield "(void)t;"
        if self.ranks > _WARP:
            yield f"WX_SHARED({t}, s, {self.ranks // _WARP});"
        else:
            yield "int s = 0; (void)s;"
        yield f"{t} carry = {self._start};"
        if before is not None:
            yield from self._begun(text, before)
        yield from self._columns(text) if self.alone else self._rows(text)

    @property
    def _start(self) -> str:
        s = self.scan
        if s.kind == "sum" and is_float(s.dtype):
            return number("-0.0", s.dtype)  # what changes no number, -0 neither
        return start(s.kind, s.dtype)

    @property
    def _fold(self) -> str:
        return f"{step(self.scan.kind, self.scan.dtype)}::of<{CTYPES[self.scan.dtype]}>"

    def _begun(self, text: Text, before: Index) -> Iterator[str]:
        """The fold of the pieces before this one."""
        k, t = var(self.scan.axis), CTYPES[self.scan.dtype]
        yield f"for (int {var(piece(self.scan.axis))}_q = rank; {var(piece(self.scan.axis))}_q < {k}_t; "
        yield f"     {var(piece(self.scan.axis))}_q += {self.ranks}) {{"
        yield f"  const {text.integer} {var(piece(self.scan.axis))} = {var(piece(self.scan.axis))}_q;"
        yield f"  carry = {self._fold}(carry, x{len(self.dtypes)}[{text.index(before)}]);"
        yield "}"
        if self.ranks > 1:
            kind = step(self.scan.kind, self.scan.dtype)
            yield f"carry = wx_folded<{kind}, 1, {self.ranks}, {t}>(carry, s);"

    def _known(self, text: Text, value: str) -> str:
        """The scan's variable: sums of narrow floats are rounded there where they are not the result."""
        n = self.scan.row
        r = self.scan.values.rows[n]
        return text.known(n, rounded(value, r.dtype) if n != self.scan.values.root else value)

    def _made(self, text: Text) -> tuple[list[int], list[int]]:
        """Rows that are needed before the scan, and those after it."""
        (source,) = self.scan.values.rows[self.scan.row].args
        return text.need([source], ()), text.need([self.scan.values.root], (self.scan.row,))

    def _columns(self, text: Text) -> Iterator[str]:
        s, i, k = self.scan, text.integer, var(self.scan.axis)
        first, last = self._made(text)
        (source,) = s.values.rows[s.row].args
        yield "#pragma unroll 4"
        yield f"for ({i} {k} = {k}_lo; {k} < {k}_hi; {k}++) {{"
        for n in first:
            yield from indented(text.declared(n))
        yield f"  carry = {self._fold}(carry, {text.name(source)});"
        yield "  " + self._known(text, "carry")
        for n in (n for n in last if n not in first):
            yield from indented(text.declared(n))
        yield f"  out[{text.index(s.values.out)}] = {text.stored};"
        yield "}"

    def _rows(self, text: Text) -> Iterator[str]:
        s, i, k, t = self.scan, text.integer, var(self.scan.axis), CTYPES[self.scan.dtype]
        first, last = self._made(text)
        (source,) = s.values.rows[s.row].args
        kind = step(s.kind, s.dtype)
        yield f"for ({i} from = {k}_lo; from < {k}_hi; from += {self.ranks * self.own}) {{"
        yield f"  WX_KEPT({t}, h, {self.own});"
        yield from indented(self._each(text, first, [f"h[n + u] = {text.name(source)};"], f"h[n + u] = {self._start};"))
        yield f"  wx_ran<{kind}, {self.ranks}, {self.own}, {t}>(h, carry, s);"
        after = [self._known(text, "h[n + u]")]
        yield from indented(self._each(text, last, after, None, stored=True))
        yield "}"

    def _each(
        self, text: Text, rows: list[int], lines: list[str], else_: str | None, *, stored: bool = False
    ) -> Iterator[str]:
        """For the elements of a rank in groups that are moved at once: `rows`, and `lines` before (where they are
        `stored`) or after them; `else_` for those beyond the end."""
        s, i, k, w = self.scan, text.integer, var(self.scan.axis), self.width
        own = [n for n in rows if s.axis in s.values.rows[n].axes]
        wide = [n for n in own if text.wide(n, s.axis)]
        root = s.values.rows[s.values.root]
        together = stored and text.wide_result
        yield "#pragma unroll"
        yield f"for (int n = 0; n < {self.own}; n += {w}) {{"
        yield f"  const {i} {k}_at = from + rank * {self.own} + n;"
        yield f"  if ({k}_at < {k}_hi{' && mine' if stored else ''}) {{"
        yield from ("    " + x for n in rows if n not in own for x in text.declared(n))
        yield f"    const {i} {k} = {k}_at;"
        yield from ("    " + text.taken(n) for n in wide)
        if together:
            yield f"    wx_group<{CTYPES[root.dtype]}, {w}> all;"
        yield "    #pragma unroll"
        yield f"    for (int u = 0; u < {w}; u++) {{"
        yield f"      const {i} {k} = {k}_at + u;"
        made = [x for n in own for x in ([text.one(n, "u")] if n in wide else text.declared(n))]
        yield from ("      " + x for x in ([*lines, *made] if stored else [*made, *lines]))
        if stored:
            to = "all.at[u]" if together else f"out[{text.index(s.values.out)}]"
            yield f"      {to} = {text.stored};"
        yield "    }"
        if together:
            yield f"    wx_given<{w}>(out, {text.index(s.values.out)}, all);"
        if else_ is not None:
            yield "  } else {"
            yield f"    for (int u = 0; u < {w}; u++) {else_}"
        yield "  }"
        yield "}"


class Scans(Loops):
    """A running fold along one axis, with anything element-wise around it."""

    name = "scan"
    heads = INDEX_MAPS | {"Scan"}

    def matches(self, meaning: Term) -> bool:
        return any(t.head == "Scan" for t in postorder(meaning))

    def scan(self, call: Call) -> Scan:
        """The scan of a call. Raises Unsupported."""
        return decided(call, "cuda scan", lambda: Scan.of(values_of(call)))

    def _work(self, call: Call, aligned: bool) -> Work | None:
        try:
            s = self.scan(call)
            if call.out.elements == 0:
                return Work(())
            return Written(s, tuple(v.dtype for v in call.operands), frozenset(self.in_place(call)), aligned).work()
        except Unsupported:
            return None

    def in_place(self, call: Call) -> tuple[int, ...]:
        """None: pieces are read by two launches."""
        return ()


KERNELS = (Scans,)
