"""Do the two sides of an equation agree? In type always; in value as the class of the rule claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from waxeq.basis.evaluate import Field, NamedArray, Native, NotPolynomial
from waxeq.basis.typing import types
from waxeq.egraph.rules import Rule
from waxeq.egraph.verify import Reals, same_bits
from waxeq.ir.term import Term
from waxeq.testing.firing import Equation
from waxeq.testing.values import draw_leaves, evaluate, polynomial
from waxeq.testing.wellformed import fault

Kind = Literal["meaning", "axes", "dtype", "size", "value", "special", "overflow", "undefined", "error"]
"""Why two sides differ: the right side means nothing; other axes; another dtype; other sizes; other values; NaN,
infinities or signs of zero lost; not finite for large inputs where the left is; no value where the left has one; an
error above the bound.
"""

TOLERANCE = 1e-9
_NOISE = 1e-13
"""Rounding of float64 that is no difference, as a fraction of the largest number met on the way."""


@dataclass(frozen=True)
class Failure:
    """A counterexample: inputs and both results by axis name, where there are any."""

    kind: Kind
    message: str
    equation: Equation
    inputs: Mapping[str, NamedArray] = field(default_factory=dict)
    left: NamedArray | None = None
    right: NamedArray | None = None


@dataclass(frozen=True)
class Outcome:
    """What comparing found: a failure or none, and how many elements could be compared."""

    failure: Failure | None
    compared: int


def compare(equation: Equation, rule: Rule, rng: np.random.Generator) -> Outcome:
    """Hold the sides of an equation against each other as the class of `rule` claims them to be equal."""
    wrong = type_failure(equation)
    if wrong is not None:
        return Outcome(wrong, 0)
    compared = 0
    for test in _TESTS[rule.cls]:
        found = test.run(equation, rule, rng)
        compared += found.compared
        if found.failure is not None:
            return found
    return Outcome(None, compared)


def type_failure(e: Equation) -> Failure | None:
    """What is wrong with the types of an equation."""
    wrong = fault(e.right, e.sizes)
    if wrong is not None:
        return Failure("meaning", f"the right side has no meaning: {wrong}", e)
    left, right = types(e.left)[e.left], types(e.right)[e.right]
    if left.axes != right.axes:
        return Failure("axes", f"the left side has axes {_set(left.axes)}, the right side {_set(right.axes)}", e)
    if left.dtype != right.dtype:
        return Failure("dtype", f"the left side is {left.dtype}, the right side {right.dtype}", e)
    return None


def _set(axes: frozenset[str]) -> str:
    return "{" + " ".join(sorted(axes)) + "}"


@dataclass(frozen=True)
class _Test:
    """One way to hold sides against each other: a domain and a kind of input."""

    domain: type[Native]
    draw: str

    def run(self, e: Equation, rule: Rule, rng: np.random.Generator) -> Outcome:
        domain = self.domain()
        if isinstance(domain, Field) and not (polynomial(e.left) and polynomial(e.right)):
            return Outcome(None, 0)
        if self.draw == "large" and not _in_float32(e):
            return Outcome(None, 0)
        with np.errstate(all="ignore"):
            leaves = draw_leaves((e.left, e.right), e.sizes, self.draw, domain, rng)
            try:
                left = evaluate(e.left, leaves, e.sizes, domain)
            except (ValueError, IndexError, TypeError, NotPolynomial):
                return Outcome(None, 0)  # no value to be equal to, such as the maximum of nothing
            try:
                right = evaluate(e.right, leaves, e.sizes, domain)
            except (TypeError, NotPolynomial):
                return Outcome(None, 0)
            except (ValueError, IndexError) as x:
                message = f"the right side has no value where the left has one: {x}"
                return Outcome(Failure("undefined", message, e, leaves, left[e.left]), 0)
            return self._judge(e, rule, leaves, left, right)

    def _judge(
        self,
        e: Equation,
        rule: Rule,
        leaves: Mapping[str, NamedArray],
        left: Mapping[Term, NamedArray],
        right: Mapping[Term, NamedArray],
    ) -> Outcome:
        a, b = left[e.left], right[e.right]
        if a.data.shape != b.data.shape:
            return Outcome(Failure("size", f"sizes {a.data.shape} and {b.data.shape}", e, leaves, a, b), 0)
        kind, message, count = self._difference(a.data, b.data, rule, _largest((*left.values(), *right.values())))
        if kind is None:
            return Outcome(None, count)
        return Outcome(Failure(kind, message, e, leaves, a, b), count)

    def _difference(self, a: np.ndarray, b: np.ndarray, rule: Rule, largest: float) -> tuple[Kind | None, str, int]:
        """(why they differ or None, in words, how many elements were compared)."""
        if issubclass(self.domain, Field):
            return None if np.all(a == b) else "value", f"over a prime field {_count(a == b)}", a.size
        if rule.cls == "exact":
            return *_exact(a, b), a.size
        if a.dtype.kind in "biu":
            return None if np.all(a == b) else "value", _count(a == b), a.size
        finite = np.isfinite(a)
        lost = finite & ~np.isfinite(b)
        if lost.any():
            kind = "overflow" if self.draw == "large" else "undefined"
            return kind, f"{int(lost.sum())} of {a.size} elements are finite on the left side only", a.size
        if self.draw == "large":
            return None, "", int(finite.sum())
        a, b = a[finite], b[finite]
        if rule.cls == "approximate":
            usual, off = _rms(a), _rms(a - b)
            error = off / usual if usual > 0 else 0.0 if off <= _NOISE * largest else math.inf
            message = f"relative RMS error {error:.2g}, more than {rule.bound:g}"
            return "error" if error > rule.bound else None, message, a.size
        near = np.abs(a - b) <= TOLERANCE * np.maximum(np.abs(a), np.abs(b)) + _NOISE * largest
        return None if np.all(near) else "value", _count(near), a.size


def _exact(a: np.ndarray, b: np.ndarray) -> tuple[Kind | None, str]:
    same = np.broadcast_to(same_bits(a, b), a.shape)
    if same.all():
        return None, ""
    if a.dtype.kind in "biu" or a.dtype != b.dtype:
        return "value", _count(same)
    usual = np.isfinite(a) & np.isfinite(b) & (a != b)
    if (usual & ~same).any():
        return "value", _count(same)
    return "special", f"{_count(same)}, in NaN, infinities or the sign of zero"


def _count(same: np.ndarray) -> str:
    return f"{int(np.size(same) - np.sum(same))} of {np.size(same)} elements differ"


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(x * x))) if x.size else 0.0


def _largest(values: tuple[NamedArray, ...]) -> float:
    tops = [1.0]
    for v in values:
        if v.data.dtype.kind == "f" and v.data.size:
            x = np.abs(v.data[np.isfinite(v.data)])
            tops.append(float(x.max(initial=0.0)))
    return max(tops)


def _in_float32(e: Equation) -> bool:
    """Whether overflow can be judged fairly: no smaller floats, and float32 somewhere."""
    found = {t.dtype for root in (e.left, e.right) for t in types(root).values()}
    return "float32" in found and not found & {"float16", "bfloat16"}


_TESTS: Mapping[str, tuple[_Test, ...]] = {
    "exact": (_Test(Native, "normal"), _Test(Native, "special"), _Test(Native, "extreme")),
    "reassociating": (
        _Test(Reals, "normal"), _Test(Reals, "positive"), _Test(Reals, "sparse"), _Test(Reals, "unit"),
        _Test(Field, "normal"), _Test(Native, "large"),
    ),
    "approximate": (_Test(Reals, "normal"), _Test(Reals, "positive"), _Test(Native, "large")),
}  # fmt: skip
