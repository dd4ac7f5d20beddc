"""Products by the BLAS that NumPy has loaded, called from the threads that run everything else.

A BLAS with threads of its own keeps them spinning after each call, where they take the cores from the next kernel. Here
each thread of ours multiplies a tile of its own, and what comes after the product is done while the tile is in cache.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from waxeq.backend.call import Call
from waxeq.ir.term import Term
from waxeq_cfamily.functions import DTYPES, libm, own
from waxeq_cfamily.products import Product
from waxeq_cfamily.spaces import Tile
from waxeq_cfamily.stages import Space
from waxeq_cfamily.taken import NAME
from waxeq_cfamily.values import Unsupported, Values
from waxeq_native.blas import SYSTEMS, Blas, find
from waxeq_native.loops import limits
from waxeq_native.products import FRAME, Products, begun
from waxeq_native.products_text import ProductEmitter
from waxeq_native.work import OPERANDS, Part, Work

_LEAST, _FEWEST = 16, 4
"""Rows, columns and depth of a cube of which a call of a BLAS costs as much as it computes, and the fewest of each of
what has as much to compute: of eight rows, eight columns and a depth of a thousand it takes half the time of ours."""


class Library(ctypes.Structure):
    """What `wx_context.library` points to: `wx_blas` of api.h, and the functions of `SYSTEMS` that there are."""

    _fields_: ClassVar = [
        ("f32", ctypes.c_void_p),
        ("f64", ctypes.c_void_p),
        ("set_threads", ctypes.c_void_p),
        ("get_threads", ctypes.c_void_p),
        ("bits", ctypes.c_int64),
        ("busy", ctypes.c_int32),
        ("users", ctypes.c_int32),
        ("before", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in SYSTEMS),
    ]


_HEAD = f"""void {NAME}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{
  (void)begin, (void)end, (void)thread;
  wx_blas *blas = (wx_blas *)((wx_context *)args[0])->library;
  while (__atomic_exchange_n(&blas->busy, 1, __ATOMIC_ACQUIRE)) continue;
"""
_TAIL = "  __atomic_store_n(&blas->busy, 0, __ATOMIC_RELEASE);\n}"
_FIRST = "  if (blas->users++ == 0) blas->before = blas->get_threads(), blas->set_threads(1);\n"
_LAST = "  if (--blas->users == 0) blas->set_threads(blas->before);\n"
ALONE, AGAIN = Part(_HEAD + _FIRST + _TAIL, 1, 1), Part(_HEAD + _LAST + _TAIL, 1, 1)
"""The threads of a BLAS are the whole process's: of calls that overlap the first takes them and the last gives them
back."""


@cache
def usable() -> Blas | None:
    """A BLAS that can be told to leave the threads to us; None where there is none."""
    found = find()
    return found if isinstance(found, Blas) and found.set_threads and found.get_threads else None


@cache
def table() -> Library:
    """The functions of that BLAS."""
    b = usable()
    assert b is not None, "no call is accepted without a BLAS"
    return Library(b.sgemm, b.dgemm, b.set_threads, b.get_threads, b.bits, 0, 0, 0, *map(b.systems.get, SYSTEMS))


def borrower() -> Any:
    """What tells whether calls of these kernels have the threads of BLAS now; None before the first is made."""
    return table() if table.cache_info().currsize else None


@dataclass(frozen=True)
class _Emitter(ProductEmitter):
    def check(self) -> None:
        super().check()
        for p in self.space.products:
            for row, axes in ((p.left, (p.rows, p.depth)), (p.right, (p.depth, p.columns))):
                _, *steps = self.side(row, *axes)
                if not any(steps[i] == 1 and steps[1 - i] >= self.values.sizes[axes[i]] for i in (0, 1)):
                    raise Unsupported("a matrix that no BLAS can read")

    def call(self, p: Product, left: str, target: str) -> Iterator[str]:
        s = DTYPES[self.values.rows[p.fold].dtype]
        right, rbs, cbs = self.side(p.right, p.depth, p.columns)
        yield f"  api->blas_{s}(blas->{s}, blas->bits, {left}, {right}, {rbs}, {cbs}, {target});"


class BlasProducts(Products):
    """Sums of products of matrices by the BLAS of this process, with any epilogue."""

    name = "products_blas"
    most = Tile(512, 1024)

    @property
    def code(self) -> str:
        b = usable()
        parts = (super().code, *((b.name, b.version) if b is not None else ()))
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]

    def matches(self, meaning: Term) -> bool:
        return usable() is not None and super().matches(meaning)

    def in_blocks(self, call: Call, values: Values) -> Work | None:
        return None

    def tile(self, values: Values, products: tuple[Product, ...], threads: int) -> Tile:
        """As few calls as there are threads, but no tile that leaves the cache."""
        if len(products) != 1 or products[0].columns in values.folded:
            raise Unsupported("products that are made one for the other")
        p = products[0]
        m, n = values.sizes[p.rows], values.sizes[p.columns]
        depth = values.sizes[p.depth]
        if min(m, n, depth) < _FEWEST or m * n * depth < _LEAST**3:
            raise Unsupported("products that are small")
        others = math.prod(values.sizes[k] for k in values.sizes if values.out.stride(k)) // (m * n)
        rows, columns = -(-m // self.most.rows), -(-n // self.most.columns)
        while others * rows * columns % threads and n // (columns + 1) >= _LEAST:
            columns += 1
        return Tile(-(-m // rows), min(n, -(-n // columns // _LEAST) * _LEAST))

    def written(self, call: Call, s: Space) -> Work | None:
        if s.scratch > FRAME or (max(call.sizes.values()) >= 1 << 31 and table().bits == 32):
            return None
        operands = [f"args[{OPERANDS + i}]" for i in range(len(call.operands))]
        dtypes = [v.dtype for v in call.operands]
        e = _Emitter(s, {**libm(), **own()}, operands, "args[2]", dtypes, limits=limits(), excess=True)
        e.check()

        def write() -> tuple[Part, ...]:
            text = begun(e, "const wx_blas *blas = (const wx_blas *)((wx_context *)args[0])->library;")
            return (ALONE, Part(text, e.space.points(), 1), AGAIN)

        return Work(write, library=ctypes.addressof(table()))


KERNELS = (BlasProducts,)
