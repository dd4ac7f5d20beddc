"""Rows of values some of whose indices have become numbers: what that decides is decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from waxeq_cfamily.values import Atom, Guard, Index, Row, Values, indices, pointed, renumbered


@dataclass
class Rows:
    """Rows one after another, operands before users; equal ones are one."""

    rows: list[Row] = field(default_factory=list)
    _made: dict[Row, int] = field(default_factory=dict)

    def add(self, r: Row) -> int:
        """The number of a row whose arguments have numbers here: of another, where it is known to be that."""
        if r.op == "within" and not r.name[1].terms:
            return r.args[0] if _holds((r.name[1], *r.name[0])) else r.args[1]
        if r.op == "position" and not r.name.terms:
            r = Row("number", repr(float(r.name.const)), (), r.dtype, frozenset())
        known = [g for g in r.guards if not g[0].terms]
        if not all(map(_holds, known)):  # what asks for it asks for the same, and does not take it
            r = Row("number", "0.0", (), r.dtype, frozenset())
        elif known:
            r = replace(r, guards=tuple(g for g in r.guards if g not in known))
        if r not in self._made:
            self._made[r] = len(self.rows)
            self.rows.append(r)
        return self._made[r]

    def values(self, ends: Sequence[tuple[int, Index]], sizes: Mapping[str, int]) -> Values:
        """What is left of values of these axes, of which `ends` are the results, each with where it is written: without
        rows that no result needs, and axes that none of those has."""
        rows, new = self._needed([n for n, _ in ends])
        (_, out), *others = sorted(((new[n], where) for n, where in ends), key=lambda e: -e[0])
        have = {k for r in rows for k in (*r.axes, *r.folded)} | {a for _, where in ends for a, _ in where.terms}
        return Values(rows, {k: n for k, n in sizes.items() if k in have}, out, tuple(others))

    def _needed(self, roots: Sequence[int]) -> tuple[tuple[Row, ...], Mapping[int, int]]:
        """The rows that some of them need, and their new numbers."""
        seen, stack = set[int](), [*roots]
        while stack:
            n = stack.pop()
            if n not in seen:
                seen.add(n)
                stack += [*self.rows[n].args, *(p for i in indices(self.rows[n]) for p, _ in pointed(i))]
        new = {n: i for i, n in enumerate(sorted(seen))}
        return tuple(renumbered(self.rows[n], new) for n in sorted(seen)), new


def _holds(g: Guard) -> bool:
    """Whether a guard holds that is at one place."""
    return g[1] <= g[0].const < g[2]


def placed(index: Index, where: Callable[[Atom, int], Index | None]) -> Index:
    """An index with atoms put in the place of others: `where` tells what an atom is that it is so many times, None
    where it stays."""
    made = Index(const=index.const)
    for a, step in index.terms:
        found = where(a, step)
        made = made.plus((_inside(a, where) if found is None else found).scaled(step))
    return made


def _inside(a: Atom, where: Callable[[Atom, int], Index | None]) -> Index:
    if isinstance(a, str) or a[0] == "row":
        return Index.of(a)
    kind, what, n = a
    inner = placed(what, where)
    if inner.terms:
        return Index.of((kind, inner, n))
    return Index(const=inner.const // n if kind == "div" else inner.const % n)
