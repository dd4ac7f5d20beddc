"""What attention is made of: two products of matrices with a softmax between them, whatever is around and between them.

The softmax runs along the keys, over anything element-wise of the product of queries with keys (scaled, masked).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import carried
from waxeq_cfamily.values import Unsupported, Values, chain
from waxeq_cupy.grouped import walked
from waxeq_cupy.products import Product, at, ended

_ONE = "one"
"""The axis of a query that is alone, and has none."""


@dataclass(frozen=True)
class Attention:
    """`product`: of weights with the values, its left side the weights. `scores`: the product of queries with keys.
    `scored`: the row that the softmax takes. `total`: the row that is the sum of exponentials, where there is one;
    `divides`: weights are divided by it before they are multiplied."""

    product: Product
    scores: Product
    scored: int
    total: int | None
    divides: bool

    @property
    def keys(self) -> tuple[str, ...]:
        return self.product.depths

    @property
    def flops(self) -> float:
        """Operations of the two products."""
        p = self.product
        each = p.size(self.scores.depths) + p.size(p.columns)
        return 2.0 * p.many * p.size(p.rows) * p.size(p.depths) * each

    @property
    def dtype(self) -> str:
        """What is multiplied: narrow floats, if both products have the same."""
        p, q = self.product, self.scores
        own = q.dtype, p.values.rows[p.right].dtype
        return own[0] if own[0] == own[1] else max(map(carried, own), key=lambda d: numpy_dtype(d).itemsize)


def found(values: Values) -> Attention:
    """The attention that a meaning is. Raises Unsupported."""
    values = walked(values)
    rows = values.rows
    tops = [n for n, r in enumerate(rows) if r.op == "fold" and r.name == "max"]
    sums = [n for n, r in enumerate(rows) if r.op == "fold" and r.name == "sum" and rows[r.args[0]].name == "Mul"]
    if not tops or len(sums) < 2:
        raise Unsupported("no attention")
    whole = _outermost(values, sums[-1])
    p = ended(at(values, whole, vectors=True))
    if any(n in p.cone(p.right) for n in tops):
        p = replace(p, left=p.right, right=p.left, rows=p.columns, columns=p.rows)
    if not p.columns:
        raise Unsupported("values of one column")
    if not p.rows:
        p = replace(p, values=replace(values, sizes={**values.sizes, _ONE: 1}), rows=(_ONE,))
    weights, total, divides = _weights(p)
    scored, top = _exponential(values, weights)
    chains = [n for n in p.cone(scored) if rows[n].op == "fold"]
    if not chains:
        raise Unsupported("scores that are no product")
    scores = _scores(p, max(chains))
    total = total if total is not None else _total(p, weights)
    folds = {n for f in (whole, scores.fold, top, total) if f is not None for n in _links(values, f)}
    if folds != {n for n, r in enumerate(rows) if r.op == "fold"}:
        raise Unsupported("folds besides attention")
    if {*chain(values, top)[0]} != {*p.depths} or chain(values, top)[1] != scored:
        raise Unsupported("another maximum")
    return Attention(p, scores, scored, total, divides)


def _outermost(values: Values, fold: int) -> int:
    """The fold that a chain of folds ends in."""
    users = values.users.get(fold, ())
    above = [u for u in users if values.rows[u].op == "fold" and values.rows[u].name == values.rows[fold].name]
    return _outermost(values, above[0]) if len(users) == 1 and above else fold


def _links(values: Values, fold: int) -> Iterator[int]:
    """The folds of a chain."""
    axes, n = chain(values, fold)[0], fold
    for _ in axes:
        yield n
        n = values.rows[n].args[0]


def _total(p: Product, weights: int) -> int | None:
    """The row that is the sum of exponentials."""
    rows = p.values.rows
    for n, r in enumerate(rows):
        if r.op == "fold" and r.name == "sum":
            axes, source = chain(p.values, n)
            if source == weights and {*axes} == {*p.depths}:
                return n
    return None


def _weights(p: Product) -> tuple[int, int | None, bool]:
    """(the exponentials, their sum, whether they are divided by it first)."""
    r = p.values.rows[p.left]
    if r.op == "apply" and r.name == "div":
        total = _total(p, r.args[0])
        if total is not None and total == r.args[1]:
            return r.args[0], total, True
        raise Unsupported("weights that are divided by another number")
    return p.left, None, False


def _exponential(values: Values, weights: int) -> tuple[int, int]:
    """(what the softmax takes, its maximum)."""
    r = values.rows[weights]
    if r.op == "apply" and r.name == "exp":
        s = values.rows[r.args[0]]
        if s.op == "apply" and s.name == "sub" and values.rows[s.args[1]].op == "fold":
            return s.args[0], s.args[1]
    raise Unsupported("weights that are no exponentials against a maximum")


def _scores(p: Product, fold: int) -> Product:
    """The product of queries with keys, queries on its left."""
    q = at(p.values, fold, vectors=True)
    rows = p.values.rows
    keys, queries = {*p.depths}, {*p.rows}
    if keys & rows[q.left].axes:
        q = replace(q, left=q.right, right=q.left)
    left, right, value = (rows[n].axes for n in (q.left, q.right, p.right))
    if keys & left or queries & right or queries & value or not keys <= rows[fold].axes:
        raise Unsupported("products that do not share their axes as those of attention do")
    if {*p.columns} & (left | right):
        raise Unsupported("scores for each column")
    return replace(q, rows=p.rows, columns=p.depths)
