"""What the ops that make an array tell of its least and greatest value, as clipping, remainders and argmax do:
positions that are known to lie within an axis are not looked at again."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from waxeq.ir.graph import GraphBuilder, Node
from waxeq.ir.types import is_float, numpy_dtype
from waxeq.ops.contraction import Einsum
from waxeq.ops.elementwise import Cast, Map, Select, Zip
from waxeq.ops.indexing import Gather, TakeAlong
from waxeq.ops.movement import BroadcastTo, Concat, Reshape, Slice, Transpose
from waxeq.ops.ordering import Argsort, Sort
from waxeq.ops.reduction import Reduce
from waxeq.ops.source import Const, Iota

DEPTH = 24
"""How many ops are followed from a value towards the inputs."""
WIDE = ("int32", "int64")
_STEP = 2**20
"""What may be added at a time to what a cast made of NaN."""
_MOST = 2**20
"""Numbers that the bounds of a sum are looked for in, before they are added."""
_EXACT = 2.0**53
"""What sums of whole numbers in floats may grow to before they are rounded: a bound would be off by some places."""
LARGEST = 2**30
"""What bounds may grow to: sums and products of such do not wrap, and lie far from the least integer of 32 bits."""


@dataclass(frozen=True, slots=True)
class Range:
    """Every value is from `low` to `high`. `nan`: or it is NaN, or where the array is of integers the least integer of
    32 or 64 bits, which a cast makes of NaN, with at most `DEPTH` times `_STEP` added: a number below all axes."""

    low: float
    high: float
    nan: bool = False


def known_range(b: GraphBuilder, value: int) -> Range | None:
    """The range of a value of a graph, with infinite bounds where one side is open; None where its ops do not tell."""
    met: dict[int, Range | None] = {}

    def known(v: int, depth: int) -> Range | None:
        if v not in met:
            node = b.node(v)
            if node is None:
                found = _of_array(b.constant(v))
            else:
                found = None if depth == 0 else _of_node(b, node, lambda w: known(w, depth - 1))
            met[v] = _of_dtype(b.type(v).dtype) if found is None else found
        return met[v]

    return known(value, DEPTH)


def _of_dtype(dtype: str) -> Range | None:
    """The range of an integer of few bits."""
    if dtype == "bool":
        return Range(0, 1)
    if dtype not in ("int8", "uint8", "int16", "uint16"):
        return None
    return Range(float(np.iinfo(dtype).min), float(np.iinfo(dtype).max))


Known = Callable[[int], Range | None]


def _of_node(b: GraphBuilder, n: Node, known: Known) -> Range | None:
    op = n.op
    if isinstance(op, Const):
        return _of_number(float(op.reference()))
    if isinstance(op, Iota):
        return Range(0, max(op.size - 1, 0))
    if isinstance(op, Argsort):
        return _of_places(b.type(n.inputs[0]).shape, (op.axis,))
    if isinstance(op, Einsum) or (isinstance(op, Reduce) and op.f == "sum"):
        return None if is_float(n.type.dtype) else _held(_summed(b, n, known), n.type.dtype)
    if isinstance(op, Reduce):
        return _of_places(b.type(n.inputs[0]).shape, op.axes) if op.f in ("argmax", "argmin") else None
    if isinstance(op, (Reshape, Transpose, BroadcastTo, Slice, Sort, Gather, TakeAlong)):
        return known(n.inputs[0])
    if isinstance(op, (Select, Concat)):
        return _either([known(v) for v in n.inputs[isinstance(op, Select) :]])
    if isinstance(op, (Map, Cast)):
        return _of_one(op, b.type(n.inputs[0]).dtype, known(n.inputs[0]))
    if isinstance(op, Zip):
        return _held(_zipped(op.f, n.type.dtype, *map(known, n.inputs)), n.type.dtype)
    return None


def _of_array(a: np.ndarray | None) -> Range | None:
    """The range of the numbers of an array, where it has some and none is NaN."""
    if a is None or a.size == 0 or a.dtype.kind not in "iuf":
        return None
    return None if np.isnan(a).any() else Range(float(a.min()), float(a.max()))


def _summed(b: GraphBuilder, n: Node, known: Known) -> Range | None:
    """The range of a sum of products. The numbers of a constant count each at its place: binary digits times powers of
    two are less than the next power."""
    factors, sizes, kept = _factors(b, n)
    placed = {k for v, labels in factors if b.constant(v) is not None for k in labels}
    if math.prod(sizes[k] for k in placed) > _MOST:
        return None
    low = high = np.ones((1,) * len(sizes))
    for v, labels in factors:
        a, r = b.constant(v), known(v)
        if r is None or r.nan or not _finite(r) or 0 in sizes.values():
            return None
        ends = [np.asarray(x) for x in (r.low, r.high)] if a is None else [_laid(a, labels, tuple(sizes))]
        both = [x * y for x in (low, high) for y in ends]
        low, high = np.minimum.reduce(both), np.maximum.reduce(both)
    terms = math.prod(size for k, size in sizes.items() if k not in kept)
    if max(-low.min(), high.max()) * terms > _EXACT:
        return None
    for i, (k, size) in enumerate(sizes.items()):
        if k not in kept:
            low, high = (x.sum(i, keepdims=True) * (size // x.shape[i]) for x in (low, high))
    return _within_reach(Range(float(low.min()), float(high.max())))


Labels = tuple[Hashable, ...]


def _factors(b: GraphBuilder, n: Node) -> tuple[Sequence[tuple[int, Labels]], dict[Hashable, int], Labels]:
    """What a sum is of: its factors, each with a label for every axis, the size of each label, those it keeps."""
    sizes: dict[Hashable, int] = {}
    if isinstance(n.op, Einsum):
        ins, out = n.op.labels
        for v, row in zip(n.inputs, ins, strict=True):
            for k, size in zip(row, b.type(v).shape, strict=True):
                sizes[k] = size if sizes.get(k, 1) == 1 else sizes[k]
        return [(v, tuple(row)) for v, row in zip(n.inputs, ins, strict=True)], sizes, tuple(out)
    assert isinstance(n.op, Reduce)
    (x,), made, shape = n.inputs, b.node(n.inputs[0]), b.type(n.inputs[0]).shape
    parts = made.inputs if made is not None and made.op == Zip("mul") else (x,)
    rank = len(shape)
    rows = [(v, tuple(range(rank - b.type(v).rank, rank))) for v in parts]
    return rows, dict(enumerate(shape)), tuple(k for k in range(rank) if k not in n.op.axes)


def _laid(a: np.ndarray, labels: Labels, order: Labels) -> np.ndarray:
    """An array with an axis for each label in their order, of size 1 where it has none."""
    own = a.transpose(sorted(range(a.ndim), key=lambda i: order.index(labels[i]))).astype(float)
    sizes = dict(zip(labels, a.shape, strict=True))
    return own.reshape([sizes.get(k, 1) for k in order])


def _held(x: Range | None, dtype: str) -> Range | None:
    """What integers of few bits do not hold is some other number."""
    if x is None or dtype == "bool":
        return None
    if is_float(dtype) or x.nan:
        return x
    holds = np.iinfo(dtype).min <= x.low and x.high <= np.iinfo(dtype).max
    return x if holds else None


def _of_number(x: float) -> Range | None:
    return None if math.isnan(x) else Range(x, x)


def _of_places(shape: Sequence[int], axes: Sequence[int]) -> Range:
    return Range(0, max(math.prod(shape[a] for a in axes) - 1, 0))


def _either(ranges: Sequence[Range | None]) -> Range | None:
    found = [r for r in ranges if r is not None]
    if len(found) < len(ranges):
        return None
    return Range(min(r.low for r in found), max(r.high for r in found), any(r.nan for r in found))


def _finite(x: Range | None) -> bool:
    return x is not None and -LARGEST < x.low <= x.high < LARGEST


def _of_one(op: Map | Cast, source: str, x: Range | None) -> Range | None:
    if x is None:
        return None
    if isinstance(op, Cast):
        return _cast(source, op.dtype, x)
    f = ROUNDED.get(op.f)
    return None if f is None else Range(float(f(x.low)), float(f(x.high)), x.nan)


ROUNDED: Mapping[str, Callable[[Any], Any]] = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint}
"""Functions that round floats, which keeps their order."""


def _cast(source: str, dtype: str, x: Range) -> Range | None:
    """Integers of fewer than 32 bits make some other number of NaN and of what they do not hold."""
    if is_float(dtype):
        if not is_float(source) and x.nan:
            return None
        low, high = (float(np.asarray(v).astype(numpy_dtype(dtype))) for v in (x.low, x.high))
        return Range(low, high, x.nan)
    if not is_float(source):
        holds = dtype != "bool" and _finite(x) and np.iinfo(dtype).min <= x.low and x.high <= np.iinfo(dtype).max
        # of what a cast made of NaN, the lower half of an integer of 64 bits is any number
        return x if holds and (not x.nan or dtype == "int64" or dtype == source) else None
    if dtype not in WIDE:
        return None
    return Range(float(np.trunc(x.low)), float(np.trunc(x.high)), x.nan or not _finite(x))


def _zipped(f: str, dtype: str, x: Range | None, y: Range | None) -> Range | None:
    """Sums and products of floats are left out, as rules may round them in another order."""
    if f in ("max", "min"):
        return _bounded(f, x, y, is_float(dtype))
    if is_float(dtype) or y is None or y.nan or not _finite(y):
        return None
    if f == "mod" and y.low > 0:
        return Range(0, y.high - 1)
    if x is None or not _finite(x):
        return None
    if f in ("add", "sub"):
        low, high = (y.low, y.high) if f == "add" else (-y.high, -y.low)
        wraps = x.nan and (low < 0 or high > _STEP)
        return None if wraps else _within_reach(Range(x.low + low, x.high + high, x.nan))
    if x.nan or x.low < 0 or y.low < 0:
        return None
    if f == "floordiv" and y.low > 0:
        return Range(x.low // y.high, x.high // y.low)
    return _within_reach(Range(x.low * y.low, x.high * y.high)) if f == "mul" else None


def _within_reach(x: Range) -> Range | None:
    return x if _finite(x) else None


def _bounded(f: str, x: Range | None, y: Range | None, floating: bool) -> Range | None:
    """A maximum is at least what one of its sides is, a minimum at most. Floats pass NaN on; of integers, what a cast
    made of NaN is less than the other side, which a maximum then is."""
    if x is None and y is None:
        return None
    open_ = Range(-math.inf, math.inf, floating)
    x, y = x or open_, y or open_
    if f == "min":
        return Range(min(x.low, y.low), min(x.high, y.high), x.nan or y.nan)
    if floating:
        return Range(max(x.low, y.low), max(x.high, y.high), x.nan or y.nan)
    low = max(-math.inf if x.nan else x.low, -math.inf if y.nan else y.low)
    return Range(low, max(x.high, y.high), x.nan and y.nan)
