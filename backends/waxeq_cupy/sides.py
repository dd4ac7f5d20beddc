"""Text of what the kernels of products have in common: the sides, element by element or in groups of 16 bytes, and what
becomes of groups of sums."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import CTYPES, carried, narrowed, var
from waxeq_cfamily.values import Row, pointed
from waxeq_cupy.products import Product
from waxeq_cupy.text import Text
from waxeq_cupy.threads import divides, movable

GROUP = 16
"""Bytes that are moved at once."""


def placed(text: Text, number: str, axes: Sequence[str], beside: str | None) -> Iterator[str]:
    """The places along `axes`, walked as one, from the number of a place; of the axis `beside`, which is the last, the
    place where a group begins."""
    sizes = text.values.sizes
    if beside is None:
        yield from text.places(number, axes, sizes)
        return
    assert axes[-1] == beside
    whole = len(axes) == 1
    yield f"const {text.integer} {var(beside)}_at = {number if whole else f'{number} % {sizes[beside]}'};"
    if not whole:
        yield f"const {text.integer} {number}_over = {number} / {sizes[beside]};"
        yield from text.places(f"{number}_over", axes[:-1], sizes)


def piece_of(names: tuple[str, str, str], width: int, many: int, whole: int, number: str) -> Iterator[str]:
    """Which of so many pieces a number is of, and where that begins and ends: the `names` of these, of pieces of so
    many places of a whole."""
    which, first, last = names
    yield f"const int {which} = (int)({number} % {many}u), {first} = {which} * {width};"
    yield f"const int {last} = {first} + {width} < {whole} ? {first} + {width} : {whole};"


def product_of(text: Text, product: Product, number: str) -> Iterator[str]:
    """Of which of the products around a block is."""
    yield f"const {text.integer} t = ({text.integer}){number};"
    yield from text.places("t", product.around, product.values.sizes)
    yield "(void)t;"


def indented(lines: Iterable[str]) -> Iterator[str]:
    """Lines of a block within another one."""
    yield from ("  " + x for x in lines)


Beside = tuple[str, int] | None
"""An axis along which groups are taken, and how many elements each has; None where elements are taken one by one."""


def nearest(text: Text, loads: Sequence[Row], axes: Iterable[str], wide: int) -> Beside:
    """The first of some axes along which the first of some loads, the largest, lies in groups of so many."""
    for r in loads:
        for v in axes:
            if text.values.sizes[v] % wide == 0 and movable(text.values, r, v) and divides(r.name[1], v, wide):
                return v, wide
    return None


def loads(product: Product, row: int) -> list[Row]:
    """What is read to make a row, the largest first."""
    rows, sizes = product.values.rows, product.values.sizes
    found = (rows[n] for n in product.cone(row) if rows[n].op == "load")
    return sorted(found, key=lambda r: (-math.prod(sizes[k] for k in r.axes), repr(r)))


def lying_along(product: Product, row: int, own: Sequence[str]) -> bool:
    """Whether what a side reads lies nearer to each other along the depth than along its own axes."""

    def step(axes: Sequence[str]) -> int:
        return min((abs(r.name[1].stride(axes[-1]) or 0) or 1 << 62 for r in loads(product, row)[:1]), default=0)

    return not own or step(product.depths) <= step(own)


@dataclass(frozen=True)
class Side:
    """One side of a product: `row` of its values, its `own` axes, the dtype that it is given in, how its elements are
    taken. `names`: what the places along its own axes and the depth are called. `end`: where the depth ends."""

    text: Text
    product: Product
    row: int
    own: tuple[str, ...]
    dtype: str
    names: tuple[str, str]
    beside: Beside
    end: str = ""

    @property
    def width(self) -> int:
        """How many elements are taken at once."""
        return 1 if self.beside is None else self.beside[1]

    @cached_property
    def along(self) -> bool:
        """Whether what a tile has of it is taken along the depth."""
        if self.beside is not None:
            return self.beside[0] == self.product.depths[-1]
        return lying_along(self.product, self.row, self.own)

    def copied(self, along: bool | None) -> bool:
        """Whether groups need not pass through registers on their way to a tile whose lines lie along the depth or
        not; None where they are wanted in registers."""
        r = self.text.values.rows[self.row]
        whole = self.width * numpy_dtype(self.dtype).itemsize == GROUP and r.op == "load" and r.dtype == self.dtype
        whole = whole and not any(True for _ in pointed(r.name[1]))  # where it lies is known beforehand
        return whole and self.along == along and self._text.wide(self.row, self._axis)

    @property
    def _axis(self) -> str:
        assert self.beside is not None
        return self.beside[0]

    @cached_property
    def _text(self) -> Text:
        return replace(self.text, width=self.width)

    def lines(self, name: str, along: bool | None) -> Iterator[str]:
        """The definition of `name`, a `wx_side` of products.cuh."""
        copied = self.copied(along)
        flags = f"{self.width}, {str(self.along).lower()}, {str(copied).lower()}"
        first, second = self.names
        end = self.end or self.product.size(self.product.depths)
        inside = f"{first} < {self.product.size(self.own)} && {second} < {end}"
        if copied:
            yield f"const auto {name} = wx_side_of<{flags}>([&](auto &shared, int to, int {first}, int {second}) {{"
            yield from indented(self._copy(inside))
        else:
            yield f"const auto {name} = wx_side_of<{flags}>([&](int {first}, int {second}) {{"
            yield f"  wx_group<{CTYPES[self.dtype]}, {self.width}> all = {{}};"
            yield f"  if ({inside}) {{"
            yield from indented(indented(self._take()))
            yield "  }"
            yield "  return all;"
        yield "});"

    def _places(self) -> Iterator[str]:
        for number, axes in zip(self.names, (self.own, self.product.depths), strict=True):
            v = self.beside[0] if self.beside is not None else None
            yield from placed(self.text, number, axes, v if v in axes else None)

    def _copy(self, inside: str) -> Iterator[str]:
        n, where = self.text.values.rows[self.row].name
        yield from self._places()
        yield f"const {self.text.integer} {var(self._axis)} = {var(self._axis)}_at;"
        yield f"const bool inside = {inside};"
        yield f"wx_copied<{self.width}>(shared, to, x{n}, inside ? {self.text.index(where)} : 0, inside);"

    def _take(self) -> Iterator[str]:
        text, need = self._text, self.text.need([self.row], ())
        value = narrowed(text.name(self.row), self.dtype)
        yield from self._places()
        if self.width == 1:
            yield from (x for n in need for x in text.declared(n))
            yield f"all.at[0] = {value};"
            return
        v = self._axis
        wide = [n for n in need if text.wide(n, v)]
        yield from (x for n in need if v not in text.values.rows[n].axes for x in text.declared(n))
        yield f"const {text.integer} {var(v)} = {var(v)}_at;"
        yield from (text.taken(n) for n in wide)
        yield "#pragma unroll"
        yield f"for (int u = 0; u < {self.width}; u++) {{"
        yield f"  const {text.integer} {var(v)} = {var(v)}_at + u;"
        for n in (n for n in need if v in text.values.rows[n].axes):
            yield from indented([text.one(n, "u")] if n in wide else text.declared(n))
        yield f"  all.at[u] = {value};"
        yield "}"


@dataclass(frozen=True)
class After:
    """What becomes of sums: of groups of `width` columns of a row `m`, from the column `n` on. All columns are in whole
    groups: code for what is left over would need the registers of both."""

    text: Text
    product: Product
    width: int

    @staticmethod
    def of(text: Text, product: Product, most: int, *, aligned: bool) -> After:
        """In groups of at most so many."""
        values, v = text.values, product.columns[-1]
        loaded = (r for r in values.rows if r.op == "load" and {*product.columns} & r.axes)
        items = [numpy_dtype(r.dtype).itemsize for r in loaded if movable(values, r, v)]
        if values.out.stride(v) == 1:
            items.append(numpy_dtype(values.rows[values.root].dtype).itemsize)
        width = min(most, GROUP // min(items)) if items and aligned else 1
        while width > 1 and values.sizes[v] % width:
            width //= 2
        return After(replace(text, width=width), product, width)

    def lines(self) -> Iterator[str]:
        """The body of what is called with `m`, `n` and `sums`."""
        p = self.product
        rows, columns = p.size(p.rows), p.size(p.columns)
        yield f"if (m >= {rows} || n >= {columns}) return;"
        yield from placed(self.text, "m", p.rows, None)
        yield from self.before()
        yield from self._together()

    def known(self) -> tuple[int, ...]:
        """The rows that are given."""
        return (self.product.fold,)

    def before(self) -> Iterator[str]:
        """What is the same for all of a group."""
        yield from ()

    def _sum(self, place: str) -> str:
        return self.text.known(self.product.fold, self.text.folded(self.product.fold, f"sums.at[{place}]"))

    def rows(self) -> list[int]:
        """What is computed."""
        return self.text.need([self.text.values.root], self.known())

    def _stored(self) -> str:
        return f"out[{self.text.index(self.text.values.out)}] = {self.text.stored};"

    def _together(self) -> Iterator[str]:
        text, v = self.text, self.product.columns[-1]
        root = text.values.rows[text.values.root]
        wide = [n for n in self.rows() if text.wide(n, v)]
        yield from placed(text, "n", self.product.columns, v)
        yield from (x for n in self.rows() if v not in text.values.rows[n].axes for x in text.declared(n))
        yield f"const {text.integer} {var(v)} = {var(v)}_at;"
        yield from (text.taken(n) for n in wide)
        if text.wide_result:
            yield f"wx_group<{CTYPES[root.dtype]}, {self.width}> all;"
        yield "#pragma unroll"
        yield f"for (int u = 0; u < {self.width}; u++) {{"
        yield f"  const {text.integer} {var(v)} = {var(v)}_at + u;"
        yield "  " + self._sum("u")
        for n in (n for n in self.rows() if v in text.values.rows[n].axes):
            yield from indented([text.one(n, "u")] if n in wide else text.declared(n))
        yield f"  all.at[u] = {text.stored};" if text.wide_result else f"  {self._stored()}"
        yield "}"
        if text.wide_result:
            yield f"wx_given<{self.width}>(out, {text.index(text.values.out)}, all);"


def summed(dtype: str) -> str:
    """The C type of sums of a dtype."""
    return CTYPES[carried(dtype)]
