"""Means as quotients: a sum of so many numbers, times one by as many, is divided by that.

As a product a mean of equal numbers is not one of them: 41 times 1/41, rounded, is less than 1, and a compiler that
joins the product with a difference does not round it at all. What is left of a column of one number less its mean is
then not 0, and divided by what it deviates on average it is 1 or -1, where the model as written has neither.
"""

from __future__ import annotations

import math

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.known import Rows
from waxeq_cfamily.values import Row, Values, chain, renumbered

_DTYPES = ("float32", "float64")


def means(values: Values) -> Values:
    """The same values, with means divided. Of a power of two the product is exact."""
    found = {n: mean for n in range(len(values.rows)) if (mean := _mean(values, n)) is not None}
    if not found:
        return values
    made, new = Rows(), dict[int, int]()
    for n, r in enumerate(values.rows):
        if n in found:
            fold, many = found[n]
            count = made.add(Row("number", repr(float(many)), (), r.dtype, frozenset()))
            new[n] = made.add(Row("apply", "div", (new[fold], count), r.dtype, r.axes))
        else:
            new[n] = made.add(renumbered(r, new))
    return made.values([(new[n], where) for n, where in values.results], values.sizes)


def _mean(values: Values, n: int) -> tuple[int, int] | None:
    """The sum that a row is the mean of, and of how many numbers; None where it is something else."""
    r, rows = values.rows[n], values.rows
    if r.op != "apply" or r.name != "Mul" or r.dtype not in _DTYPES:
        return None
    for fold, scale in (r.args, r.args[::-1]):
        if rows[fold].op != "fold" or rows[fold].name != "sum" or rows[scale].op != "number":
            continue
        many = math.prod(values.sizes[k] for k in chain(values, fold)[0])
        one = numpy_dtype(r.dtype).type(1)
        if many & (many - 1) and one / one.dtype.type(many) == one.dtype.type(float(rows[scale].name)):
            return fold, many
    return None
