"""Products of a few rows with a matrix, as a model makes that decodes one token after another: what they take is
reading the matrix, which every kernel here does once, 16 bytes at a time.

Where there are too few columns to fill a GPU the depth is cut in pieces, and what comes of them is added up in a launch
of its own, with all that comes after the product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from waxeq.backend.call import Call
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import carried
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Unsupported
from waxeq_cupy.gemm import PROCESSORS, Gemm, begun, beside, pieces, summed_up
from waxeq_cupy.kernels import MOST_BLOCKS, Launch, Slot, Work, library, resolved
from waxeq_cupy.products import Product, few
from waxeq_cupy.sides import GROUP, After, Side, indented, loads, lying_along, nearest, summed
from waxeq_cupy.text import Text

MOST = 8
"""Rows up to which reading the matrix takes longer than the arithmetic."""
_THREADS, _WARP = 256, 32
_WAVES = 2
"""Blocks for each processor from which there are enough."""
_EACH = 8
"""Groups that a thread should take from a piece of the depth."""


@dataclass(frozen=True)
class Laid:
    """How such a product is laid over threads: `along` the depth, with so many `ranks` that share it out and `each`
    columns of a team; or along the columns. `width`: elements that are read at once."""

    along: bool
    width: int
    ranks: int
    each: int

    @property
    def columns(self) -> int:
        """Of a block."""
        return _THREADS // self.ranks * self.each if self.along else _WARP * self.width

    def blocks(self, p: Product) -> int:
        """How many blocks a product has, for each piece."""
        return p.many * -(-p.size(p.columns) // self.columns)

    def width_of_pieces(self, p: Product) -> int:
        """How much of the first axis of the depth a piece has: all of it where there are blocks enough, or too little
        to share out."""
        first, inner = p.values.sizes[p.depths[0]], p.size(p.depths[1:])
        least = self.ranks * _EACH * (self.width if self.along else 1)
        pieces = min(-(-_WAVES * PROCESSORS // self.blocks(p)), p.size(p.depths) // least)
        if pieces < 2:
            return first
        width = -(-first // min(pieces, first))
        whole = self.width if inner == 1 else 1
        return min(first, -(-width // whole) * whole)


@dataclass(frozen=True)
class Written:
    """The kernel of one such product; with pieces of `piece` places of the first axis of the depth."""

    product: Product
    dtypes: tuple[str, ...]
    replaced: frozenset[int]
    aligned: bool
    piece: int | None = None

    @cached_property
    def text(self) -> Text:
        p = self.product
        space = Space(p.values, (*p.around, *p.rows, *p.columns), {}, (p.columns[-1],))
        return Text(space, library(), (), "", self.dtypes, self.replaced, threads=_THREADS, counted=False)

    @cached_property
    def laid(self) -> Laid:
        p = self.product
        read = loads(p, p.right)
        wide = GROUP // numpy_dtype(read[0].dtype).itemsize if read and self.aligned else 1
        found = nearest(self.text, read[:1], (p.depths[-1], p.columns[-1]), wide) if wide > 1 else None
        along = found[0] == p.depths[-1] if found is not None else lying_along(p, p.right, p.columns)
        width = 1 if found is None else found[1]
        rows = p.size(p.rows)
        if not along:
            return Laid(False, width, _THREADS // _WARP, 1)
        each, ranks = (1 if rows == 1 else 2 if rows <= MOST // 2 else 4), _WARP
        while (
            ranks < _THREADS
            and p.size(p.depths) >= 4 * ranks * width
            and Laid(True, width, ranks, each).blocks(p) < _WAVES * PROCESSORS
        ):
            ranks *= 2
        return Laid(True, width, ranks, each)

    def launch(self, reads: tuple[int | Slot, ...], to: Slot | None) -> Launch:
        """Raises Unsupported."""
        self.text.check()
        p = self.product
        blocks = self.laid.blocks(p) * pieces(p, self.piece)
        if blocks > MOST_BLOCKS or p.size(p.columns) >= 1 << 30 or p.size(p.depths) >= 1 << 30:
            raise Unsupported("more than a launch has")
        return Launch(self.text.written(self._body()), blocks, _THREADS, reads, to, bool(p.values.positions))

    def _sides(self) -> tuple[Side, Side]:
        p, on = self.product, self.laid
        kind = carried(p.dtype)
        groups = (p.depths[-1] if on.along else p.columns[-1], on.width) if on.width > 1 else None
        right = Side(self.text, p, p.right, p.columns, kind, ("n", "k"), groups, "end")
        return Side(self.text, p, p.left, p.rows, kind, ("m", "k"), groups if on.along else None, "end"), right

    def _body(self) -> Iterator[str]:
        p, on, text = self.product, self.laid, self.text
        left, right = self._sides()
        c, f = summed(p.dtype), p.size(p.rows)
        kind = f"along<{c}, {f}, {on.width}, {on.each}, {on.ranks}>" if on.along else f"across<{c}, {f}, {on.width}>"
        across = -(-p.size(p.columns) // on.columns)
        yield f"typedef wx_few_{kind} few;"
        yield f"WX_SHARED({c}, s, few::shared);"
        yield f"WX_KEPT({c}, c, few::kept);"
        yield f"const int column = (int)(blockIdx.x % {across}u) * {on.columns};"
        yield from begun(text, p, self.piece, f"(blockIdx.x / {across}u)", str(p.size(p.depths)))
        yield from left.lines("left", None)
        yield from right.lines("right", None)
        yield "few::multiplied(left, right, s, c, column, deep, end);"
        after = After.of(text, p, 1 if on.along else on.width, aligned=self.aligned)
        yield f"few::given<{after.width}>(c, s, column, [&](int m, int n, const auto &sums) {{"
        yield from indented(after.lines())
        yield "});"


class Gemv(Gemm):
    """Products of up to eight rows with a matrix, which is read once."""

    name = "gemv"
    sought = "cuda product of few rows"

    def matches(self, meaning: Term) -> bool:
        return any(t.head == "Mul" and u.head == "Sum" for u in postorder(meaning) for t in u.terms)

    def differs(self, call: Call) -> bool:
        return True

    def find(self, call: Call) -> Product:
        return few(resolved(call), MOST)

    def in_place(self, call: Call) -> tuple[int, ...]:
        try:
            p = self.product(call)
        except Unsupported:
            return ()
        cut = any(self._written(call, p, aligned=a).piece is not None for a in (True, False))
        return () if cut else super().in_place(call)

    def _written(self, call: Call, p: Product, *, aligned: bool) -> Written:
        """The first launch of a call, if it is the only one, or the pieces that it would have."""
        whole = Written(p, tuple(v.dtype for v in call.operands), frozenset(), aligned)
        width = whole.laid.width_of_pieces(p)
        return whole if width == p.values.sizes[p.depths[0]] else replace(whole, piece=width)

    def _work(self, call: Call, aligned: bool) -> Work | None:
        try:
            p = self.product(call)
            if call.out.elements == 0:
                return Work(())
            whole = self._written(call, p, aligned=aligned)
            dtypes, width = whole.dtypes, whole.piece
            if width is None:
                whole = replace(whole, replaced=frozenset(self.in_place(call)))
                return Work((whole.launch(tuple(range(len(dtypes))), None),), operations=beside(p))

            def first(part: Product, reads: Sequence[int], to: Slot) -> Launch:
                return Written(part, dtypes, frozenset(), aligned, width).launch((*reads,), to)

            return summed_up(p, width, dtypes, first, aligned=aligned)
        except Unsupported:
            return None


KERNELS = (Gemv,)
