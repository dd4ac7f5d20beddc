"""Guards of a rule, decided on an instance without an e-graph, so that instances that cannot match are dropped early.

What is not known here (a primitive, a relation that other rules fill) is left to the e-graph, which has the last word.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from waxeq.basis.heads import HEADS
from waxeq.basis.typing import TermType, types
from waxeq.egraph.primitives import PRIMITIVES, Undecided
from waxeq.egraph.rules import Apply, Expr, Fact, Lit
from waxeq.ir.term import Term, postorder
from waxeq.testing.pattern import Pattern

_PLAIN: Mapping[str, Callable[..., Any]] = {
    **PRIMITIVES,
    "/": lambda a, b: a / b if isinstance(a, float) else int(a / b),
    "%": math.fmod,
    "min": min,
    "max": max,
    "abs": abs,
    "to-f64": float,
    "to-i64": int,
    "and": lambda *xs: all(xs),
    "or": lambda *xs: any(xs),
    "not": operator.not_,
    "bool-=": operator.eq,
    "bool-!=": operator.ne,
    "bool-<": operator.lt,
    "bool->": operator.gt,
    "bool-<=": operator.le,
    "bool->=": operator.ge,
}


@dataclass
class Instance:
    """One typed instance of a left side: what each variable stands for, and the size of every axis."""

    pattern: Pattern
    sizes: dict[str, int] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    types: dict[Term, TermType] = field(default_factory=dict)

    @property
    def roots(self) -> tuple[Term, ...]:
        """The terms that the left side matches."""
        return tuple(self.value(r) for r in self.pattern.roots)

    def value(self, e: Expr) -> Any:
        """The value of an expression. Raises Undecided for what this module does not know."""
        e = self.pattern.settled(e)
        if isinstance(e, Lit):
            return e.value
        if not isinstance(e, Apply):
            if e.name not in self.values:
                raise Undecided(e.name)
            return self.values[e.name]
        args = [self.value(a) for a in e.args]
        if e.name in HEADS:
            return self.term(e.name, args)
        if e.name in _OF_TERM:
            return _OF_TERM[e.name](self, *args)
        if e.name == "size":
            return self.sizes[args[0]]
        if e.name == "+":
            return "".join(args) if isinstance(args[0], str) else sum(args)
        if e.name in self.pattern.rows:
            return self._row(e.name, tuple(args))
        if e.name in _PLAIN:
            return _PLAIN[e.name](*args)
        raise Undecided(e.name)

    def _row(self, name: str, args: tuple) -> Any:
        rows = self.pattern.rows[name]
        if args in rows:
            return True
        found = [r[-1] for r in rows if r[:-1] == args]
        if not found and all(len(r) == len(args) for r in rows):
            return False
        if not found:
            raise Undecided(name)
        return found[0]

    def term(self, head: str, args: list[Any]) -> Term:
        """A term, with its type noted."""
        kinds = HEADS[head].sorts
        given = (float(a) if s == "Float" else a for a, s in zip(args, kinds, strict=True))
        t = Term(head, *given)
        if t not in self.types:
            self.types |= types(t)
        return t

    def holds(self, fact: Fact) -> bool | None:
        """Whether a guard holds; None where only the e-graph knows."""
        try:
            found = [self.value(e) for e in fact]
        except (Undecided, KeyError, TypeError, ValueError, ArithmeticError):  # fmod(x, 0) is a ValueError
            return None
        if len(found) == 1:
            return found[0] is not False
        return all(x == found[0] for x in found[1:])


def weights_only(t: Term) -> bool:
    """Whether a term depends on no activation."""
    return all(s.head != "In" for s in postorder(t))


def _constant(_: Instance, t: Term) -> float:
    if t.head != "Num":
        raise Undecided("cval")
    return t.args[0]


_OF_TERM: Mapping[str, Callable[[Instance, Term], Any]] = {
    "ax": lambda i, t: i.types[t].axes,
    "dt": lambda i, t: i.types[t].dtype,
    "isw": lambda i, t: weights_only(t),
    "cval": _constant,
}
