"""Functions of dims through samples: what size is it that was 64 here, 128 there?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np

from waxeq.errors import PlanError
from waxeq.symbolic.size import Number, Size, sized, symbol, value

Sample = Mapping[str, int]
_DEGREE = 3
_CLOSE, _SINGLE, _WHOLE = 1e-14, 6.1e-8, 1e-9
"""Relative distances: of a formula and its float64 or float32 value; of what is a whole number, rounded."""


def fit(samples: Sequence[Sample], values: Sequence[int]) -> Size | int | None:
    """The polynomial of least degree, with integer coefficients, that takes these values at these sizes; None where
    there is none that more samples bear out than it has coefficients."""
    if len(set(values)) == 1:
        return values[0]
    names = list(samples[0])
    for degree in range(1, _DEGREE + 1):
        terms = [t for d in range(degree + 1) for t in combinations_with_replacement(names, d)]
        found = _solved([[math.prod(s[n] for n in t) for t in terms] for s in samples], values)
        if found is not None:
            parts = (c * math.prod((symbol(n) for n in t), start=1) for c, t in zip(found, terms, strict=True) if c)
            return sized(sum(parts))
    return None


def _solved(rows: Sequence[Sequence[int]], values: Sequence[int]) -> list[int] | None:
    """Integer coefficients that all rows agree on, of which at least one was not needed to find them. Terms that the
    rows do not tell from those before them have none."""
    table = [[Fraction(x) for x in (*r, v)] for r, v in zip(rows, values, strict=True)]
    width, found = len(rows[0]), dict[int, int]()
    for column in range(width):
        at = len(found)
        pivot = next((i for i in range(at, len(table)) if table[i][column]), None)
        if pivot is None:
            continue
        found[column] = at
        table[at], table[pivot] = table[pivot], table[at]
        table[at] = [x / table[at][column] for x in table[at]]
        for i, row in enumerate(table):
            if i != at and row[column]:
                table[i] = [x - row[column] * y for x, y in zip(row, table[at], strict=True)]
    numbers = [table[found[c]][width] if c in found else Fraction(0) for c in range(width)]
    agree = len(table) > len(found) and not any(row[width] for row in table[len(found) :])
    return [int(c) for c in numbers] if agree and all(c.denominator == 1 for c in numbers) else None


def fit_float(samples: Sequence[Sample], values: Sequence[float]) -> Number | float | None:
    """The same for floats: a polynomial, its reciprocal, its root or the reciprocal of that, times a constant; one that
    is each of them to the last bit, where there is one."""
    if len({v.hex() for v in values}) == 1 or all(v != v for v in values):
        return values[0]
    if not all(math.isfinite(v) and (v or math.copysign(1, v) > 0) for v in values):
        return None
    with np.errstate(over="ignore"):
        single = all(v == float(np.float32(v)) for v in values)  # a float32 is a formula that was rounded
    close = _SINGLE if single else _CLOSE
    near = None
    for text in _formulas(samples, values, 16 * close if single else _WHOLE):
        with suppress(PlanError, ArithmeticError):  # a formula that has no value at some size is another one
            rows = [(float(value(text, s)), v) for s, v in zip(samples, values, strict=True)]
            if all(a == v for a, v in rows):
                return Number(text)
            if near is None and all(math.isclose(a, v, rel_tol=close) for a, v in rows):
                near = Number(text)
    return near


def _formulas(samples: Sequence[Sample], values: Sequence[float], near: float) -> Iterator[str]:
    forms = (("{}", lambda v: v), ("1/({})", lambda v: 1 / v), ("sqrt({})", lambda v: v * v))
    for form, undo in (*forms, ("1/sqrt({})", lambda v: 1 / (v * v))):
        whole = _undone(undo, values)
        able = "sqrt" not in form or all(v > 0 for v in values)
        if whole and able and all(abs(w - round(w)) <= near * abs(w) for w in whole):
            found = fit(samples, [round(w) for w in whole])
            if isinstance(found, Size):
                yield form.format(found.expr)
    for n in samples[0]:
        for form in (n, f"1/{n}", f"sqrt({n})", f"1/sqrt({n})"):
            part = value(form, samples[0]) / values[0] if values[0] else math.inf
            if math.isfinite(part):
                yield from (f"({form})/{c!r}" for c in dict.fromkeys((float(round(part)), part)) if c)
            yield f"{values[0] / value(form, samples[0])!r}*({form})"


def _undone(undo: Callable[[float], float], values: Sequence[float]) -> list[float]:
    """The values before a function made them what they are; none where that is too large or too small for a float."""
    try:
        whole = [undo(v) for v in values]
    except ArithmeticError:
        return []
    return whole if all(map(math.isfinite, whole)) else []
