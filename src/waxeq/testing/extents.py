"""Sizes for the axes of a pattern, and its integers: what the heads ask for, solved in the order of their operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from waxeq.basis.heads import FACTORED
from waxeq.egraph.primitives import Undecided
from waxeq.egraph.rules import Apply, Expr, Lit, Var
from waxeq.testing.guards import Instance
from waxeq.testing.pattern import Pattern

SIZES = (0, 1, 2, 3, 4, 5)
_ODDS = (0.06, 0.14, 0.34, 0.28, 0.12, 0.06)
MOST = 6000
"""Elements that a tensor with every axis of an instance would have, at most."""


class NoFit(Exception):
    """These choices lead nowhere; draw again."""


class Extents:
    """One attempt: sizes by axis name and values by integer variable."""

    def __init__(self, p: Pattern, axes: Mapping[str, str], rng: np.random.Generator, plain: bool = False) -> None:
        """`axes`: the name each axis variable stands for. `plain`: no sizes 0 and 1 where there is a choice."""
        self.p, self.axes, self.rng, self.plain = p, axes, rng, plain
        self.parent: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.ints: dict[str, int] = {}
        self.wished: tuple[str, int] | None = None

    def tie(self, one: str, other: str) -> None:
        """Two axes of one size."""
        self.parent[self._root(one)] = self._root(other)

    def wish(self, axis: str, n: int) -> None:
        """An axis should have n elements."""
        self.wished = (axis, n)

    def solve(self, others: Iterable[str]) -> tuple[dict[str, int], dict[str, int]]:
        """Sizes of the pattern's axes and of `others`; values of its integer variables. Raises NoFit."""
        made: set[str] = set()
        for a in self.p.applications:
            made |= {self._root(self._axis(a, n)) for n in _MADE.get(a.name, ())}
            for one, other in _EQUAL.get(a.name, ()):
                self.tie(self._axis(a, one), self._axis(a, other))
        for g in self.p.guards:
            self._guard(g)
        made = {self._root(k) for k in made}
        if (
            self.wished is not None
            and self.sizes.setdefault(self._root(self.wished[0]), self.wished[1]) != self.wished[1]
        ):
            raise NoFit
        for k in sorted({*self.axes.values(), *others}):
            if self._root(k) not in made:
                self._draw(self._root(k))
        for a in self.p.applications:
            if a.name in _FIT:
                _FIT[a.name](self, a)
        every = {*self.axes.values(), *others, *self.parent}
        sizes = {k: self._draw(self._root(k)) for k in sorted(every)}
        if np.prod([max(1, s) for s in sizes.values()], dtype=float) > MOST:
            raise NoFit
        return sizes, self.ints

    # -- axes

    def _axis(self, a: Apply, argument: str) -> str:
        return self.name(self.p.named_args(a)[argument])

    def name(self, e: Expr) -> str:
        e = self.p.settled(e)
        return self.axes[e.name] if isinstance(e, Var) else str(e.value) if isinstance(e, Lit) else ""

    def _root(self, k: str) -> str:
        self.parent.setdefault(k, k)
        while self.parent[k] != k:
            k = self.parent[k]
        return k

    def _draw(self, k: str) -> int:
        if k not in self.sizes:
            self.sizes[k] = int(self.rng.integers(2, 5)) if self.plain else int(self.rng.choice(SIZES, p=_ODDS))
        return self.sizes[k]

    def size(self, a: Apply, argument: str) -> int:
        return self._draw(self._root(self._axis(a, argument)))

    def known(self, a: Apply, argument: str) -> bool:
        return self._root(self._axis(a, argument)) in self.sizes

    def fix(self, a: Apply, argument: str, n: int) -> None:
        k = self._root(self._axis(a, argument))
        if self.sizes.setdefault(k, n) != n:
            raise NoFit

    def _guard(self, fact: tuple[Expr, ...]) -> None:
        """`(= (size a) (size b))`, `(= (size a) 1)`, `(= start 0)`."""
        if len(fact) != 2:
            return
        settled = [self.p.settled(e) for e in fact]
        axes = [self.name(e.args[0]) for e in settled if isinstance(e, Apply) and e.name == "size"]
        literal = [e.value for e in settled if isinstance(e, Lit) and isinstance(e.value, int)]
        ints = [e.name for e in settled if isinstance(e, Var) and self.p.sorts.get(e.name) == "Int"]
        if len(axes) == 2:
            self.tie(axes[0], axes[1])
        elif axes and literal:
            self.sizes[self._root(axes[0])] = literal[0]
        elif ints and literal:
            self.ints[ints[0]] = literal[0]

    # -- integers

    def integer(self, a: Apply, argument: str, options: Iterable[int]) -> int:
        """The value of an integer argument: the literal, the value it has, or one of `options`."""
        e = self.p.named_args(a)[argument]
        if isinstance(e, Lit):
            return int(e.value)
        assert isinstance(e, Var)
        if e.name not in self.ints and (found := self._computed(e.name)) is not None:
            self.ints[e.name] = found
        if e.name not in self.ints:
            choice = list(options)
            if not choice:
                raise NoFit
            self.ints[e.name] = int(self.rng.choice(choice))
        return self.ints[e.name]

    def _computed(self, name: str) -> int | None:
        """The value that a guard `(= name E)` asks for, if E is known by now."""
        sizes = {k: self.sizes[r] for k in self.parent if (r := self._root(k)) in self.sizes}
        so_far = Instance(self.p, sizes, {**self.axes, **self.ints})
        for g in self.p.guards:
            if len(g) == 2 and Var(name) in g:
                try:
                    return int(so_far.value(g[1] if g[0] == Var(name) else g[0]))
                except (Undecided, KeyError, TypeError, ValueError, ArithmeticError):
                    continue
        return None


def _product(e: Extents, a: Apply) -> None:
    e.fix(a, "k", e.size(a, "p") * e.size(a, "q"))


def _sum(e: Extents, a: Apply) -> None:
    e.fix(a, "n", e.size(a, "p") + e.size(a, "q"))


def _slice(e: Extents, a: Apply) -> None:
    k = e.size(a, "k")
    step = e.integer(a, "step", (1, 1, 1, 2, -1, 3))
    n = e.size(a, "n") if e.known(a, "n") else int(e.rng.integers(0, k + 1))
    span = abs(step) * max(0, n - 1)
    if n and not e.known(a, "n") and span >= k:
        n = 1 + (k - 1) // max(1, abs(step))
        span = abs(step) * (n - 1)
    low, high = (span, k) if step < 0 else (0, k - span)
    e.integer(a, "start", range(low, high) if n else range(k + 1))
    e.fix(a, "n", n)


def _pad(e: Extents, a: Apply) -> None:
    low = e.integer(a, "low", (0, 0, 1, 2))
    e.fix(a, "n", e.size(a, "n") if e.known(a, "n") else low + e.size(a, "k") + int(e.rng.integers(0, 3)))


def _unfold(e: Extents, a: Apply) -> None:
    stride, dilation = e.integer(a, "stride", (1, 1, 2)), e.integer(a, "dilation", (1, 1, 2))
    o, w = e.size(a, "o"), e.size(a, "w")
    need = stride * (o - 1) + dilation * (w - 1) + 1 if o and w else 0
    if not e.known(a, "k"):
        e.fix(a, "k", max(0, need) + int(e.rng.integers(0, 2)))


_MADE: Mapping[str, tuple[str, ...]] = {
    "Merge": ("k",), "Split": ("k",), "Cat": ("n",), "Slice": ("n",), "Pad": ("n",), "Unfold": ("k",),
}  # fmt: skip
"""The axes whose size follows from the others."""
_EQUAL: Mapping[str, tuple[tuple[str, str], ...]] = {
    "Ren": (("a", "b"),), "Diag": (("i", "j"), ("k", "i")), **dict.fromkeys(FACTORED, (("i", "j"),)),
}  # fmt: skip
_FIT: Mapping[str, Callable[[Extents, Apply], None]] = {
    "Merge": _product, "Split": _product, "Cat": _sum, "Slice": _slice, "Pad": _pad, "Unfold": _unfold,
}  # fmt: skip
