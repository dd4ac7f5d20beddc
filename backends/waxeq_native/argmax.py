"""First places of the largest or smallest elements along an axis, of anything element-wise.

Where a row lies side by side it goes through the first cache block by block: the extreme of a block takes one walk, and
its place is looked for only where that beats all before. Down columns each has its best so far, and the place of that.
What is only read is looked at where it lies. Long rows of which there are few are cut in pieces that threads share out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from waxeq.backend.call import Call, View
from waxeq.backend.kernel import Features
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq_cfamily.asked import LINE
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.resolved import INDEX_MAPS, resolve
from waxeq_cfamily.scalars import CTYPES, var
from waxeq_cfamily.settled import settled
from waxeq_cfamily.stages import Space
from waxeq_cfamily.taken import NAME
from waxeq_cfamily.values import Index, Row, Unsupported, Values
from waxeq_native.argmax_text import Pick
from waxeq_native.loops import FastLoops, Loops, operations
from waxeq_native.products import FRAME
from waxeq_native.steps import OPERANDS
from waxeq_native.work import Part, Work, kept, same

_PICKS = ("argmax", "argmin")
_DTYPES = ("float32", "float64", "int32", "int64", "uint32", "uint64")
"""Elements as wide as numbers of places are."""
_SHORTEST = 16
"""Elements of a row from which there is something to gain: shorter ones are written out by other kernels."""
_BLOCK, _COLUMNS, _NARROWEST = 2048, 2048, 128
"""Elements of a block that is made in cache; columns that are walked side by side, at most and at least."""
_PIECES, _LONG = 4, 1 << 14
"""Pieces for each thread, and the elements that one has at least."""
_PLACE = 16
"""Bytes of the best of a piece, with its place."""


@dataclass(frozen=True)
class _Way:
    """How the elements of a call are walked: those of `space`, whose values they are, along `axis`. `whole`: its blocks
    in a row, `blocks` of them for each piece. `places`: where the result of a row is written."""

    pick: Pick
    space: Space
    axis: str
    blocks: int
    places: Index

    @staticmethod
    def of(call: Call) -> _Way:
        """Raises Unsupported."""
        c = call.canonical
        kind, k, x = c.meaning.args
        own = types(c.meaning)[x]
        if k not in own.axes or own.dtype not in _DTYPES or c.sizes[k] < _SHORTEST:
            raise Unsupported(kind)
        view = View.dense((*c.out.axes, k), c.sizes, own.dtype)
        values = settled(resolve(x, c.operands, view, c.sizes))
        if values.folded or values.positions or any(r.dtype not in CTYPES for r in values.rows):
            raise Unsupported("folds or lookups inside")
        around = sorted(c.out.axes, key=lambda a: -abs(c.out.stride(a)))
        if (v := _vector(values, k, around)) == k:
            return _lying(call, values, k, around)
        around = [*(a for a in around if a != v), v]
        size, threads = c.sizes[v], call.threads
        others = _product(c.sizes[a] for a in around[:-1])
        columns = _COLUMNS if others >= threads else min(_COLUMNS, max(_NARROWEST, -(-size // threads)))
        columns = min(columns, size)
        block = c.sizes[k] if _read(values, v) else max(4, 2 * _BLOCK // columns)
        return _way(call, values, k, around, {v: columns}, block)

    @property
    def whole(self) -> int:
        return self.space.extent(self.axis)

    @property
    def pieces(self) -> int:
        """Pieces of a row."""
        return -(-self.whole // self.blocks)

    @property
    def rows(self) -> int:
        return self.space.points((self.axis,))

    @property
    def vector(self) -> str:
        return self.space.vector or self.axis

    @property
    def lies(self) -> bool:
        """Whether rows lie side by side."""
        return self.vector == self.axis

    @property
    def columns(self) -> int:
        return 1 if self.lies else self.space.width(self.vector)

    @property
    def block(self) -> int:
        return self.space.width(self.axis)

    @property
    def room(self) -> int:
        """Bytes of what pieces come to."""
        whole = self.rows * self.pieces * self.columns * _PLACE
        return -(-whole // LINE) * LINE if self.pieces > 1 else 0

    @property
    def load(self) -> Row | None:
        """What is looked at where it lies, where nothing is computed."""
        return _read(self.space.values, self.vector)


def _lying(call: Call, values: Values, k: str, around: list[str]) -> _Way:
    """The way of rows that lie side by side."""
    rows, size = _product(values.sizes[a] for a in around), values.sizes[k]
    if _read(values, k) is None:
        return _way(call, values, k, around, {}, _BLOCK)
    pieces = min(_PIECES * call.threads, size // _LONG) if rows < call.threads else 1
    return _way(call, values, k, around, {}, -(-size // max(1, pieces)))


def _way(call: Call, values: Values, k: str, around: list[str], tiles: dict[str, int], block: int) -> _Way:
    """`block`: elements along the axis that are looked at in one go."""
    c = call.canonical
    (v, columns), *_ = *tiles.items(), (k, 1)
    rows = _product(-(-c.sizes[a] // tiles.get(a, 1)) for a in around)
    size, pieces = c.sizes[k], 1
    if rows < call.threads:
        pieces = max(1, min(_PIECES * call.threads, size * columns // _LONG))
    block = min(block, -(-size // pieces))
    blocks = -(-size // block)
    out = Index.of(k).scaled(columns).plus(Index() if v == k else Index.of(v))
    space = Space(replace(values, out=out), (*around, k), {**tiles, k: block}, (v,))
    places = Index()
    for a, s in zip(c.out.axes, c.out.strides, strict=True):
        places = places.plus(Index.of(a).scaled(s))
    pick = Pick(c.meaning.args[0], values.rows[values.root].dtype, block)
    if not tiles or size < 1 << 31 or pick.counted == "int64_t":
        return _Way(pick, space, k, -(-blocks // pieces), places)
    raise Unsupported("places that are no numbers as wide as elements")


def _product(sizes: Iterator[int]) -> int:
    found = 1
    for n in sizes:
        found *= n
    return found


def _vector(values: Values, k: str, around: list[str]) -> str:
    """The axis along which most of what is read lies side by side; that of rows where others are no better."""
    reads = [(_product(values.sizes[a] for a in r.axes), r.name[1]) for r in values.rows if r.op == "load"]

    def beside(a: str) -> int:
        return sum(n for n, where in reads if where.stride(a) in (-1, 0, 1))

    return max((k, *(a for a in around if values.sizes[a] >= _SHORTEST)), key=beside)


def _read(values: Values, v: str) -> Row | None:
    """The operand that values are nothing but, side by side along an axis."""
    r = values.rows[values.root]
    plain = r.op == "load" and not r.guards and all(isinstance(a, str) for a, _ in r.name[1].terms)
    return r if plain and r.name[1].stride(v) == 1 else None


@dataclass(frozen=True, kw_only=True)
class _Emitter(Emitter):
    """Text for one way. `folds`: the argument where the best of pieces are; `merges`: it puts those together."""

    way: _Way
    folds: str
    merges: bool = False

    def _pointers(self) -> Iterator[str]:
        *read, _ = super()._pointers()
        yield from read
        yield f"  int64_t *restrict places = (int64_t *)({self.result});"
        if self.way.pieces > 1:
            yield f"  char *parts = {self.folds};"

    def written(self, i: int) -> str:
        k, v, columns = var(self.way.axis), var(self.way.vector), self.way.columns
        return f"block[{k} - {k}_lo]" if self.way.lies else f"block[({k} - {k}_lo) * {columns} + {v} - {v}_lo]"

    def walked(self) -> Iterator[str]:
        yield "  for (int64_t task = begin; task < end; task++) {"
        yield from ("    " + x for x in (self._merged() if self.merges else self._walked()))
        yield "  }"

    def _walked(self) -> Iterator[str]:
        way, pick = self.way, self.way.pick
        yield f"const int64_t row = task / {way.pieces}, piece = task % {way.pieces}, first = row * {way.whole};"
        yield f"const int64_t from = piece * {way.blocks};"
        yield f"const int64_t to = from + {way.blocks} < {way.whole} ? from + {way.blocks} : {way.whole};"
        yield from self._begun(f"from * {way.block}")
        if self.way.load is None:
            yield f"WX_ALIGNED {pick.ctype} block[{way.block * way.columns}];"
        yield "for (int64_t t = first + from; t < first + to; t++) {"
        if self.way.load is None:
            yield from ("  {", *("    " + x for x in self.point()), "  }")
        yield from ("  " + x for x in self.place())
        yield "  " + self._looked_at()
        yield "}"
        yield from self._ended()

    def _begun(self, place: str) -> Iterator[str]:
        """The best so far, with its place: nothing has been looked at."""
        way, pick = self.way, self.way.pick
        counted = "int64_t" if way.lies else pick.counted
        yield f"WX_ALIGNED {pick.ctype} best[{way.columns}];"
        yield f"WX_ALIGNED {counted} place[{way.columns}];"
        yield f"for (int64_t z = 0; z < {way.columns}; z++) {{ best[z] = {pick.nothing}; place[z] = {place}; }}"

    def _looked_at(self) -> str:
        """A block is looked at."""
        way, k, v, load = self.way, var(self.way.axis), var(self.way.vector), self.way.load
        from_, step = "block", way.columns
        before = ""
        if load is not None:
            operand, where = load.name
            names = dict.fromkeys((k, v))
            before = " ".join(f"const int64_t {x} = {x}_lo;" for x in names)
            from_, step = f"x{operand} + {self.index(where)}", where.stride(way.axis) or 0
        if way.lies:
            text = f"{way.pick.name}_lies({from_}, {k}_hi - {k}_lo, {k}_lo, best, place);"
        else:
            many = f"{k}_hi - {k}_lo, {v}_hi - {v}_lo, {k}_lo"
            text = f"{way.pick.name}_columns({from_}, {step}, {many}, best, place);"
        return f"{{ {before} {text} }}"

    def _ended(self) -> Iterator[str]:
        """What was found is written: places, or what a piece has come to."""
        way = self.way
        if way.pieces == 1:
            yield "{ const int64_t t = first;"
            yield from ("  " + x for x in self.place())
            yield from ("  " + x for x in self._each(f"places[{self.index(way.places)}] = place[z];"))
            yield "}"
            return
        yield f"char *own = parts + task * {way.columns * _PLACE};"
        yield f"for (int64_t z = 0; z < {way.columns}; z++) {{"
        yield f"  *({way.pick.ctype} *)(own + z * {_PLACE}) = best[z];"
        yield f"  *(int64_t *)(own + z * {_PLACE} + 8) = place[z];"
        yield "}"

    def _merged(self) -> Iterator[str]:
        """The pieces of a row in order: an equal element of a later one changes nothing."""
        way = self.way
        new = way.pick.taken("x", "best")
        yield f"const int64_t t = task * {way.whole};"
        yield from self.place()
        yield from self._each(
            f"{way.pick.ctype} best = {way.pick.nothing}; int64_t place = 0;",
            f"for (int64_t piece = 0; piece < {way.pieces}; piece++) {{",
            f"  const char *own = parts + ((task * {way.pieces} + piece) * {way.columns} + z) * {_PLACE};",
            f"  const {way.pick.ctype} x = *(const {way.pick.ctype} *)own;",
            f"  if ({new}) {{ best = x; place = *(const int64_t *)(own + 8); }}",
            "}",
            f"places[{self.index(way.places)}] = place;",
        )

    def _each(self, *lines: str) -> Iterator[str]:
        """For each column."""
        v = var(self.way.vector)
        if self.way.lies:
            yield from ("{ const int64_t z = 0;", *lines, "}")
            return
        yield f"for (int64_t {v} = {v}_lo; {v} < {v}_hi; {v}++) {{ const int64_t z = {v} - {v}_lo;"
        yield from lines
        yield "}"


class Picks(Loops):
    """The places of extremes along one axis, of anything element-wise."""

    name = "argmax"
    heads = INDEX_MAPS | {*_PICKS}

    def matches(self, meaning: Term) -> bool:
        return meaning.head == "Red" and meaning.args[0] in _PICKS

    def work(self, call: Call) -> Work | None:
        c = call.canonical
        if not self.matches(c.meaning) or any(v.dtype not in CTYPES for v in c.operands):
            return None
        try:
            return self._parts(call, self.way(call)) if c.out.elements else None
        except Unsupported:
            return None

    def way(self, call: Call) -> _Way:
        """Raises Unsupported."""
        key = "way of an argmax"
        return call.remember(key, lambda: kept((key, *same(call)), lambda: _Way.of(call)))

    def in_place(self, call: Call) -> tuple[int, ...]:
        return ()

    def _parts(self, call: Call, way: _Way) -> Work:
        """Raises Unsupported."""
        operands = [f"args[{OPERANDS + i}]" for i in range(len(call.operands))]
        e = _Emitter(
            way.space, self.functions(), operands, "args[2]", [v.dtype for v in call.operands], limits=self.limits(),
            excess=self.excess, way=way, folds="args[1]",
        )  # fmt: skip
        e.check()
        if way.space.scratch > FRAME:
            raise Unsupported("buffers that leave the stack")

        def write() -> tuple[Part, ...]:
            tasks = way.rows * way.pieces
            grain = 1 if way.pieces > 1 else -(-self.grain(e, call.threads) // way.blocks)
            used = way.pick.lying() if way.lies else way.pick.columns()
            first = Part(used + e.function(NAME), tasks, min(grain, tasks))
            if way.pieces == 1:
                return (first,)
            return first, Part(replace(e, merges=True).function(NAME), way.rows, way.rows)

        return Work(write, way.room)

    def features(self, call: Call) -> Features:
        way = self.way(call)
        moved = float(call.bytes_read + call.out.bytes)
        return {"launches": 1.0 + (way.pieces > 1), "bytes": moved, **operations(way.space)}


class FastPicks(Picks):
    """The same with functions of our own, which become vectors; only for meanings that have such a function."""

    name = "argmax_fast"
    error = FastLoops.error
    functions, limits, excess = FastLoops.functions, FastLoops.limits, FastLoops.excess

    def matches(self, meaning: Term) -> bool:
        return super().matches(meaning) and FastLoops().matches(meaning)


KERNELS = (Picks, FastPicks)
