"""Random meanings in which loops read each other at places around their own: stencils swept several times, filters of
what is filtered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from waxeq.backend.call import operand
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.ir.types import is_float
from waxeq.testing.rows import Found

_SIZES = (1, 2, 3, 5, 8, 17, 33, 70, 200)
_LONG = 900
"""Elements of a row that is cut in pieces."""
_DTYPES = ("float32", "float32", "float64", "float16", "bfloat16", "int32", "uint8")
_WIDE, _LINES = ("float32", "float64", "int32"), (160, 256, 304)
"""Dtypes whose elements are no shorter than lanes, and elements of rows that are whole lines."""
_LOOPS, _ARMS = (2, 4), (2, 4)
"""Loops of a meaning, and places that each reads: from the first, less than the second."""


def swept(rng: np.random.Generator) -> Found:
    """A meaning, its sizes, (axes, dtype) of its operands; no axes that only its result has."""
    made = _Stencils(rng, str(rng.choice(_DTYPES)), steps=bool(rng.random() < 0.5))
    names = ["i", "j", "k"][: int(rng.integers(1, 4))]
    most = 40 if len(names) == 3 else max(_SIZES)
    axes = [made.axis(k, int(rng.choice([n for n in _SIZES if n <= most]))) for k in names]
    if rng.random() < 0.2:
        axes[-1] = made.axis(names[-1], _LONG)
    x, moved = made.leaf(axes), [k for k in range(len(axes)) if len(axes) == 1 or rng.random() < 0.8] or [0]
    for _ in range(int(rng.integers(*_LOOPS))):
        x, axes = made.loop(x, axes, moved)
    used = {k for t in types(x).values() for k in t.axes}
    return x, {k: n for k, n in made.sizes.items() if k in used}, made.kinds, frozenset()


def lined(rng: np.random.Generator) -> Found:
    """The same over long rows of whole lines, as long after each loop as before."""
    made = _Stencils(rng, str(rng.choice(_WIDE)), keeps=True)
    axes = [made.axis("i", int(rng.choice(_SIZES[2:]))), made.axis("j", int(rng.choice(_LINES)))]
    x = made.leaf(axes)
    for _ in range(int(rng.integers(*_LOOPS))):
        x, axes = made.loop(x, axes, [0, 1])
    used = {k for t in types(x).values() for k in t.axes}
    return x, {k: n for k, n in made.sizes.items() if k in used}, made.kinds, frozenset()


@dataclass
class _Stencils:
    rng: np.random.Generator
    dtype: str
    steps: bool = True
    """Whether values may jump from one place to the next: after a function that is approximated they may not."""
    keeps: bool = False
    """Whether loops are all as long as what they read, with a border."""
    sizes: dict[str, int] = field(default_factory=dict)
    before: dict[tuple[str, ...], list[Term]] = field(default_factory=dict)
    """What was made so far, by its axes: loops read that, too."""
    kinds: list[tuple[frozenset[str], str]] = field(default_factory=list)

    def axis(self, like: str, size: int) -> str:
        """A new axis."""
        name = f"{like[0]}{len(self.sizes)}"
        self.sizes[name] = size
        return name

    def leaf(self, axes: list[str]) -> Term:
        self.kinds.append((frozenset(axes), self.dtype))
        return operand(len(self.kinds) - 1, axes, self.dtype)

    def loop(self, x: Term, axes: list[str], moved: list[int]) -> tuple[Term, list[str]]:
        """One loop over places around those of x, along some of its axes; and the axes that it has."""
        way: Callable[[Term, str, str, int], Term] = (
            self._seen if self.keeps or self.rng.random() < 0.7 else self._shifted
        )
        own = list(axes)
        for i in moved:
            n = self.sizes[axes[i]] + (2 if way == self._shifted else -2)
            own[i] = self.axis(axes[i], max(1, n)) if n > 0 else axes[i]
        before = self.before.setdefault(tuple(axes), [])
        before.append(x)
        arms = [self._arm(x, axes, own, way) for _ in range(int(self.rng.integers(*_ARMS)))]
        if self.rng.random() < 0.4:
            arms.append(self._arm(before[int(self.rng.integers(len(before)))], axes, own, way))
        if self.rng.random() < 0.5:
            arms.append(self.leaf(own if self.rng.random() < 0.7 else own[1:]))
        value = arms[0]
        for arm in arms[1:]:
            value = self._with(value, arm)
        if is_float(self.dtype) and not self.steps and self.rng.random() < 0.5:
            value = Term("Map", str(self.rng.choice(("tanh", "abs", "sin", "erf"))), value)
        padded = self.keeps or (self.rng.random() < 0.6 and way == self._seen)
        return self._padded(value, own, axes) if padded else (value, own)

    def _arm(self, x: Term, axes: list[str], own: list[str], way: Callable[[Term, str, str, int], Term]) -> Term:
        for old, new in zip(axes, own, strict=True):
            x = x if old == new else way(x, old, new, int(self.rng.integers(0, 3)))
        return x

    def _seen(self, x: Term, old: str, new: str, at: int) -> Term:
        """Those from a place on."""
        return Term("Slice", old, new, at, 1, x)

    def _shifted(self, x: Term, old: str, new: str, at: int) -> Term:
        """All of them, with something before and after."""
        return Term("Pad", old, new, at, float(self.rng.integers(0, 2)), x)

    def _padded(self, x: Term, own: list[str], axes: list[str]) -> tuple[Term, list[str]]:
        """As large as before: with a border."""
        for new, old in zip(own, axes, strict=True):
            x = x if old == new else Term("Pad", new, old, 1, float(self.rng.integers(0, 2)), x)
        return x, axes

    def _with(self, x: Term, y: Term) -> Term:
        draw = self.rng.random()
        if draw < 0.4:
            return Term("Add", x, y)
        if draw < 0.6:
            return Term("Mul", x, y)
        if draw < 0.9 or not self.steps:
            return Term("Zip", str(self.rng.choice(("max", "min", "sub"))), x, y)
        return Term("Select", Term("Zip", "lt", x, y), y, x)
