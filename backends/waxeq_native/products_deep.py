"""Products of which little comes and which are deep, as a covariance X'X of many rows: there are no tiles to share out,
and panels of a whole side would be written to memory and read again. Pieces of the depth are multiplied, each by one
thread and in its cache, and what comes of them is summed (split K; R. C. Agarwal et al., A three-dimensional approach
to parallel matrix multiplication, 1995). Where both sides are one, half of the product is the other half turned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from waxeq.backend.call import Call
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.functions import DTYPES, libm, own
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.products import Product, arranged
from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.spaces import Widths, space
from waxeq_cfamily.split import Nest, cut
from waxeq_cfamily.stages import Space
from waxeq_cfamily.taken import NAME
from waxeq_cfamily.values import Unsupported, Values
from waxeq_native.gemm import api
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
_BAND, _LAYER = 32, 256
"""Rows of a band of a product of which half is the other half turned, and the depth of its layers: it is worth it from
one of these on."""
_PIECE = 64
"""Depth of a piece at least."""
_PAIRED = 8
"""Pieces that are summed in pairs, which rounds less often: as many, or a multiple."""
_MANY, _ROOM = 4, 1 << 20
"""Groups of these at most, and bytes that all of their results have: what is summed in two steps that are about as long
rounds least often."""


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
    nr = getattr(api(), f"nr_{DTYPES[dtype]}")
    return -(-min(m, _BAND) // nr) * nr


def _panels(m: int, dtype: str) -> int:
    """Elements of the panels of a layer."""
    return int(getattr(api(), f"packed_size_{DTYPES[dtype]}")(_LAYER, m))


class DeepProducts(Products):
    """A sum of products of two matrices in pieces of its depth, with any epilogue."""

    name = "products_deep"

    def walked(self, call: Call, values: Values, products: tuple[Product, ...]) -> Work | None:
        p = _deep(values, products)
        width = self._width(values, p, call.threads)
        partial, rest = cut(values, p.fold, p.depth, width, Widths(), len(call.operands))
        return self._written(call, _whole(partial, p.depth, width), rest)

    def _width(self, values: Values, p: Product, threads: int) -> int:
        """The depth of a piece: every thread has several, so that one that is held up leaves some to the others."""
        m, n, depth = (values.sizes[k] for k in (p.rows, p.columns, p.depth))
        item = numpy_dtype(values.rows[p.fold].dtype).itemsize
        room = max(_ROOM // (m * n * item), 4 * threads)
        pieces = min(_MANY * _PAIRED, depth // _PIECE, room) // _PAIRED * _PAIRED
        return -(-depth // max(_PAIRED, pieces))

    def _written(self, call: Call, partial: Nest, rest: Values) -> Work | None:
        operands = [f"args[{OPERANDS + i}]" for i in range(len(call.operands))]
        dtypes = [v.dtype for v in call.operands]
        functions = {**libm(), **own()}
        p, kept = partial.space.products[0], partial.space.values.rows[-1].dtype
        half = _of_itself(call, partial.space)
        kind = _Gram if half else ProductEmitter
        e = kind(partial.space, functions, operands, "args[1]", dtypes, limits=limits())
        room = scratch(partial.space, p, packed=half)
        panels = _panels(partial.space.values.sizes[p.rows], kept) * numpy_dtype(kept).itemsize if half else 0
        if partial.space.scratch + room + panels > FRAME:
            return None
        last = Emitter(space(rest, Widths()), functions, [*operands, "args[1]"], "args[2]", [*dtypes, kept],
                       limits=limits())  # fmt: skip
        e.check()
        last.check()

        def write() -> tuple[Part, ...]:
            made = Part(function(e, room), e.space.points(), 1)
            return made, Part(last.function(NAME), last.space.points(), Loops().grain(last, call.threads))

        return Work(write, partial.elements * numpy_dtype(kept).itemsize)

    def features(self, call: Call) -> Mapping[str, float]:
        values, products = self._arranged(call)
        assert products is not None
        p = _deep(values, products)
        m, n, depth = (values.sizes[k] for k in (p.rows, p.columns, p.depth))
        width = self._width(values, p, call.threads)
        partial, rest = cut(values, p.fold, p.depth, width, Widths(), len(call.operands))
        half = _of_itself(call, _whole(partial, p.depth, width).space)
        columns = (m + _band(m, values.rows[p.fold].dtype)) / 2 if half else n
        moved = float(call.bytes_read + call.out.bytes)
        return {
            "launches": 2.0,
            "bytes": moved,
            **operations(space(rest, Widths())),
            "flops": 2.0 * m * columns * depth,
        }


def _deep(values: Values, products: tuple[Product, ...]) -> Product:
    """The product that is cut in pieces. Raises Unsupported where that is not one of two matrices as they lie, of few
    elements and deep."""
    p, sizes = products[0], values.sizes
    if len(products) > 1 or p.around or values.rows[p.fold].axes != {p.rows, p.columns}:
        raise Unsupported("more than one product of two matrices")
    if any(values.rows[n].op != "load" for n in (p.left, p.right)):
        raise Unsupported("sides that are made first")
    m, n, depth = (sizes[k] for k in (p.rows, p.columns, p.depth))
    if min(m, n) < _LEAST or m * n > _MOST or depth < max(_PAIRED * _PIECE, _DEEP * max(m, n)):
        raise Unsupported("a product that is not deep")
    return p


def _of_itself(call: Call, s: Space) -> bool:
    """Whether the sides of a piece's product are one matrix, and turning half of the result is little work."""
    p, shared, views = s.products[0], call.canonical.shared, call.canonical.operands
    (i, left), (j, right) = (s.values.rows[n].name for n in (p.left, p.right))
    if i != j and not (shared and shared[i] == shared[j] and views[i].offset == views[j].offset):
        return False
    steps = (left.stride(p.rows), left.stride(p.depth)), (right.stride(p.columns), right.stride(p.depth))
    square = s.values.sizes[p.rows] == s.values.sizes[p.columns] and s.values.sizes[p.rows] > _BAND
    return square and steps[0] == steps[1] and left.const == right.const and s.width(p.depth) >= _LAYER


def _whole(partial: Nest, depth: str, width: int) -> Nest:
    """The walk that makes a piece's product as a whole. Raises Unsupported."""
    values = partial.space.values
    products = arranged(values)
    if products is None or len(products) != 1:
        raise Unsupported("a piece that is no product")
    p = products[0]
    walk = Space(values, (depth,), {depth: width}, (p.columns, p.rows, depth), products=products)
    if not walk.direct(p):
        raise Unsupported("a product that is turned")
    return Nest(walk, partial.partial, partial.elements)


KERNELS = (DeepProducts,)
