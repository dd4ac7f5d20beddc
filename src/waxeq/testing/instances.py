"""Typed instances of a pattern, drawn at random; simple guards are met by construction, the rest by trying again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from waxeq.basis.heads import FACTORED, HEADS
from waxeq.basis.scalar import DETERMINANTS, REDUCERS, SCALARS, SCANS, SCATTERS, TRIANGLES
from waxeq.basis.typing import node_axes
from waxeq.egraph.primitives import Undecided
from waxeq.egraph.rules import Apply, Expr, Lit, Var
from waxeq.ir.term import Term
from waxeq.ir.types import FLOATS
from waxeq.testing.dtypes import Dtypes, IllTyped
from waxeq.testing.extents import Extents, NoFit
from waxeq.testing.guards import Instance
from waxeq.testing.pattern import Pattern, variables
from waxeq.testing.wellformed import fault

_OTHERS = ("b0", "b1", "b2")
"""Axes that the pattern does not speak of: batches, groups, broadcasts."""
_RANK = 5
_NUMBERS = (0.0, 1.0, -1.0, 2.0, 0.5, -2.0, 3.0, 0.25, 4.0, 5.0, 8.0, 1.5, -2.5)
_WHOLE = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0)
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "Map": tuple(n for n, s in SCALARS.items() if s.arity == 1),
    "Zip": tuple(n for n, s in SCALARS.items() if s.arity == 2),
    "Red": tuple(REDUCERS),
    "Scan": tuple(SCANS),
    "Scatter": SCATTERS,
    "Det": DETERMINANTS,
    "Triangular": TRIANGLES,
}


@dataclass(frozen=True)
class Wish:
    """What an instance should have: two axis variables that stand for one axis; a size for an axis variable; nothing
    else out of the ordinary (`plain`: no aliased axes, no sizes 0 and 1)."""

    alias: tuple[str, str] | None = None
    size: tuple[str, int] | None = None
    plain: bool = False


def corners(p: Pattern) -> Iterator[Wish]:
    """What chance may miss: every two axis variables as one axis, every axis with no and with one element."""
    axes = [v for v, s in p.sorts.items() if s == "Axis"]
    yield from (Wish(alias=pair, plain=True) for pair in combinations(axes, 2))
    yield from (Wish(size=(k, n), plain=True) for k in axes for n in (0, 1))


def draw(p: Pattern, rng: np.random.Generator, wish: Wish | None = None) -> Instance | None:
    """An instance whose terms have a value and whose guards hold as far as can be told here; None where this attempt
    found none. Raises IllTyped where no dtypes fit for fixed functions.
    """
    attempt = _Attempt(p, rng, wish or Wish())
    try:
        return attempt.run()
    except (NoFit, Undecided):
        return None
    except IllTyped:
        if p.functions:
            return None
        raise


class _Attempt:
    def __init__(self, p: Pattern, rng: np.random.Generator, wish: Wish) -> None:
        self.p, self.rng, self.wish, self.plain = p, rng, wish, wish.plain
        self.made = Instance(p)
        self.values = self.made.values
        self.axes: dict[str, frozenset[str]] = {}
        self.weights: set[str] = set()
        self.constants: set[str] = set()

    def run(self) -> Instance | None:
        self._functions()
        dtypes = Dtypes(self.p, {v: self.values[v] for v in self.p.functions})
        chosen = dtypes.draw(self.rng)
        for v, s in self.p.sorts.items():
            if s == "Dtype":
                self.values[v] = dtypes.of(Var(v), chosen)
        self._name_axes()
        self._spread()
        axes = {v: self.values[v] for v, s in self.p.sorts.items() if s == "Axis"}
        used = frozenset().union(*self.axes.values()) | self._literal_axes()
        extents = Extents(self.p, axes, self.rng, self.plain)
        if self.wish.size is not None:
            extents.wish(self.values[self.wish.size[0]], self.wish.size[1])
        for made, like in self._made().items():
            if made in used and like is not None:
                extents.tie(made, like)
        sizes, ints = extents.solve(used)
        self.made.sizes |= sizes
        self.values |= ints
        self._numbers(dtypes, chosen)
        for v in self.p.leaves:
            self.values[v] = self._leaf(v, dtypes.of(Var(v), chosen))
        return self._checked()

    def _checked(self) -> Instance | None:
        if any(self.made.holds(g) is False for g in self.p.guards):
            return None
        if any(fault(r, self.made.sizes) for r in self.made.roots):
            return None
        return self.made

    def _chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def _one(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    # -- functions

    def _functions(self) -> None:
        for name, args in self._row_uses():
            known = self.values
            fits = [
                r for r in self.p.rows[name]
                if all(known.get(a.name, x) == x if isinstance(a, Var) else a.value == x
                       for a, x in zip(args, r, strict=False) if isinstance(a, Var | Lit))
            ]  # fmt: skip
            if not fits:
                raise NoFit
            row = self._one(fits)
            for a, x in zip(args, row, strict=False):
                if isinstance(a, Var) and a.name in self.p.functions:
                    self.values[a.name] = x
        for v, heads in self.p.functions.items():
            if v not in self.values:
                shared = set.intersection(*(set(_CHOICES[h]) for h in heads))
                self.values[v] = self._one(sorted(shared))

    def _row_uses(self) -> Iterator[tuple[str, tuple[Expr, ...]]]:
        """Uses of relations and functions whose rows are known."""
        for e in (*(e for g in self.p.guards for e in g), *self.p.named.values()):
            if isinstance(e, Apply) and e.name in self.p.rows:
                yield e.name, tuple(self.p.settled(a) for a in e.args)

    # -- axes

    def _literal_axes(self) -> frozenset[str]:
        return frozenset(
            str(x.value)
            for a in self.p.applications
            for x, s in zip(a.args, HEADS[a.name].sorts, strict=True)
            if isinstance(x, Lit) and s in ("Axis", "NewAxis")
        )

    def _name_axes(self) -> None:
        """Mostly a name of its own for each variable; at times two share one, or one is an outside axis."""
        taken: list[str] = []
        for v, s in self.p.sorts.items():
            if s != "Axis":
                continue
            if self.wish.alias is not None and v == self.wish.alias[1]:
                self.values[v] = self.values[self.wish.alias[0]]
            elif not self.plain and self._chance(0.12):
                self.values[v] = self._one([*taken, *_OTHERS])
            else:
                self.values[v] = v
            taken.append(self.values[v])

    def _made(self) -> dict[str, str | None]:
        """The axes that the right side makes, which the operands may have already; with the axis that one is made
        after, if it is a single one."""
        found: dict[str, str | None] = {}
        for e in self.p.made:
            try:
                name = str(self.made.value(e))
            except (Undecided, KeyError, TypeError):
                continue
            used = [self.axis(x) for x in variables(self.p.settled(e))]
            found[name] = used[0] if len(used) == 1 else None
        return found

    def _spread(self) -> None:
        """Axes for the leaves."""
        own = sorted({v for k, v in self.values.items() if self.p.sorts.get(k) == "Axis"})
        others = _OTHERS[: int(self.rng.integers(0, len(_OTHERS) + 1))]
        made = () if self.plain else (k for k in self._made() if self._chance(0.3))
        pool = [*dict.fromkeys((*own, *others, *made))]
        density = self._one((0.15, 0.4, 0.7))
        for v in self.p.leaves:
            wide = [k for k in pool if self._chance(density)]
            self.axes[v] = frozenset(wide[:_RANK])
        for v, s in self.p.sorts.items():
            if s == "Axes":
                self.values[v] = frozenset(k for k in pool if self._chance(density))
        for a in self.p.applications:
            self._well_formed(a)
        for g in self.p.guards:
            self._guard(g)
        for g in self.p.guards:
            self._equal_axes(g)

    def _well_formed(self, a: Apply) -> None:
        named, xs = self.p.named_args(a), self.p.tensors(a)
        names = {n: self.axis(named[n]) for n, s in HEADS[a.name].args if s in ("Axis", "NewAxis")}
        removed = [names[n] for n, s in HEADS[a.name].args if s == "Axis" and not (a.name == "Ren" and n == "b")]
        for k in (names[n] for n in names if names[n] not in removed):
            for x in xs:
                self._need(x, k, False)
        if a.name in FACTORED:
            self._matrix(a, names["i"], names["j"])
            return
        for k in removed:
            if xs and self._chance(0.8):
                self._need(xs[-1], k, True)

    def _matrix(self, a: Apply, i: str, j: str) -> None:
        """What is factored has both axes: it is singular where it is constant along one."""
        m, *others = self.p.tensors(a)
        for k in (i, j):
            self._need(m, k, True)
        for x in others:
            self._need(x, i, self._chance(0.8))
            self._need(x, j, False)

    def axis(self, e: Expr) -> str:
        e = self.p.settled(e)
        return str(e.value) if isinstance(e, Lit) else str(self.values.get(e.name, "")) if isinstance(e, Var) else ""

    def _need(self, e: Expr, k: str, present: bool) -> None:
        """Give or take an axis of the leaves below an expression."""
        e = self.p.settled(e)
        if isinstance(e, Var) and e.name in self.axes:
            self.axes[e.name] = self.axes[e.name] | {k} if present else self.axes[e.name] - {k}
        elif isinstance(e, Apply) and e.name in HEADS:
            bound = {self.axis(x) for (_, s), x in zip(HEADS[e.name].args, e.args, strict=True) if "Axis" in s}
            xs = self.p.tensors(e)
            if k not in bound and xs:
                for x in [self._one(xs)] if present else xs:
                    self._need(x, k, present)

    def _guard(self, fact: tuple[Expr, ...]) -> None:
        for e in map(self.p.settled, fact):
            if not isinstance(e, Apply):
                continue
            if e.name in ("set-contains", "set-not-contains"):
                s = self.p.settled(e.args[0])
                if isinstance(s, Apply) and s.name == "ax":
                    self._need(s.args[0], self.axis(e.args[1]), e.name == "set-contains")
            elif e.name == "isw":
                self._mark(e.args[0], self.weights)
            elif e.name == "cval":
                self._mark(e.args[0], self.constants)

    def _mark(self, e: Expr, into: set[str]) -> None:
        e = self.p.settled(e)
        if isinstance(e, Var):
            into.add(e.name)
            if into is self.constants:
                self.axes[e.name] = frozenset()
        elif isinstance(e, Apply) and e.name in HEADS:
            for x in self.p.tensors(e):
                self._mark(x, into)

    def _equal_axes(self, fact: tuple[Expr, ...]) -> None:
        """`(= (ax b) S)` gives a leaf b the axes S, `(= (set-remove (ax b) k) S)` those but for k."""
        if len(fact) != 2:
            return
        sides = [self.p.settled(e) for e in fact]
        for one, other in (sides, sides[::-1]):
            free = {self.axis(one.args[1])} if isinstance(one, Apply) and one.name == "set-remove" else set()
            inner = self.p.settled(one.args[0]) if free and isinstance(one, Apply) else one
            if isinstance(inner, Apply) and inner.name == "ax":
                x = self.p.settled(inner.args[0])
                if isinstance(x, Var) and x.name in self.axes:
                    self.axes[x.name] = (self._set(other) - free) | (self.axes[x.name] & free)
                    return

    def _set(self, e: Expr) -> frozenset[str]:
        """The set of axes that an expression stands for, before there are terms."""
        e = self.p.settled(e)
        if isinstance(e, Apply) and e.name == "ax":
            return self._axes_of(e.args[0])
        if isinstance(e, Apply) and e.name.startswith("set-"):
            args = [self._set(a) if self._is_set(a) else self.axis(a) for a in e.args]
            found = self.made.value(Apply(e.name, tuple(Lit(a) for a in args)))  # pyright: ignore[reportArgumentType]
            return frozenset(found)
        if isinstance(e, Var) and isinstance(self.values.get(e.name), frozenset):
            return self.values[e.name]
        raise NoFit

    def _is_set(self, e: Expr) -> bool:
        e = self.p.settled(e)
        return isinstance(e, Apply) or (isinstance(e, Var) and self.p.sorts.get(e.name) == "Axes")

    def _axes_of(self, e: Expr) -> frozenset[str]:
        e = self.p.settled(e)
        if isinstance(e, Var):
            return self.axes[e.name]
        assert isinstance(e, Apply)
        sorts = HEADS[e.name].sorts
        args = tuple(a if s == "T" else self._plain(a, s) for a, s in zip(e.args, sorts, strict=True))
        return node_axes(e.name, args, self._axes_of)

    def _plain(self, e: Expr, sort: str) -> Any:
        return self._set(e) if sort == "Axes" else self.axis(e) if "Axis" in sort else None

    # -- numbers and leaves

    def _numbers(self, dtypes: Dtypes, chosen: Mapping[Hashable, str]) -> None:
        for a in self.p.applications:
            for x, s in zip(a.args, HEADS[a.name].sorts, strict=True):
                if s == "Float" and isinstance(x, Var) and x.name not in self.values:
                    self.values[x.name] = self._number(dtypes.of(a, chosen))
                elif s == "Int" and isinstance(x, Var) and x.name not in self.values:
                    self.values[x.name] = int(self.rng.integers(0, 3))
        for v, s in self.p.sorts.items():
            if s == "Name":
                self.values[v] = f"leaf_{v}"
        for g in self.p.guards:
            self._computed(g)

    def _computed(self, g: tuple[Expr, ...]) -> None:
        """`(= v E)` gives a number the value of E."""
        if len(g) != 2:
            return
        for one, other in (g, g[::-1]):
            if isinstance(one, Var) and self.p.sorts.get(one.name) == "Float":
                try:
                    self.values[one.name] = float(self.made.value(other))
                    return
                except (Undecided, KeyError, TypeError, ArithmeticError):
                    continue

    def _number(self, dtype: str) -> float:
        return self._one(_NUMBERS if dtype in FLOATS else _WHOLE[: 2 if dtype == "bool" else None])

    def _leaf(self, v: str, dtype: str) -> Term:
        """Mostly an activation; a weight, a number or a small term for the rest."""
        axes, weight = self.axes[v], v in self.weights
        if v in self.constants or (not axes and self._chance(0.12)):
            return self.made.term("Num", [self._number(dtype), dtype])
        twins = [t for w, t in self.values.items() if w in self.axes and self.made.types[t].axes == axes]
        twins = [t for t in twins if self.made.types[t].dtype == dtype]
        if twins and not weight and self._chance(0.06):
            return self._one(twins)
        head = "Par" if weight or self._chance(0.2) else "In"
        leaf = self.made.term(head, [v, axes, dtype])
        if dtype in FLOATS and self._chance(0.1):
            return self.made.term("Map", [self._one(("neg", "abs", "square")), leaf])
        if len(axes) > 1 and dtype != "bool" and self._chance(0.06):
            k = min(axes)
            return self.made.term("Mul", [leaf, self.made.term(head, [f"{v}_", axes - {k}, dtype])])
        return leaf
