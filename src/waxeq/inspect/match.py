"""Matching what a rule says against a saturated e-graph, to tell after the fact how an e-node came to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from waxeq.basis.heads import HEADS
from waxeq.egraph.primitives import PRIMITIVES, Undecided
from waxeq.egraph.rules import Apply, Body, Expr, Fact, Lit, Var
from waxeq.egraph.snapshot import ENode, Snapshot, looks
from waxeq.egraph.written import in_classes
from waxeq.ir.term import Term

Member = tuple[int, ENode]
"""An e-node and the number of its class."""

_MATCHES = 16


@dataclass(frozen=True)
class Match:
    """Values of variables, the e-nodes that were met, and computed arguments that are to be compared at the end."""

    values: Mapping[str, Any] = field(default_factory=dict)
    met: tuple[Member, ...] = ()
    later: tuple[tuple[Expr, Any], ...] = ()

    def bound(self, name: str, value: Any) -> Match:
        return Match({**self.values, name: value}, self.met, self.later)


def is_term(e: Expr) -> bool:
    """Whether an expression is a constructor on arguments: of the basis, or a kernel's."""
    return isinstance(e, Apply) and (e.name in HEADS or e.name.startswith("K."))


def heads(e: Expr) -> Iterator[str]:
    """The constructors in an expression."""
    if isinstance(e, Apply) and is_term(e):
        yield e.name
        for a in e.args:
            yield from heads(a)


@dataclass(frozen=True)
class Index:
    """A snapshot with look-ups: from the `looks` of an e-node to it, from class to its own e-nodes (`headed`) and to
    those that read it, by head: a class may have hundreds of them, of which a pattern fits few."""

    snapshot: Snapshot
    known: Mapping[tuple[Any, ...], Member]
    readers: Mapping[tuple[int, str], tuple[Member, ...]]
    headed: Mapping[tuple[int, str], tuple[ENode, ...]]

    @staticmethod
    def of(snapshot: Snapshot) -> Index:
        members = [(i, n) for i, c in enumerate(snapshot.classes) for n in c.nodes]
        readers: dict[tuple[int, str], list[Member]] = {}
        headed: dict[tuple[int, str], list[ENode]] = {}
        for i, n in members:
            headed.setdefault((i, n.head), []).append(n)
            for a in dict.fromkeys(n.tensors):
                readers.setdefault((a, n.head), []).append((i, n))
        rows = {looks(n.head, n.args): (i, n) for i, n in members}
        many = {k: tuple(r) for k, r in readers.items()}
        return Index(snapshot, rows, many, {k: tuple(ns) for k, ns in headed.items()})

    def member(self, head: str, args: tuple[Any, ...]) -> Member | None:
        """An e-node by its looks."""
        return self.known.get(looks(head, args))

    def members(self, roots: Sequence[Term]) -> set[Member]:
        """The e-nodes of terms."""
        found = in_classes(roots, lambda t, args: self.known.get(looks(t.head, args), (None,))[0])
        return {self.known[looks(t.head, args)] for t, args, _ in found}

    # -- patterns

    def match(self, e: Expr, value: Any, so_far: Match) -> Iterator[Match]:
        """Every way `value` (a class number where a tensor is meant) is what the expression says."""
        if isinstance(e, Var):
            if e.name not in so_far.values:
                yield so_far.bound(e.name, value)
            elif so_far.values[e.name] == value:
                yield so_far
        elif isinstance(e, Lit):
            if e.value == value:
                yield so_far
        elif is_term(e):
            known = self._known(e, so_far.values)
            if known is not None:
                if known and known[0][0] == value:
                    yield Match(so_far.values, (*so_far.met, *known), so_far.later)
                return
            for n in self.headed.get((value, e.name), ()):
                yield from self.match_node(e, (value, n), so_far)
        else:
            yield Match(so_far.values, so_far.met, (*so_far.later, (e, value)))

    def _known(self, e: Expr, values: Mapping[str, Any]) -> tuple[Member, ...] | None:
        """The e-nodes of a pattern of which every variable is known, that on top first; () where they are not there.
        None where one is not known. What the right side of a rule binds is often all that the left one has."""
        assert isinstance(e, Apply)
        args, below = list[Any](), list[Member]()
        for a in e.args:
            if is_term(a):
                found = self._known(a, values)
                if not found:
                    return found
                args.append(found[0][0])
                below += found
            elif isinstance(a, Var) and a.name not in values:
                return None
            else:
                try:
                    args.append(self.value(a, values))
                except (Undecided, TypeError, KeyError):
                    return None
        top = self.member(e.name, tuple(args))
        return () if top is None else (top, *below)

    def match_node(self, e: Apply, member: Member, so_far: Match, matched: int = -1) -> Iterator[Match]:
        """Every way the pattern matches with this e-node on top. `matched`: the argument that `so_far` has matched."""
        n = member[1]
        if n.head != e.name or len(n.args) != len(e.args):
            return
        rows = [Match(so_far.values, (*so_far.met, member), so_far.later)]
        for place, (a, value) in enumerate(zip(e.args, n.args, strict=True)):
            if isinstance(a, Var):
                same = (r for r in rows if r.values.get(a.name, value) == value)
                rows = [r if a.name in r.values else r.bound(a.name, value) for r in same]
            elif place != matched:
                rows = [new for old in rows for new in islice(self.match(a, value, old), _MATCHES)]
        yield from rows

    # -- rules

    def applications(self, body: Body, member: Member) -> Iterator[tuple[Member, ...]]:
        """For each way a rule could have made this e-node, on top of its right side or inside: the e-nodes of its left
        side.
        """
        root = [v.name for v in body.right if isinstance(v, Var)]
        for made in (e for e in body.right if isinstance(e, Apply) and is_term(e)):
            for number, right in self._with(made, member):
                start = Match({**right.values, **dict.fromkeys(root, number)}, (), right.later)
                for found in islice(self._facts(list(body.facts), start, None if root else number), _MATCHES):
                    if self._agrees(found.later, found):
                        yield found.met

    def _with(self, e: Apply, member: Member) -> Iterator[tuple[int, Match]]:
        """Every way a pattern matches that has `member` on top of it or inside, with the class of what it matches.
        What is around the member is bound by it: from the top down most of what is met leads elsewhere."""
        if e.name == member[1].head:
            yield from ((member[0], m) for m in islice(self.match_node(e, member, Match()), _MATCHES))
        for place, inner in enumerate(e.args):
            for number, m in self._with(inner, member) if isinstance(inner, Apply) and is_term(inner) else ():
                for i, n in self.readers.get((number, e.name), ()):
                    if n.args[place] == number:
                        rows = islice(self.match_node(e, (i, n), m, place), _MATCHES)
                        yield from ((i, new) for new in rows)

    def _facts(self, facts: list[Fact], so_far: Match, root: int | None) -> Iterator[Match]:
        """Ways to satisfy all facts; `root` is the class of a rewrite's left side, its first fact."""
        if not facts:
            yield so_far
            return
        if root is not None:
            for m in self.match(facts[0][0], root, so_far):
                yield from self._facts(facts[1:], m, None)
            return
        ready = next((f for f in facts if self._anchor(f, so_far) is not None), None)
        if ready is None:
            if all(self._holds(f, so_far) for f in facts):
                yield so_far
            return
        rest = [f for f in facts if f is not ready]
        number = self._anchor(ready, so_far)
        rows = [so_far]
        for e in (e for e in ready if is_term(e)):
            rows = [new for old in rows for new in self.match(e, number, old)]
        for m in rows:
            yield from self._facts(rest, m, None)

    def _anchor(self, fact: Fact, so_far: Match) -> int | None:
        """The class that a fact `(= e (Mul a b))` speaks of, when it is known."""
        if not any(map(is_term, fact)):
            return None
        names = [e.name for e in fact if isinstance(e, Var) and e.name in so_far.values]
        return so_far.values[names[0]] if names else None

    def _holds(self, fact: Fact, m: Match) -> bool:
        try:
            values = [self.value(e, m.values) for e in fact]
        except (Undecided, TypeError, KeyError):
            return True  # it did hold when the rule ran, or the e-graph would not be as it is
        return bool(values[0]) if len(values) == 1 else all(v == values[0] for v in values)

    def _agrees(self, later: Sequence[tuple[Expr, Any]], m: Match) -> bool:
        return all(self._holds((e, Lit(value)), m) for e, value in later)

    def value(self, e: Expr, values: Mapping[str, Any]) -> Any:
        """An expression over known variables. Raises Undecided."""
        if isinstance(e, Lit):
            return e.value
        if isinstance(e, Var):
            if e.name not in values:
                raise Undecided(e.name)
            return values[e.name]
        args = [self.value(a, values) for a in e.args]
        if is_term(e):
            found = self.member(e.name, tuple(args))
            if found is None:
                raise Undecided(e.name)
            return found[0]
        if e.name in PRIMITIVES:
            return PRIMITIVES[e.name](*args)
        return self._analysis(e.name, args[0] if args else None)

    def _analysis(self, name: str, key: Any) -> Any:
        if name == "size":
            return self.snapshot.sizes[key]
        if name not in ("ax", "dt", "isw", "cval"):
            raise Undecided(name)
        c = self.snapshot.classes[key]
        found = {"ax": c.axes, "dt": c.dtype, "isw": c.weights_only, "cval": c.constant}[name]
        if found is None:
            raise Undecided(name)
        return found
