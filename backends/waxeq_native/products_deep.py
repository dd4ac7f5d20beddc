"""Products of which little comes and which are deep, as a covariance X'X of many rows: there are no tiles to share out,
and panels of a whole side would be written to memory and read again. Pieces of the depth are multiplied, each by one
thread and in its cache, and what comes of them is summed (split K; R. C. Agarwal et al., A three-dimensional approach
to parallel matrix multiplication, 1995). Where both sides are one, half of the product is the other half turned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from waxeq.backend.call import Call
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.functions import DTYPES, libm, own
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.products import Product, arranged
from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.spaces import Widths, joined, space
from waxeq_cfamily.split import cut
from waxeq_cfamily.stages import Space
from waxeq_cfamily.taken import NAME
from waxeq_cfamily.values import Unsupported, Values
from waxeq_native.gemm import entry
from waxeq_native.loops import Loops, limits, operations
from waxeq_native.products import FRAME, Products, function, scratch
from waxeq_native.products_text import ProductEmitter
from waxeq_native.work import OPERANDS, Part, Work

_LEAST = 8
"""Rows and columns of a result from which a product of matrices is more than products of one with vectors."""
_MOST = 1 << 16
"""Elements of a result that lies in a second cache beside what it is made from."""
_DEEP = 4
"""How many times as deep as its result is wide a product is that is worth it."""
_PAIRED = 8
"""Pieces that are summed in pairs, which rounds less often: as many, or a multiple."""
_MANY, _ROOM = 4, 1 << 20
"""Groups of these at most, fewer where the results of all would take more bytes: what is summed in two steps that are
about as long rounds least often."""
_BAND, _LAYER = 32, 256
"""Rows of a band of a product of which half is the other half turned, and the depth of its layers: of less depth, what
is turned takes longer than what is not made."""


@dataclass(frozen=True)
class _Gram(ProductEmitter):
    """A product of a matrix with itself turned: of each band of rows, what lies right of its first column. The panels
    of a layer serve all bands."""

    def call(self, p: Product, left: str, target: str) -> Iterator[str]:
        dtype, m = self.values.rows[p.fold].dtype, self.values.sizes[p.rows]
        s, band = DTYPES[dtype], _band(m, dtype)
        (a, ras, cas), (b, rbs, cbs) = self.side(p.left, p.rows, p.depth), self.side(p.right, p.depth, p.columns)
        place, step = self._target(p)
        yield f"  const int64_t depth = {self._length(p.depth)};"
        yield f"  WX_ALIGNED {CTYPES[dtype]} panels[{_panels(m, dtype)}];"
        yield f"  for (int64_t k = 0; k < depth; k += {_LAYER}) {{"
        yield f"    const int64_t deep = depth - k < {_LAYER} ? depth - k : {_LAYER};"
        yield f"    api->pack_b_{s}(deep, {m}, {b} + k * {rbs}, {rbs}, {cbs}, panels);"
        yield f"    for (int64_t r = 0; r < {m}; r += {band})"
        yield f"      api->gemm_{s}({m} - r < {band} ? {m} - r : {band}, {m} - r, deep, {a} + r * {ras} + k * {cas},"
        yield f"        {ras}, {cas}, panels + r * deep, {place} + r * {step + 1}, {step}, k ? WX_ADD : 0, scratch);"
        yield "  }"
        yield f"  for (int64_t i = 0; i < {m}; i++)"
        yield f"    for (int64_t j = 0; j < i; j++) ({place})[i * {step} + j] = ({place})[j * {step} + i];"


def _band(m: int, dtype: str) -> int:
    """Rows of a band: whole panels."""
    nr = entry("nr", dtype)
    return -(-min(m, _BAND) // nr) * nr


def _panels(m: int, dtype: str) -> int:
    """Elements of the panels of a layer."""
    return int(entry("packed_size", dtype)(_LAYER, m))


@dataclass(frozen=True)
class _Pieces:
    """A product cut in pieces: the walk that makes the product of each, `elements` of all of them, and the walk that
    sums them and goes on from there."""

    each: Space
    elements: int
    last: Space

    @staticmethod
    def of(call: Call, values: Values, products: tuple[Product, ...], least: int, few: int) -> _Pieces:
        """Each of at least such a depth; `few` where there are no more than `_PAIRED`. Raises Unsupported."""
        values, p = _deep(values, products)
        width = _width(values, p, least, few)
        partial, rest = cut(values, p.fold, p.depth, width, Widths(), len(call.operands))
        walks = [s for w in Loops.narrower if (s := space(rest, w)).scratch <= FRAME]
        if not walks:
            raise Unsupported("sums that leave the stack")
        last = next((s for s in walks if s.points() >= call.threads), walks[-1])
        return _Pieces(_whole(partial.space.values, p.depth, width), partial.elements, last)

    @property
    def product(self) -> Product:
        return self.each.products[0]

    @property
    def rows(self) -> int:
        return self.each.values.sizes[self.product.rows]

    @property
    def dtype(self) -> str:
        return self.each.values.rows[self.product.fold].dtype

    @property
    def bytes(self) -> int:
        return self.elements * numpy_dtype(self.dtype).itemsize


class DeepProducts(Products):
    """A sum of products of two matrices in pieces of its depth, with any epilogue."""

    name = "products_deep"
    emitter: ClassVar[type[ProductEmitter]] = ProductEmitter
    packed: ClassVar[bool] = False
    """Whether it is panels that are multiplied."""
    least: ClassVar[int] = 64
    few: ClassVar[int] = 64
    """Depth of a piece at least, and where there are no more than `_PAIRED`."""

    def takes(self, call: Call, pieces: _Pieces) -> bool:
        """Whether it is for this product."""
        return True

    def panels(self, pieces: _Pieces) -> int:
        """Bytes of panels that a thread needs besides."""
        return 0

    def columns(self, pieces: _Pieces) -> float:
        """Columns of the product that are made of each row, on average."""
        return pieces.each.values.sizes[pieces.product.columns]

    def walked(self, call: Call, values: Values, products: tuple[Product, ...]) -> Work | None:
        pieces = _Pieces.of(call, values, products, self.least, self.few)
        if not self.takes(call, pieces):
            return None
        operands = [f"args[{OPERANDS + i}]" for i in range(len(call.operands))]
        dtypes = [v.dtype for v in call.operands]
        functions = {**libm(), **own()}
        e = self.emitter(pieces.each, functions, operands, "args[1]", dtypes, limits=limits(), excess=True)
        last = Emitter(
            pieces.last, functions, [*operands, "args[1]"], "args[2]", [*dtypes, pieces.dtype], limits=limits(),
            excess=True,
        )  # fmt: skip
        room = scratch(pieces.each, pieces.product, packed=self.packed)
        if pieces.each.scratch + room + self.panels(pieces) > FRAME:
            return None
        e.check()
        last.check()

        def write() -> tuple[Part, ...]:
            made = Part(function(e, room), e.space.points(), 1)
            return made, Part(last.function(NAME), last.space.points(), Loops().grain(last, call.threads))

        return Work(write, pieces.bytes)

    def features(self, call: Call) -> Mapping[str, float]:
        values, products = self._arranged(call)
        assert products is not None
        pieces = _Pieces.of(call, values, products, self.least, self.few)
        p, sizes = pieces.product, pieces.each.values.sizes
        moved = float(call.bytes_read + call.out.bytes + 2 * pieces.bytes)
        flops = 2.0 * sizes[p.rows] * self.columns(pieces) * sizes[p.depth]
        return {"launches": 2.0, "bytes": moved, **operations(pieces.last), "flops": flops}


class GramProducts(DeepProducts):
    """The same of a matrix with itself turned. It is a kernel of its own: what a call is known by does not say whether
    two sides that lie alike in one buffer begin at one place."""

    name = "products_gram"
    emitter = _Gram
    packed = True
    least, few = _LAYER, _LAYER // 2

    def takes(self, call: Call, pieces: _Pieces) -> bool:
        return _of_itself(call, pieces.each)

    def panels(self, pieces: _Pieces) -> int:
        return _panels(pieces.rows, pieces.dtype) * numpy_dtype(pieces.dtype).itemsize

    def columns(self, pieces: _Pieces) -> float:
        return (pieces.rows + _band(pieces.rows, pieces.dtype)) / 2


def _deep(values: Values, products: tuple[Product, ...]) -> tuple[Values, Product]:
    """The product that is cut in pieces, its depth being one axis. Raises Unsupported where that is not one of two
    matrices as they lie, of few elements and deep."""
    if len(products) == 1 and products[0].around:
        values = joined(values)
        products = arranged(values) or ()
    if len(products) != 1 or products[0].around:
        raise Unsupported("more than one product of two matrices")
    p, sizes = products[0], values.sizes
    if values.rows[p.fold].axes != {p.rows, p.columns} or any(values.rows[n].op != "load" for n in (p.left, p.right)):
        raise Unsupported("several products, or sides that are made first")
    m, n, depth = (sizes[k] for k in (p.rows, p.columns, p.depth))
    if min(m, n) < _LEAST or m * n > _MOST or depth < _DEEP * max(m, n):
        raise Unsupported("a product that is not deep")
    return values, p


def _width(values: Values, p: Product, least: int, few: int) -> int:
    """The depth of a piece. Raises Unsupported where there are too few of such a depth."""
    m, n, depth = (values.sizes[k] for k in (p.rows, p.columns, p.depth))
    room = _ROOM // (m * n * numpy_dtype(values.rows[p.fold].dtype).itemsize)
    if depth < _PAIRED * few:
        raise Unsupported("a product that is not deep")
    pieces = min(_MANY * _PAIRED, depth // least, room) // _PAIRED * _PAIRED
    return -(-depth // max(_PAIRED, pieces))


def _of_itself(call: Call, s: Space) -> bool:
    """Whether the sides of a piece's product are one matrix, which has more columns than a band has rows."""
    p, shared, views = s.products[0], call.canonical.shared, call.canonical.operands
    (i, left), (j, right) = (s.values.rows[n].name for n in (p.left, p.right))
    if i != j and not (shared and shared[i] == shared[j] and views[i].offset == views[j].offset):
        return False
    steps = (left.stride(p.rows), left.stride(p.depth)), (right.stride(p.columns), right.stride(p.depth))
    square = s.values.sizes[p.rows] == s.values.sizes[p.columns] and s.values.sizes[p.rows] > _BAND
    return square and steps[0] == steps[1] and left.const == right.const


def _whole(values: Values, depth: str, width: int) -> Space:
    """The walk that makes a piece's product as a whole. Raises Unsupported."""
    products = arranged(values)
    if products is None or len(products) != 1:
        raise Unsupported("a piece that is no product")
    p = products[0]
    walk = Space(values, (depth,), {depth: width}, (p.columns, p.rows, depth), products=products)
    if not walk.direct(p):
        raise Unsupported("a product that is turned")
    return walk


KERNELS = (DeepProducts, GramProducts)
