"""Products of whole numbers that are summed as int32: the layers of quantized networks. What is read keeps its few
bytes up to the registers (integer.c), weights lie in panels that are made when the call is bound, and scales, biases
and what narrows the result again are computed on each tile. Sums wrap around where NumPy's do."""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from waxeq.backend.call import Call
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.products import Product, arranged, chain
from waxeq_cfamily.scalars import CTYPES, var
from waxeq_cfamily.stages import Space
from waxeq_cfamily.taken import NAME, bare_hash
from waxeq_cfamily.values import Index, Values, kept
from waxeq_native import library
from waxeq_native.products import Products, products_of
from waxeq_native.products_text import ProductEmitter
from waxeq_native.work import OPERANDS, Pack, Part, Work, same
from waxeq_native.work import kept as remembered

HERE = Path(__file__).parent
FILES = tuple(HERE / name for name in ("integer.c", "integer.h"))
KINDS = MappingProxyType({"int8": 0, "uint8": 1, "bool": 1, "int16": 2, "int32": 3})
"""What integer.h calls each dtype."""
_SUMMED = ("int32",)
_WIDE = 128
"""Columns that one task packs, about."""

_SIZE, _POINTER, _KIND = ctypes.c_int64, ctypes.c_void_p, ctypes.c_int
_A = (_POINTER, _SIZE, _SIZE)  # a matrix and its two strides
_SIDES = (_KIND, _KIND, _SIZE, _SIZE, _SIZE)
_C = (_POINTER, _SIZE, _KIND, _POINTER)  # the result, the stride of its rows, accumulate, scratch


class Table(ctypes.Structure):
    """`wx_integer` of integer.h."""

    _fields_: ClassVar = [
        ("nr", _SIZE),
        ("pack", ctypes.CFUNCTYPE(None, _KIND, _SIZE, _SIZE, *_A, _POINTER)),
        ("gemm", ctypes.CFUNCTYPE(None, *_SIDES, *_A, _POINTER, *_C)),
        ("gemm_any", ctypes.CFUNCTYPE(None, *_SIDES, *_A, *_A, *_C)),
        ("scratch", ctypes.CFUNCTYPE(_SIZE, _SIZE, _SIZE, _SIZE)),
    ]


@cache
def table(flags: tuple[str, ...] = ()) -> Table:
    """The functions of integer.c, compiled with more flags. Raises MissingCompiler, CompileFailed."""
    made = Table()
    (built,) = library.units([(FILES, flags)])
    built.wx_fill_integer(ctypes.byref(made))
    return made


@dataclass(frozen=True)
class PairedPack(Pack):
    """Panels of pairs along the depth, in the dtype of what they are made from."""

    @property
    def tall(self) -> int:
        return self.depth + self.depth % 2

    @property
    def each(self) -> int:
        return -(-self.columns // table().nr) * table().nr * self.tall

    def made(self, operand: np.ndarray) -> np.ndarray:
        flat = self._flat()
        item, kind = flat.itemsize, KINDS[self.dtype]
        for i, place in enumerate(product(*(range(n) for _, n, _ in self.axes))):
            step = self.start + sum(x * s for x, (_, _, s) in zip(place, self.axes, strict=True))
            source, to = operand.ctypes.data + step * item, flat.ctypes.data + i * self.each * item
            table().pack(kind, self.depth, self.columns, source, self.depth_step, self.column_step, to)
        return flat

    def part(self, at: int, sizes: Mapping[str, int]) -> Part:
        t, wide = CTYPES[self.dtype], -(-_WIDE // table().nr) * table().nr
        pieces = -(-self.columns // wide)
        lines = [
            f"    const int64_t n = t % {pieces} * {wide}, stack = t / {pieces};",
            f"    const int64_t many = {self.columns} - n < {wide} ? {self.columns} - n : {wide};",
        ]
        rest, place = "stack", str(self.start)
        for k, n, step in reversed(self.axes):
            lines.append(f"    const int64_t {var(k)} = {rest} % {n};")
            rest, place = f"{rest} / {n}", f"{place} + {var(k)} * {step}"
        head = [
            f"void {NAME}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{",
            "  (void)thread;",
            _TABLE,
            f"  const {t} *x = (const {t} *)args[{OPERANDS + self.operand}];",
            f"  {t} *to = ({t} *)(args[1] + {at});",
            "  for (int64_t t = begin; t < end; t++) {",
        ]
        call = (
            f"    table->pack({KINDS[self.dtype]}, {self.depth}, many, x + {place} + n * {self.column_step}, "
            f"{self.depth_step}, {self.column_step}, to + stack * {self.each} + n * {self.tall});"
        )
        return Part("\n".join([_header(), *head, *lines, call, "  }", "}"]), self.stacks * pieces, 1)


@dataclass(frozen=True)
class _Emitter(ProductEmitter):
    def call(self, p: Product, left: str, target: str) -> Iterator[str]:
        kinds = ", ".join(str(KINDS[self.values.rows[n].dtype]) for n in (p.left, p.right))
        if p.fold in self.packs:
            yield f"  table->gemm({kinds}, {left}, {self.packs[p.fold]}, {target}, scratch);"
        else:
            right, rbs, cbs = self.side(p.right, p.depth, p.columns)
            yield f"  table->gemm_any({kinds}, {left}, {right}, {rbs}, {cbs}, {target}, scratch);"


class IntegerProducts(Products):
    """Sums in int32 of products of matrices of whole numbers, or of one with a vector, with any epilogue; with
    functions of our own. What is widened for the product is read as it was before."""

    name = "products_integer"

    @property
    def code(self) -> str:
        texts = (f.read_text(encoding="utf-8") for f in FILES)
        return hashlib.sha256("|".join((super().code, *map(bare_hash, texts))).encode()).hexdigest()[:16]

    def matches(self, meaning: Term) -> bool:
        sums = [t for t, k in types(meaning).items() if t.head == "Sum" and k.dtype in _SUMMED]
        return any(t.terms[0].head == "Mul" for t in sums)

    def swift(self, meaning: Term) -> bool:
        """Loops take these products too, and would else be the only ones that are looked at."""
        return True

    def work(self, call: Call) -> Work | None:
        return None if call.sized else super().work(call)

    def in_blocks(self, call: Call, values: Values) -> Work | None:
        return None

    def _arranged(self, call: Call) -> tuple[Values, tuple[Product, ...] | None]:
        def make() -> tuple[Values, tuple[Product, ...] | None]:
            values, floats = products_of(self.values(call))
            values = _as_rows(_narrow(values))
            products = arranged(values, _SUMMED)
            sides = {values.rows[n].dtype for p in products or () for n in (p.left, p.right)}
            return values, products if not floats and sides <= KINDS.keys() else None

        return call.remember("integer products", lambda: remembered(("integer", *same(call)), make))

    def library(self) -> int | None:
        return ctypes.addressof(table())

    def writer(self, call: Call, s: Space) -> type[ProductEmitter]:
        return _Emitter

    def function(self, e: Emitter, room: int) -> str:
        first = f"  (void)thread;\n{_TABLE}\n  char scratch[{max(64, room)}];"
        return _header() + "\n" + e.function(NAME).replace("  (void)thread;", first)

    def scratch(self, s: Space, p: Product, packed: bool, deeper: str | None) -> int:
        return int(table().scratch(s.width(p.rows), s.width(p.columns), s.width(p.depth)))

    def panel(self, s: Space, p: Product) -> int:
        return table().nr

    def pack(self, s: Space, p: Product) -> tuple[Pack, str | None]:
        r = s.values.rows[p.right]
        return PairedPack.of(s.values, p, r.name[0], r.name[1]), None

    def as_it_lies(self, s: Space, p: Product) -> bool:
        return False


def _as_rows(values: Values) -> Values:
    """The values with an axis of one row for a vector that a matrix is multiplied with."""
    for n, r in enumerate(values.rows):
        if r.op != "fold" or r.name != "sum" or r.dtype not in _SUMMED or values.others:
            continue
        axes, source = chain(values, n)
        s = values.rows[source]
        vectors = [a for a in s.args if values.rows[a].axes == {*axes}] if s.name == "Mul" else []
        if len(vectors) == 1 and values.users[vectors[0]] == (source,):
            return _with_row(values, f"{axes[0]}:r", vectors[0], source)
    return values


def _with_row(values: Values, row: str, vector: int, source: int) -> Values:
    """The values with one place along `row` in a vector, and in all that is made of its product."""
    along = {vector, source}
    for n, r in enumerate(values.rows):
        along |= {n} if along & ({*values.reads(r)} - {vector}) else set()
    rows = tuple(replace(r, axes=r.axes | {row}) if n in along else r for n, r in enumerate(values.rows))
    size = math.prod(n for k, n in values.sizes.items() if k in values.rows[values.root].axes)
    out = values.out.plus(Index.of(row).scaled(size))
    return replace(values, rows=rows, sizes={**values.sizes, row: 1}, out=out)


def _narrow(values: Values) -> Values:
    """The values with sums of products taken of what is widened for them."""
    rows = list(values.rows)
    for n, r in enumerate(values.rows):
        if r.op == "fold" and r.name == "sum" and r.dtype in _SUMMED:
            _, source = chain(values, n)
            s = rows[source]
            if s.op == "apply" and s.name == "Mul" and len(values.users[source]) == 1:
                rows[source] = replace(s, args=tuple(_widened(values, a) for a in s.args))
    return values if values.others else replace(values, rows=kept(rows, values.root))


def _widened(values: Values, n: int) -> int:
    """What a row is that only has more bits; the row itself where that is nothing else."""
    r = values.rows[n]
    return r.args[0] if r.op == "apply" and r.name == "Cast" and values.rows[r.args[0]].dtype in KINDS else n


_TABLE = "  const wx_integer *table = (const wx_integer *)((wx_context *)args[0])->library;"


@cache
def _header() -> str:
    """What a generated kernel sees of integer.c."""
    return FILES[1].read_text(encoding="utf-8")


KERNELS = (IntegerProducts,)
