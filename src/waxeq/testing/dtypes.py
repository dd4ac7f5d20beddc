"""Dtypes for the variables of a pattern: what the operators ask for, solved by unification, then drawn at random."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

import numpy as np

from waxeq.basis.heads import FACTORED, MATRICES
from waxeq.basis.scalar import DETERMINANTS, REDUCERS, SCALARS, SCATTERS, TRIANGLES
from waxeq.egraph.rules import Apply, Expr, Lit, Var
from waxeq.ir.types import DTYPES, FLOATS, INTEGERS
from waxeq.testing.pattern import Pattern
from waxeq.testing.wellformed import GROUPS, REDUCED

ALL = frozenset(DTYPES)
_ODDS = {"float32": 6.0, "float64": 3.0, "float16": 1.5, "bfloat16": 1.0, "int32": 1.0, "int64": 1.0, "bool": 1.0}

_SAME = frozenset(
    {"Ren", "Split", "Merge", "Diag", "Slice", "Pad", "Unfold", "Sort", "Cat", "Sum", "Scan", "Add", "Mul"}
)
"""Heads all of whose operands have the dtype of the result."""


class IllTyped(Exception):
    """No dtypes fit the pattern; the message says where."""


class Dtypes:
    """A union-find over the expressions of a pattern; each class keeps the dtypes it may have."""

    def __init__(self, p: Pattern, functions: Mapping[str, str]) -> None:
        """`functions`: the function that each function variable stands for."""
        self.p, self.functions = p, functions
        self.parent: dict[Hashable, Hashable] = {}
        self.allowed: dict[Hashable, frozenset[str]] = {}
        for a in p.applications:
            self._application(a)
        for g in p.guards:
            slots = [s for e in g if (s := self._slot(e)) is not None]
            if len(g) > 1 and len(slots) == len(g):
                self._unify(*slots)

    def draw(self, rng: np.random.Generator) -> dict[Hashable, str]:
        """A dtype for every class; look it up with `of`."""
        chosen = {}
        for root in dict.fromkeys(self._find(k) for k in self.parent):
            options = sorted(self.allowed[root])
            odds = np.array([_ODDS.get(d, 0.3) for d in options])
            chosen[root] = str(rng.choice(options, p=odds / odds.sum()))
        return chosen

    def of(self, e: Expr, chosen: Mapping[Hashable, str]) -> str:
        """The dtype drawn for a tensor expression or a dtype variable."""
        slot = self._slot(e)
        return chosen[self._find(self.p.settled(e) if slot is None else slot)]

    def _find(self, k: Hashable) -> Hashable:
        if k not in self.parent:
            self.parent[k], self.allowed[k] = k, ALL
        while self.parent[k] != k:
            k = self.parent[k]
        return k

    def _unify(self, first: Hashable, *rest: Hashable) -> None:
        for other in rest:
            a, b = self._find(first), self._find(other)
            self.parent[b] = a
            self._restrict(a, self.allowed[b])

    def _restrict(self, k: Hashable, to: Iterable[str]) -> None:
        root = self._find(k)
        self.allowed[root] &= frozenset(to)
        if not self.allowed[root]:
            raise IllTyped("no dtype fits its operands")

    def _slot(self, e: Expr) -> Hashable | None:
        """What stands for a dtype: `(dt x)`, a literal, a dtype variable."""
        e = self.p.settled(e)
        if isinstance(e, Apply) and e.name == "dt":
            return self.p.settled(e.args[0])
        if isinstance(e, Lit) and e.value in ALL:
            self._restrict(e, (str(e.value),))
            return e
        if isinstance(e, Var) and self.p.sorts.get(e.name) == "Dtype":
            return e
        return None

    def _function(self, e: Expr) -> str:
        f = self.functions[e.name] if isinstance(e, Var) else str(e.value) if isinstance(e, Lit) else ""
        if f not in SCALARS and f not in REDUCERS and f not in ("sum", *SCATTERS, *DETERMINANTS, *TRIANGLES):
            raise IllTyped(f"there is no function {f!r}")
        return f

    def _application(self, a: Apply) -> None:
        named, xs = self.p.named_args(a), self.p.tensors(a)
        for x in xs:
            self._find(x)
        self._find(a)
        if a.name in ("In", "Par", "Num", "Iota", "Cast"):
            slot = self._slot(named["dtype"])
            if slot is None:
                raise IllTyped(f"{a.name} of a dtype that is none")
            self._unify(slot, a)
            value = named.get("value")
            if isinstance(value, Lit) and (float(value.value) % 1 or float(value.value) < 0):
                self._restrict(a, FLOATS if float(value.value) % 1 else (*FLOATS, "int32", "int64"))
        elif a.name in ("Map", "Zip"):
            f = SCALARS.get(self._function(named["f"]))
            if f is None or f.arity != len(xs):
                raise IllTyped(f"{a.name} of {self._function(named['f'])!r}")
            self._unify(*xs)
            self._restrict(xs[0], GROUPS[f.takes])
            self._restrict(a, ("bool",)) if f.gives == "bool" else self._unify(a, xs[0])
        elif a.name == "Red":
            f = self._function(named["f"])
            self._restrict(xs[0], GROUPS[REDUCED.get(f, "number")])
            given = REDUCERS[f][1]
            self._unify(a, xs[0]) if given == "same" else self._restrict(a, (given,))
        elif a.name in ("Select", "Gather", "Scatter"):
            self._restrict(xs[0], ("bool",) if a.name == "Select" else ("int32", "int64"))
            self._unify(a, *xs[1:])
            if a.name == "Scatter":
                self._restrict(a, GROUPS["number"])
        elif a.name == "Argsort":
            self._restrict(a, ("int64",))
        elif a.name in FACTORED:
            self._unify(a, *xs)
            self._restrict(a, MATRICES)
        elif a.name in _SAME:
            self._unify(a, *xs)
            if a.name in ("Sum", "Scan", "Add", "Mul"):
                self._restrict(a, (*FLOATS, *INTEGERS))
