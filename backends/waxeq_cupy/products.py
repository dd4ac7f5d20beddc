"""What a product of matrices is made of, whatever views, prologue and epilogue are around it.

A product is a sum over `depths` of left * right. Its rows are the axes that only the left side has, its columns those
of the right side; what both have, or only the result, is one product after another. Each of the three may be several
axes, which are walked as one, the last the fastest: a convolution is a product whose depths are channels and windows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from waxeq_cfamily.scalars import NARROW, carried
from waxeq_cfamily.split import cut
from waxeq_cfamily.values import Index, Unsupported, Values, chain, pointed
from waxeq_cupy.grouped import walked
from waxeq_cupy.pieces import WIDTHS

FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Product:
    """`fold` is the sum of `left` * `right`, the rows of the values that they are."""

    values: Values
    fold: int
    left: int
    right: int
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    depths: tuple[str, ...]

    def size(self, axes: tuple[str, ...]) -> int:
        """How many places some axes have together."""
        return math.prod(self.values.sizes[k] for k in axes)

    @cached_property
    def around(self) -> tuple[str, ...]:
        """Axes of which every place has a product of its own, the slowest first."""
        own = {*self.rows, *self.columns, *self.values.folded}
        return _fastest_last(self.values, tuple(k for k in self.values.sizes if k not in own))

    @property
    def many(self) -> int:
        """How many products there are."""
        return self.size(self.around)

    @property
    def volume(self) -> int:
        """How many numbers are multiplied."""
        return self.many * self.size(self.rows) * self.size(self.columns) * self.size(self.depths)

    @property
    def dtype(self) -> str:
        """The dtype of what is multiplied."""
        return self.values.rows[self.left].dtype

    def cone(self, row: int) -> frozenset[int]:
        """The rows that one is made from, itself included."""
        seen: set[int] = set()
        stack = [row]
        while stack:
            n = stack.pop()
            if n not in seen:
                seen.add(n)
                stack += self.values.reads(self.values.rows[n])
        return frozenset(seen)


def only(values: Values) -> Product:
    """The one product of matrices of a meaning that folds nothing else. Raises Unsupported."""
    return _only(values, vectors=False)


def few(values: Values, most: int) -> Product:
    """The same with at most so many rows, which may be one vector. Raises Unsupported."""
    p = _only(values, vectors=True)
    if p.size(p.rows) > p.size(p.columns) or not p.columns:
        p = replace(p, left=p.right, right=p.left, rows=p.columns, columns=p.rows)
    if not p.columns:
        raise Unsupported("two vectors")
    if p.size(p.rows) > most:
        raise Unsupported("many rows")
    return p


def in_pieces(p: Product, width: int, operand: int) -> tuple[Product, Values, int]:
    """A product of each piece of so many places of the first axis of the depth, as partial result number `operand`;
    the values that are made of those; and how many numbers they are."""
    values = p.values
    made, rest = cut(values, p.fold, p.depths[0], width, WIDTHS, operand)
    wide = carried(values.rows[p.fold].dtype)  # partial sums are not rounded
    own = made.space.values
    own = replace(own, rows=(*own.rows[:-1], replace(own.rows[-1], dtype=wide)))
    rest = replace(
        rest,
        rows=tuple(replace(r, dtype=wide) if r.op == "load" and r.name[0] == operand else r for r in rest.rows),
    )
    part = at(own, own.root, vectors=True)
    if {*part.rows} != {*p.rows}:
        part = replace(part, left=part.right, right=part.left, rows=part.columns, columns=part.rows)
    return replace(part, rows=p.rows, columns=p.columns, depths=p.depths), rest, made.elements


def _only(values: Values, *, vectors: bool) -> Product:
    values = walked(values)
    folds = [n for n, r in enumerate(values.rows) if r.op == "fold"]
    if not folds:
        raise Unsupported("no product")
    found = at(values, folds[-1], vectors=vectors)
    if len(found.depths) != len(folds) or len(set(found.depths)) != len(folds):
        raise Unsupported("folds besides a product")
    return ended(found)


def ended(p: Product) -> Product:
    """The product, whose depth ends with it. Raises Unsupported where the result has a place for each of the depth:
    what comes after a sum knows none."""
    if {*p.depths} & p.values.rows[p.values.root].axes:
        raise Unsupported("a result along the depth")
    return p


def at(values: Values, fold: int, *, vectors: bool = False) -> Product:
    """The product that a fold is, of which it is the outermost; `vectors`: one of its sides may be one. Raises
    Unsupported."""
    axes, source = chain(values, fold)
    r, s = values.rows[fold], values.rows[source]
    if r.name != "sum" or r.dtype not in FLOATS or s.op != "apply" or s.name != "Mul":
        raise Unsupported("no sum of products")
    a, b = (_bare(values, n) for n in s.args)
    if values.rows[a].dtype != values.rows[b].dtype:  # one of them was converted, the other one never
        a, b = s.args
    own = [tuple(values.rows[x].axes - values.rows[y].axes - {*axes}) for x, y in ((a, b), (b, a))]
    if not (any(own) if vectors else all(own)) or {*axes} & r.axes:
        raise Unsupported("no matrices")
    beside = next((k for k in values.sizes if values.out.stride(k) == 1 and values.sizes[k] > 1), None)
    if beside in own[0] or (beside not in own[1] and _size(values, own[0]) > _size(values, own[1])):
        a, b, own = b, a, own[::-1]
    rows, columns = (_fastest_last(values, x) for x in own)
    return Product(values, fold, a, b, rows, columns, _nearest_last(values, (a, b), axes))


def _bare(values: Values, n: int) -> int:
    """A side before it was widened: products of narrow floats are exact in float32."""
    r = values.rows[n]
    if r.op == "apply" and r.name == "Cast" and r.dtype == "float32" and values.rows[r.args[0]].dtype in NARROW:
        return r.args[0]
    return n


def _size(values: Values, axes: tuple[str, ...]) -> int:
    return math.prod(values.sizes[k] for k in axes)


def _fastest_last(values: Values, axes: tuple[str, ...]) -> tuple[str, ...]:
    """Axes in the order in which the result has them in memory."""
    return tuple(sorted(axes, key=lambda k: (-abs(values.out.stride(k) or 0), k)))


def _nearest_last(values: Values, sides: tuple[int, int], axes: tuple[str, ...]) -> tuple[str, ...]:
    """Axes in the order in which what is read has them in memory."""

    def steps(k: str) -> tuple[int, ...]:
        found = [values.rows[n].name[1].stride(k) for n in sides if values.rows[n].op == "load"]
        known = sorted(abs(s) for s in found if s)
        return tuple(known) or (1 << 62,)

    return tuple(sorted(axes, key=lambda k: (tuple(-s for s in steps(k)), k)))


@dataclass(frozen=True)
class Read:
    """How a side lies in memory: which operand, from which element on, with which steps, of elements."""

    operand: int
    dtype: str
    offset: int
    steps: Mapping[str, int]


def plain(values: Values, row: int) -> Read:
    """A row that is read as it lies, every place by steps. Raises Unsupported."""
    r = values.rows[row]
    if r.op != "load" or r.guards:
        raise Unsupported("a side that is computed")
    number, where = r.name
    return Read(number, r.dtype, where.const, steps(values, where))


def steps(values: Values, where: Index) -> Mapping[str, int]:
    """From one place to the next along each axis that has such steps. Raises Unsupported for other places."""
    found = {k: where.stride(k) for k in values.sizes}
    if any(s is None for s in found.values()) or any(True for _ in pointed(where)):
        raise Unsupported("places that are no steps")
    return {k: s for k, s in found.items() if s}
