"""The left side of a rule, taken apart: which variables there are, which terms it matches, which guards it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from waxeq.basis.heads import HEADS
from waxeq.egraph.rules import Apply, Body, Expr, Fact, Lit, Var
from waxeq.errors import RuleError


@dataclass(frozen=True)
class Pattern:
    """`roots`: the terms matched, none inside another. `sorts` of the variables inside them. `defined`: variables that
    stand for a term of the pattern (`(= e (Mul a b))`). `named`: variables for what is computed (`(= n (size k))`).
    `guards`: all other facts. `rows`: relations and functions that are given as text, with their rows. `made`: axes
    that the right side names and the left does not bind.
    """

    roots: tuple[Apply, ...]
    sorts: Mapping[str, str]
    functions: Mapping[str, frozenset[str]]
    defined: Mapping[str, Apply]
    named: Mapping[str, Expr]
    guards: tuple[Fact, ...]
    rows: Mapping[str, list[tuple]] = field(default_factory=dict)
    made: tuple[Expr, ...] = ()

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Variables that stand for any tensor, in order of appearance."""
        return tuple(v for v, s in self.sorts.items() if s == "T" and v not in self.defined)

    def settled(self, e: Expr) -> Expr:
        """The expression a variable is defined as, else the expression itself."""
        while isinstance(e, Var) and (e.name in self.defined or e.name in self.named):
            e = self.defined[e.name] if e.name in self.defined else self.named[e.name]
        return e

    @cached_property
    def applications(self) -> tuple[Apply, ...]:
        """Every constructor of the pattern, operands before what reads them."""
        return tuple(dict.fromkeys(a for r in self.roots for a in self._inner(r)))

    def _inner(self, e: Expr) -> Iterator[Apply]:
        e = self.settled(e)
        if isinstance(e, Apply) and e.name in HEADS:
            for a in e.args:
                yield from self._inner(a)
            yield e

    def tensors(self, e: Apply) -> tuple[Expr, ...]:
        """The operands of a constructor that are tensors, settled."""
        return tuple(self.settled(e.args[i]) for i in HEADS[e.name].tensors)

    def named_args(self, e: Apply) -> dict[str, Expr]:
        """The arguments of a constructor by their names in the basis."""
        return {n: self.settled(a) for (n, _), a in zip(HEADS[e.name].args, e.args, strict=True)}


def pattern(body: Body, rows: Mapping[str, list[tuple]], place: str) -> Pattern:
    """Take a left side apart. Raises RuleError for a constructor with too few or too many arguments, and for a variable
    that stands for two sorts of things."""
    defined: dict[str, Apply] = {}
    named: dict[str, Expr] = {}
    matched: list[Apply] = []
    guards: list[Fact] = []
    for n, fact in enumerate(body.facts):
        fact = _fresh(fact, n)
        terms = [e for e in fact if isinstance(e, Apply) and e.name in HEADS]
        variables = [e.name for e in fact if isinstance(e, Var)]
        if terms:
            matched += terms
            defined |= {v: terms[0] for v in variables if v not in defined}
            if len(terms) > 1:
                guards.append(tuple(terms))
        elif len(fact) == 2 and len(variables) == 1 and variables[0] not in named:
            named[variables[0]] = next(e for e in fact if not isinstance(e, Var))
        else:
            guards.append(fact)
            matched += [a for e in fact for a in _terms(e)]
    p = Pattern((), {}, {}, defined, {}, ())
    inside = {a for m in matched for x in m.args for a in p._inner(x)}
    roots = tuple(dict.fromkeys(m for m in matched if m not in inside))
    sorts, functions = _sorts(Pattern(roots, {}, {}, defined, {}, ()), place)
    for v in _looked_up((*(e for g in guards for e in g), *named.values())):
        if v not in sorts and v not in named:
            sorts[v] = "Axis"
    bound = {v: e for v, e in named.items() if v in sorts}
    guards += [(Var(v), e) for v, e in bound.items()]
    computed = {v: e for v, e in named.items() if v not in sorts}
    made = dict.fromkeys(x for e in body.right for x in _axes_in(e) if isinstance(x, Lit) or x.name in computed)
    return Pattern(roots, sorts, functions, defined, computed, tuple(guards), rows, tuple(made))


def variables(e: Expr) -> tuple[Var, ...]:
    """The variables of an expression, each once."""
    inner = (v for x in e.args for v in variables(x)) if isinstance(e, Apply) else ()
    return tuple(dict.fromkeys((e,) if isinstance(e, Var) else inner))


def _axes_in(e: Expr) -> Iterator[Lit | Var]:
    """What stands in the place of an axis in the constructors of an expression."""
    if isinstance(e, Apply):
        sorts = HEADS[e.name].sorts if e.name in HEADS else ()
        yield from (x for x, s in zip(e.args, sorts, strict=False) if "Axis" in s and isinstance(x, Lit | Var))
        for x in e.args:
            yield from _axes_in(x)


def _fresh(fact: Fact, n: int) -> Fact:
    """The fact with each `_` a variable of its own."""
    count = 0

    def go(e: Expr) -> Expr:
        nonlocal count
        if isinstance(e, Var) and e.name == "_":
            count += 1
            return Var(f"_{n}_{count}")
        return Apply(e.name, tuple(map(go, e.args))) if isinstance(e, Apply) else e

    return tuple(map(go, fact))


def _terms(e: Expr) -> Iterator[Apply]:
    """The outermost constructors inside a guard: it holds only where such terms are in the e-graph."""
    if isinstance(e, Apply):
        if e.name in HEADS:
            yield e
        else:
            for a in e.args:
                yield from _terms(a)


def _looked_up(facts: Iterable[Expr]) -> Iterator[str]:
    """Variables that stand for an axis where a guard uses them: `(= s (size p))` goes through all axes."""
    for e in facts:
        if isinstance(e, Apply):
            place = {"size": 0, "set-contains": 1, "set-not-contains": 1}.get(e.name)
            if place is not None and place < len(e.args) and isinstance(x := e.args[place], Var):
                yield x.name
            yield from _looked_up(e.args)


_KIND = {"NewAxis": "Axis"}


def _sorts(p: Pattern, place: str) -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """The sort of each variable inside the terms, and the heads that use each function variable."""
    sorts: dict[str, str] = {}
    functions: dict[str, frozenset[str]] = {}
    for a in p.applications:
        head = HEADS[a.name]
        if len(a.args) != len(head.args):
            raise RuleError(f"{place}: {a.name} takes {len(head.args)} arguments, the rule gives it {len(a.args)}")
        for x, s in zip(a.args, head.sorts, strict=True):
            if isinstance(x, Lit) and s == "T":
                raise RuleError(f"{place}: {x.value!r} stands where {a.name} takes a tensor")
            if not isinstance(x, Var):
                continue
            kind = _KIND.get(s, s)
            if sorts.setdefault(x.name, kind) != kind:
                raise RuleError(f"{place}: {x.name} stands for a {sorts[x.name]} and for a {kind}")
            if kind == "Fn":
                functions[x.name] = functions.get(x.name, frozenset()) | {a.name}
    return sorts, functions
