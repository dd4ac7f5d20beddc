"""Text of attention: two products of matrices with a softmax between them, by blocks of keys.

What lies between the products is a softmax along the keys of anything element-wise (scaled, masked, biased); what
comes after is anything element-wise. No matrix of all scores ever lies in memory.

Queries that share their keys, as those of grouped heads do, are rows of one block, which reads the keys once. Where
there are too few rows to fill a GPU the keys are cut in pieces; a second launch scales what comes of them to their
common maximum and adds it up (flash-decoding, https://crfm.stanford.edu/2023/10/12/flashdecoding.html).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import CTYPES, NARROW, carried, variable
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Unsupported
from waxeq_cupy.attended import Attention
from waxeq_cupy.attended_sums import AttendedSums, Partial
from waxeq_cupy.gemm import PROCESSORS
from waxeq_cupy.kernels import MOST_BLOCKS, Launch, Work, library, operations
from waxeq_cupy.nvrtc import SHARED
from waxeq_cupy.products import Product
from waxeq_cupy.sides import GROUP, Side, indented, loads, nearest, piece_of, placed, product_of, summed
from waxeq_cupy.text import Text

_WIDEST: Mapping[str, int] = {"float16": 128, "bfloat16": 128, "float32": 128, "float64": 64}
"""Columns of values up to which a block holds a row of the result."""
_FEW, _WIDE = 8, 256
"""Rows and columns up to which reading keys and values takes longer than multiplying them one by one."""
_TOGETHER, _THREADS = 128, 256
"""Keys that a block with a few rows takes at a time, and its threads."""
_DEEP = 32
"""Places of the depth that a tile of tensor cores has."""
_LEAST = 256
"""Keys that a piece should have at least."""
_WAVES = 2
"""Blocks for each processor from which there are enough."""


@dataclass(frozen=True)
class Way:
    """How attention is made: by blocks of a `few` rows, or of tiles; `piece`: keys of a piece, None where every block
    has all."""

    few: bool
    piece: int | None = None


def ways(a: Attention) -> tuple[Way, ...]:
    """All that there are for one attention, the one that seems best first."""
    p = a.product
    rows, columns, keys = p.size(p.rows), p.size(p.columns), p.size(p.depths)
    narrow = rows <= _FEW and columns <= _WIDE
    found: list[Way] = []
    for few in (True, False) if narrow else (False,):
        step, blocks = (_TOGETHER, p.many) if few else (_rows(a), p.many * -(-rows // _rows(a)))
        long = keys >= 2 * _LEAST
        pieces = min(-(-_WAVES * PROCESSORS // blocks), keys // _LEAST if long else -(-keys // step))
        piece = -(-keys // pieces // step) * step if pieces > 1 else keys
        cut = (Way(few, piece),) if piece < keys else ()
        found += (*cut, Way(few)) if long else (Way(few), *cut)
    return tuple(found)


def _rows(a: Attention) -> int:
    """Queries, and keys at a time, of a tile."""
    return 32 if a.dtype == "float64" else 64


@dataclass(frozen=True)
class Written:
    """The kernels of one attention."""

    attention: Attention
    way: Way
    dtypes: tuple[str, ...]
    replaced: frozenset[int]
    aligned: bool

    @property
    def warps(self) -> bool:
        """Whether tensor cores multiply."""
        return self.attention.dtype in NARROW and not self.way.few

    @property
    def threads(self) -> int:
        if self.way.few:
            return _THREADS
        return {"float32": 256, "float64": 64}.get(self.attention.dtype, 128)

    @cached_property
    def columns(self) -> int:
        """Of the values, with those that nobody looks at. Raises Unsupported."""
        p, dtype = self.attention.product, self.attention.dtype
        size, width = p.size(p.columns), 32 if self.warps else 64
        while width < size:
            width *= 2
        if width > _WIDEST[dtype]:
            raise Unsupported("values of many columns")
        return width

    @property
    def high(self) -> int:
        """Rows of a block."""
        p = self.attention.product
        return p.size(p.rows) if self.way.few else _rows(self.attention)

    @property
    def long(self) -> int:
        """Keys that are taken at a time."""
        return _TOGETHER if self.way.few else _rows(self.attention)

    @property
    def down(self) -> int:
        """Blocks that share out the rows of one product."""
        p = self.attention.product
        return -(-p.size(p.rows) // self.high)

    @cached_property
    def partial(self) -> Partial | None:
        """What the first of two launches makes."""
        p, piece = self.attention.product, self.way.piece
        return None if piece is None else Partial(self.attention, -(-p.size(p.depths) // piece))

    def _text(self, threads: int, replaced: frozenset[int], dtypes: tuple[str, ...], partial: str = "") -> Text:
        p = self.attention.product
        space = Space(p.values, (*p.around, *p.rows, *p.columns), {}, (p.columns[-1],))
        return Text(space, library(), (), "", dtypes, replaced, threads=threads, counted=False, partial=partial)

    @cached_property
    def text(self) -> Text:
        partial = self.partial
        replaced = self.replaced if partial is None else frozenset[int]()
        text = self._text(self.threads, replaced, self.dtypes, "" if partial is None else partial.slot.dtype)
        return replace(text, together=2)  # left to itself the compiler spills some bytes to have four

    def work(self) -> Work:
        """Raises Unsupported."""
        self.text.check()
        p, partial = self.attention.product, self.partial
        pieces = 1 if partial is None else partial.pieces
        blocks = p.many * self.down * pieces
        if blocks > MOST_BLOCKS or max(map(p.size, (p.rows, p.depths, self.attention.scores.depths))) >= 1 << 30:
            raise Unsupported("more than a launch has")
        reads, looked_up = tuple(range(len(self.dtypes))), bool(p.values.positions)
        slot = None if partial is None else partial.slot
        first = Launch(self.text.written(self._body()), blocks, self.threads, reads, slot, looked_up)
        beside = _beside(self.attention)
        if partial is None or slot is None:
            return Work((first,), operations=beside)
        text = self._text(_THREADS, self.replaced, (*self.dtypes, slot.dtype))
        whole = text.written(self._joined(text, partial))
        second = Launch(whole, p.many * p.size(p.rows), _THREADS, (*reads, slot), None, looked_up)
        return Work((first, second), slot.room, beside + 2.0 * slot.elements)

    # -- the first launch

    def _body(self) -> Iterator[str]:
        yield from self._begun()
        yield from self._few() if self.way.few else self._tiles()
        yield from self._scored()
        depth = self.attention.product.size(self.attention.scores.depths)
        if self.way.few:
            yield f"tile::made(query, key, value, score, s, o, row_of_warp, {depth}, first, last);"
            yield from self._given("s, o, row_of_warp", 1)
        else:
            yield f"tile::made(query, key, value, score, a, b, v, s, o, rows, begin, {depth}, first, last);"
            yield from self._given("o, rows, begin", self._most)

    def _begun(self) -> Iterator[str]:
        """Which rows, keys and product a block has."""
        text, p = self.text, self.attention.product
        rest, keys = "blockIdx.x", p.size(p.depths)
        if self.down > 1:
            yield f"const int begin = (int)(blockIdx.x % {self.down}u) * {self.high};"
            rest = f"({rest} / {self.down}u)"
        else:
            yield "const int begin = 0; (void)begin;"
        if self.partial is None:
            yield f"const int first = 0, last = {keys};"
        else:
            n, piece = self.partial.pieces, self.way.piece
            assert piece is not None
            yield from piece_of(("piece", "first", "last"), piece, n, keys, rest)
            rest = f"({rest} / {n}u)"
        yield from product_of(text, p, rest)

    def _scored(self) -> Iterator[str]:
        yield f"const auto score = [&](int m, int n, {summed(self.attention.dtype)} product) {{"
        yield from indented(self._score())
        yield "};"

    def _given(self, known: str, most: int) -> Iterator[str]:
        """What becomes of the sums in groups of at most so many columns."""
        if self.partial is None:
            after = AttendedSums.attended(self.text, self.attention, most, aligned=self.aligned)
            width, lines = after.width, after.whole()
        else:
            width = self.partial.width(most, aligned=self.aligned)
            lines = self.partial.given(width)
        yield f"tile::given<{width}>({known}, [&](int m, int n, const auto &sums, const auto &row) {{"
        yield from indented(lines)
        yield "});"

    def _tiles(self) -> Iterator[str]:
        """The sides and what a block of tiles has."""
        a, p, q = self.attention, self.attention.product, self.attention.scores
        query = self._side(q, q.left, p.rows, ("m", "k"))
        key = self._side(q, q.right, p.depths, ("n", "k"))
        value = self._side(p, p.right, p.columns, ("c", "n"))
        t, rows = summed(a.dtype), _rows(a)
        flags = (query.along, key.along, value.along) if self.warps else (False, False, False)
        if self.warps:
            kind = {"float16": "wx_f16", "bfloat16": "wx_bf16"}[a.dtype]
            on = ", ".join(str(f).lower() for f in flags)
            yield f"typedef wx_attention_16<{kind}, {self.columns}, {self._resident}, {on}> tile;"
        else:
            depth = 4 if a.dtype == "float64" else 8
            yield f"typedef wx_attention<{t}, {rows}, {rows}, {self.columns}, {depth}> tile;"
        for name, size in (("a", "left"), ("b", "right"), ("v", "third")):
            yield f"WX_SHARED({'uint16_t' if self.warps else t}, {name}, tile::{size});"
        yield f"WX_KEPT({t}, s, tile::scored);"
        yield f"WX_KEPT({t}, o, tile::kept);"
        yield f"wx_online<{t}> rows[{2 if self.warps else 4}];"
        yield from query.lines("query", flags[0])
        yield from key.lines("key", flags[1])
        yield from value.lines("value", flags[2])

    @property
    def _resident(self) -> int:
        """Places of the depth, in whole tiles, if the queries of a block stay in shared memory beside two tiles of keys
        and one of values; 0 where they have no room there."""
        p = self.attention.scores
        depth, rows = -(-p.size(p.depths) // _DEEP) * _DEEP, _rows(self.attention)
        places = rows * (depth + 2 * _DEEP + self.columns)
        return depth if places * numpy_dtype(self.attention.dtype).itemsize <= SHARED else 0

    def _few(self) -> Iterator[str]:
        """The sides and what a block of a few rows has."""
        a, p, q = self.attention, self.attention.product, self.attention.scores
        deep = self._group(q, q.right, q.depths[-1])
        across = self._group(p, p.right, p.columns[-1])
        w, v = (1 if x is None else x[1] for x in (deep, across))
        ranks, columns = 2, v
        while ranks < 32 and ranks * w < q.size(q.depths):
            ranks *= 2
        while columns < p.size(p.columns):
            columns *= 2
        t, kind = summed(a.dtype), carried(a.dtype)
        yield f"typedef wx_attention_few<{t}, {p.size(p.rows)}, {_TOGETHER}, {w}, {v}, {ranks}, {columns}> tile;"
        yield f"WX_SHARED({t}, s, tile::shared);"
        yield f"WX_KEPT({t}, o, tile::kept);"
        yield f"wx_online<{t}> row_of_warp;"
        yield from Side(self.text, q, q.left, p.rows, kind, ("m", "k"), deep).lines("query", None)
        yield from Side(self.text, q, q.right, p.depths, kind, ("n", "k"), deep).lines("key", None)
        yield from Side(self.text, p, p.right, p.columns, kind, ("c", "n"), across).lines("value", None)

    def _group(self, p: Product, row: int, axis: str) -> tuple[str, int] | None:
        """Groups of 16 bytes along an axis, where what is read for a row lies so."""
        read = loads(p, row)[:1]
        if not read or not self.aligned:
            return None
        wide = GROUP // numpy_dtype(read[0].dtype).itemsize
        return nearest(self.text, read, (axis,), wide) if wide > 1 else None

    def _side(self, p: Product, row: int, own: tuple[str, ...], names: tuple[str, str]) -> Side:
        wide = GROUP // numpy_dtype(self.attention.dtype).itemsize
        beside = nearest(self.text, loads(p, row), (p.depths[-1], own[-1]), wide) if self.aligned else None
        return Side(self.text, p, row, own, self.attention.dtype, names, beside)

    @property
    def _most(self) -> int:
        """How many columns of a row a thread has side by side."""
        return 4 if self.attention.dtype == "float32" else 2

    def _score(self) -> Iterator[str]:
        """What becomes of a product of a query with a key before the softmax; of no key, nothing."""
        a, text, p = self.attention, self.text, self.attention.product
        q = a.scores
        t = summed(a.dtype)
        outside = (("m", p.size(p.rows), self.high), ("n", p.size(p.depths), self.long))
        if ragged := " || ".join(f"{x} >= {size}" for x, size, whole in outside if size % whole):
            yield f"if ({ragged}) return wx_lowest<{t}>();"
        yield from placed(text, "m", p.rows, None)
        yield from placed(text, "n", p.depths, None)
        yield text.known(q.fold, text.folded(q.fold, "product"))
        for n in text.need([a.scored], (q.fold,)):
            yield from text.declared(n)
        yield f"return ({variable(carried(a.dtype))}){text.name(a.scored)};"

    # -- the second launch

    def _joined(self, text: Text, partial: Partial) -> Iterator[str]:
        """A block for each row, whose threads share out its columns and pieces."""
        a, p = self.attention, self.attention.product
        t = CTYPES[partial.slot.dtype]
        most = partial.width(4, aligned=self.aligned)
        after = AttendedSums.attended(text, a, most, aligned=self.aligned)
        across = 1
        while across * after.width < partial.columns and across < _THREADS:
            across *= 2
        rows = p.size(p.rows)
        yield f"typedef wx_joined<{t}, {after.width}, {across}, {partial.line}, {partial.ends}> tile;"
        yield f"WX_SHARED({t}, s, tile::shared);"
        yield f"const int m = (int)(blockIdx.x % {rows}u);"
        yield f"const {text.integer} t = ({text.integer})(blockIdx.x / {rows}u);"
        yield from text.places("t", p.around, p.values.sizes)
        yield "(void)t;"
        sizes = f"{partial.pieces}, {partial.columns}"
        yield f"tile::made(x{len(self.dtypes)}, s, (int)blockIdx.x, {sizes}, "
        yield "           [&](int n, const auto &sums, const auto &row) {"
        yield from indented(after.whole())
        yield "});"


def _beside(a: Attention) -> float:
    """Operations of what is no product."""
    rows = a.product.values.rows
    inside = {rows[f].args[0] for f in (a.product.fold, a.scores.fold)}
    return sum(operations(a.product.values, n) for n in range(len(rows)) if n not in inside)
