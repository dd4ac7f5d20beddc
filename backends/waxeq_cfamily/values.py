"""A meaning as scalar values over loop axes: heads that only re-index are gone into the indices of what is read.

Every tensor of a meaning is a function from the positions along its axes to a scalar. Resolving the root at the loop
axes themselves turns slices, renames, pads, concatenations and gathers into index arithmetic, so that no kernel ever
copies to look at a tensor in another way. Rows are numbered; equal rows are one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from waxeq.backend.call import View, operand_index
from waxeq.basis.scalar import SCALARS
from waxeq.basis.typing import TermType, types
from waxeq.ir.term import Term
from waxeq.ir.types import is_float
from waxeq_cfamily.scalars import carried

Atom = str | tuple[str, Any, int]
"""What an index is a multiple of: an axis; ("div" | "mod", index, n); ("row", number of the row, size it wraps at)."""


@dataclass(frozen=True, slots=True)
class Index:
    """`const` plus multiples of atoms."""

    terms: tuple[tuple[Atom, int], ...] = ()
    const: int = 0

    @staticmethod
    def of(atom: Atom) -> Index:
        return Index(((atom, 1),))

    def scaled(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        return Index(tuple((a, c * factor) for a, c in self.terms), self.const * factor)

    def plus(self, other: Index) -> Index:
        found = dict(self.terms)
        for a, c in other.terms:
            found[a] = found.get(a, 0) + c
        kept = sorted(((a, c) for a, c in found.items() if c), key=lambda row: (isinstance(row[0], tuple), repr(row)))
        return Index(tuple(kept), self.const + other.const)

    def stride(self, axis: str) -> int | None:
        """How far a step along an axis leads; None where that is not one number."""
        step = 0
        for a, c in self.terms:
            if a == axis:
                step += c
            elif isinstance(a, tuple) and a[0] != "row" and a[1].stride(axis) != 0:
                return None
        return step


Guard = tuple[Index, int, int]
"""low <= index < high."""


@dataclass(frozen=True, slots=True)
class Row:
    """One scalar value. `op`: load, number, position, apply, fold, scan or within; `name`: operand, value, index,
    function or kind of fold. A scan is a running fold: it has the axis that it runs along. A load is only made where
    its `guards` hold; elsewhere its value does not matter."""

    op: str
    name: Any
    args: tuple[int, ...]
    dtype: str
    axes: frozenset[str]
    folded: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()

    @property
    def costly(self) -> bool:
        """Whether it is a function of more than a few instructions: better kept than computed again."""
        return self.op == "apply" and self.name in SCALARS and SCALARS[self.name].cost == "costly"


@dataclass(frozen=True)
class Values:
    """The rows of a meaning, operands before users; the last is the result. `sizes` has the loop axes. `others`: rows
    that are results as well, and where each is written."""

    rows: tuple[Row, ...]
    sizes: Mapping[str, int]
    out: Index
    others: tuple[tuple[int, Index], ...] = ()

    @property
    def root(self) -> int:
        return len(self.rows) - 1

    @property
    def results(self) -> tuple[tuple[int, Index], ...]:
        """Every result: its row, and where it is written."""
        return (self.root, self.out), *self.others

    @cached_property
    def users(self) -> Mapping[int, tuple[int, ...]]:
        found: dict[int, list[int]] = {}
        for n, r in enumerate(self.rows):
            for a in self.reads(r):
                found.setdefault(a, []).append(n)
        return {n: tuple(u) for n, u in found.items()}

    def reads(self, row: Row) -> tuple[int, ...]:
        """Every row that a row needs, those in its indices as well."""
        return tuple(dict.fromkeys((*row.args, *(n for i in indices(row) for n, _ in pointed(i)))))

    @cached_property
    def positions(self) -> Mapping[int, tuple[int, ...]]:
        """The rows whose values are positions, with the sizes of the axes that they point into."""
        found: dict[int, dict[int, None]] = {}
        for r in self.rows:
            for i in indices(r):
                for n, size in pointed(i):
                    found.setdefault(n, {})[size] = None
        return {n: tuple(sizes) for n, sizes in found.items()}

    @property
    def scans(self) -> tuple[int, ...]:
        return tuple(n for n, r in enumerate(self.rows) if r.op == "scan")

    @cached_property
    def folded(self) -> frozenset[str]:
        """Axes that folds and scans run along."""
        return frozenset(k for r in self.rows for k in r.folded)


def indices(row: Row) -> tuple[Index, ...]:
    """The indices of a row."""
    own = (row.name,) if row.op == "position" else (row.name[1],) if row.op in ("load", "within") else ()
    return (*own, *(g[0] for g in row.guards))


def pointed(index: Index) -> Iterable[tuple[int, int]]:
    """Rows that an index takes positions from, with the size of the axis they point into."""
    for a, _ in index.terms:
        if isinstance(a, tuple):
            if a[0] == "row":
                yield a[1], a[2]
            else:
                yield from pointed(a[1])


def axes_of(index: Index, rows: Sequence[Row]) -> frozenset[str]:
    """The axes whose places an index comes from, those of the rows that it takes positions from among them."""
    found: set[str] = set()
    for a, _ in index.terms:
        if isinstance(a, str):
            found.add(a)
        else:
            found |= rows[a[1]].axes if a[0] == "row" else axes_of(a[1], rows)
    return frozenset(found)


def chain(values: Values, fold: int) -> tuple[tuple[str, ...], int]:
    """Folds of one kind over one another, used nowhere else, are one fold: (axes, what is folded)."""
    axes, n = list(values.rows[fold].folded), values.rows[fold].args[0]
    while (r := values.rows[n]).op == "fold" and r.name == values.rows[fold].name and len(values.users[n]) == 1:
        if r.folded[0] in axes:
            break
        axes += r.folded
        n = r.args[0]
    return tuple(axes), n


def reach(values: Values, axis: str) -> int:
    """The longest step along an axis in anything that is read."""
    steps = [abs(r.name[1].stride(axis) or 0) for r in values.rows if r.op == "load"]
    return max((s for s in steps if s), default=0)


class Unsupported(Exception):
    """A head that has no scalar form (a sort, a scatter, ...)."""


def resolve(meaning: Term, operands: Sequence[View], out: View, sizes: Mapping[str, int]) -> Values:
    """The rows of a meaning at the axes of its result. Raises Unsupported."""
    return _Resolver(meaning, operands, sizes).values(out)


class _Resolver:
    def __init__(self, meaning: Term, operands: Sequence[View], sizes: Mapping[str, int]) -> None:
        self.meaning, self.operands, self.sizes = meaning, operands, dict(sizes)
        self.kinds: Mapping[Term, TermType] = types(meaning)
        self.rows: list[Row] = []
        self._number: dict[Row, int] = {}
        self._done: dict[tuple[Any, ...], int] = {}

    def values(self, out: View) -> Values:
        axes = self.kinds[self.meaning].axes
        root = self.at(self.meaning, {k: Index.of(k) for k in axes}, ())
        rows = kept(self.rows, root)
        where = Index()
        for k, s in zip(out.axes, out.strides, strict=True):
            where = where.plus(Index.of(k).scaled(s))
        used = {k for r in rows for k in (*r.axes, *r.folded)} | set(out.axes)
        return Values(rows, {k: n for k, n in self.sizes.items() if k in used}, where)

    def row(self, r: Row) -> int:
        if r not in self._number:
            self._number[r] = len(self.rows)
            self.rows.append(r)
        return self._number[r]

    def at(self, t: Term, env: Mapping[str, Index], guards: tuple[Guard, ...]) -> int:
        """The row of a term at a place; `guards` hold wherever its value is used."""
        own = {k: env[k] for k in self.kinds[t].axes if k in env}
        key = (t, tuple(sorted(own.items())), guards)
        if key not in self._done:
            if t.head not in _HEADS:
                raise Unsupported(t.head)
            self._done[key] = _HEADS[t.head](self, t, own, guards)
        return self._done[key]

    # -- one method per family of heads

    def load(self, t: Term, env: Mapping[str, Index], guards: tuple[Guard, ...]) -> int:
        n = operand_index(t)
        where = Index()
        for k, s in zip(self.operands[n].axes, self.operands[n].strides, strict=True):
            where = where.plus(env[k].scaled(s))
        axes = axes_of(where, self.rows).union(*(axes_of(g[0], self.rows) for g in guards))
        return self.row(Row("load", (n, where), (), self.kinds[t].dtype, axes, guards=guards))

    def number(self, t: Term, env: Mapping[str, Index], guards: tuple[Guard, ...]) -> int:
        return self.row(Row("number", repr(float(t.args[0])), (), t.args[1], frozenset()))

    def iota(self, t: Term, env: Mapping[str, Index], guards: tuple[Guard, ...]) -> int:
        where = env[t.args[0]]
        return self.row(Row("position", where, (), t.args[1], axes_of(where, self.rows)))

    def apply(self, t: Term, env: Mapping[str, Index], guards: tuple[Guard, ...]) -> int:
        args = tuple(self.at(x, env, guards) for x in t.terms)
        name = t.args[0] if t.head in ("Map", "Zip") else t.head
        axes = frozenset[str]().union(*(self.rows[a].axes for a in args))
        return self.row(Row("apply", name, args, self.kinds[t].dtype, axes))

    def fold(self, t: Term, env: Mapping[str, Index], guards: tuple[Guard, ...]) -> int:
        kind, k = ("sum", t.args[0]) if t.head == "Sum" else t.args[:2]
        if kind in ("argmax", "argmin"):
            return self._place_of(t, env, guards)
        if kind == "prod" and carried(self.kinds[t].dtype) != self.kinds[t].dtype:
            raise Unsupported(kind)  # a float32 does not underflow where a narrow float does
        x = t.terms[0]
        if k not in self.kinds[x].axes:
            return self._constant_fold(kind, self.at(x, env, guards), self.sizes[k], self.kinds[t].dtype)
        bound = k
        while any(bound in axes_of(i, self.rows) for i in (*env.values(), *(g[0] for g in guards))):
            bound += "'"
        self.sizes[bound] = self.sizes[k]
        arg = self.at(x, {**env, k: Index.of(bound)}, guards)
        inner = self.rows[arg]
        if bound not in inner.axes:
            return self._constant_fold(kind, arg, self.sizes[k], self.kinds[t].dtype)
        return self.row(Row("fold", kind, (arg,), self.kinds[t].dtype, inner.axes - {bound}, (bound,)))

    def scan(self, t: Term, env: Mapping[str, Index], guards: tuple[Guard, ...]) -> int:
        """A running fold, where its axis is a loop of its own: each step is made once, in order."""
        kind, k, x = t.args
        axis = env[k].terms[0][0] if env[k].terms else None
        if not isinstance(axis, str) or env[k] != Index.of(axis) or k not in self.kinds[x].axes:
            raise Unsupported("Scan")
        if any(axis in axes_of(i, self.rows) for i in (*(env[a] for a in env if a != k), *(g[0] for g in guards))):
            raise Unsupported("Scan")
        arg = self.at(x, env, guards)
        return self.row(Row("scan", kind, (arg,), self.kinds[t].dtype, self.rows[arg].axes | {axis}, (axis,)))

    def _place_of(self, t: Term, env: Mapping[str, Index], guards: tuple[Guard, ...]) -> int:
        """The first place of the largest (or smallest) element, or of NaN where there is one: two folds, as one that
        carries a place along has a branch at every step."""
        kind, k, x = t.args
        axes, dtype = self.kinds[x].axes, self.kinds[x].dtype
        if self.sizes[k] == 0:
            raise Unsupported(kind)
        if k not in axes:
            return self.row(Row("number", "0.0", (), "int64", frozenset()))
        counted = "int32" if self.sizes[k] < 1 << 31 else "int64"
        ends, none = Term("Red", kind[3:], k, x), Term("Num", float(self.sizes[k]), counted)
        found = Term("Zip", "eq", x, ends)
        if is_float(dtype):
            found = Term("Zip", "or", found, Term("Map", "isnan", x))
        place = Term("Cast", "int64", Term("Red", "min", k, Term("Select", found, Term("Iota", k, counted), none)))
        self.kinds = {**self.kinds, **types(place)}
        return self.at(place, env, guards)

    def _constant_fold(self, kind: str, arg: int, size: int, dtype: str) -> int:
        """A fold along an axis in which its operand is constant."""
        if size == 0 or kind == "prod":
            raise Unsupported(kind)
        if kind != "sum" or size == 1:
            return arg
        wide, axes = carried(dtype), self.rows[arg].axes  # a count may be more than a narrow float holds
        count = self.row(Row("number", repr(float(size)), (), wide, frozenset()))
        if wide == dtype:
            return self.row(Row("apply", "Mul", (arg, count), dtype, axes))
        whole = self.row(Row("apply", "Cast", (arg,), wide, axes))
        return self.row(Row("apply", "Cast", (self.row(Row("apply", "Mul", (whole, count), wide, axes)),), dtype, axes))

    def view(self, t: Term, env: Mapping[str, Index], guards: tuple[Guard, ...]) -> int:
        return self.at(t.terms[0], {**env, **_VIEWS[t.head](self.sizes, env, *t.args[:-1])}, guards)

    def pad(self, t: Term, env: Mapping[str, Index], guards: tuple[Guard, ...]) -> int:
        k, n, low, value, x = t.args
        where = env.get(n, Index()).plus(Index((), -low))
        guard = (where, 0, self.sizes[k])
        inside = self.at(x, {**env, k: where}, (*guards, guard))
        outside = self.row(Row("number", repr(float(value)), (), self.kinds[t].dtype, frozenset()))
        return self._either(guard, inside, outside)

    def concat(self, t: Term, env: Mapping[str, Index], guards: tuple[Guard, ...]) -> int:
        p, q, n, x, y = t.args
        first = (env[n], 0, self.sizes[p])
        moved = env[n].plus(Index((), -self.sizes[p]))
        left = self.at(x, {**env, p: env[n]}, (*guards, first))
        right = self.at(y, {**env, q: moved}, (*guards, (moved, 0, self.sizes[q])))
        return self._either(first, left, right)

    def _either(self, guard: Guard, inside: int, outside: int) -> int:
        a, b = self.rows[inside], self.rows[outside]
        axes = a.axes | b.axes | axes_of(guard[0], self.rows)
        return self.row(Row("within", (guard[1:], guard[0]), (inside, outside), a.dtype, axes))

    def gather(self, t: Term, env: Mapping[str, Index], guards: tuple[Guard, ...]) -> int:
        k, i, x = t.args
        where = self.at(i, env, guards)
        return self.at(x, {**env, k: Index.of(("row", where, self.sizes[k]))}, guards)


def kept(rows: Sequence[Row], root: int) -> tuple[Row, ...]:
    """The rows that the root needs, renumbered, the root last."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        n = stack.pop()
        if n not in seen:
            seen.add(n)
            r = rows[n]
            stack += [*r.args, *(p for i in indices(r) for p, _ in pointed(i))]
    new = {n: i for i, n in enumerate(sorted(seen))}
    return tuple(renumbered(rows[n], new) for n in sorted(seen))


def renumbered(r: Row, new: Mapping[int, int]) -> Row:
    """The row with others called by their new numbers."""

    def move(i: Index) -> Index:
        def atom(a: Atom) -> Atom:
            if isinstance(a, str):
                return a
            return ("row", new[a[1]], a[2]) if a[0] == "row" else (a[0], move(a[1]), a[2])

        return Index(tuple((atom(a), c) for a, c in i.terms), i.const)

    return replace(reindexed(r, move), args=tuple(new[a] for a in r.args))


def reindexed(r: Row, change: Callable[[Index], Index]) -> Row:
    """The row with every index changed."""
    name = r.name
    if r.op == "position":
        name = change(name)
    elif r.op in ("load", "within"):
        name = (name[0], change(name[1]))
    return replace(r, name=name, guards=tuple((change(g[0]), *g[1:]) for g in r.guards))


def _merged(sizes: Mapping[str, int], env: Mapping[str, Index], p: str, q: str, k: str) -> dict[str, Index]:
    whole, n = env[k], sizes[q]
    if n == 1:
        return {p: whole, q: Index()}
    return {p: Index.of(("div", whole, n)), q: Index.of(("mod", whole, n))}


_VIEWS: Mapping[str, Callable[..., dict[str, Index]]] = {
    "Ren": lambda s, e, a, b: {a: e[b]},
    "Split": lambda s, e, k, p, q: {k: e[p].scaled(s[q]).plus(e[q])},
    "Merge": _merged,
    "Diag": lambda s, e, i, j, k: {i: e[k], j: e[k]},
    "Slice": lambda s, e, k, n, start, step: {k: e[n].scaled(step).plus(Index((), start))},
    "Unfold": lambda s, e, k, o, w, stride, dilation: {k: e[o].scaled(stride).plus(e[w].scaled(dilation))},
}

_R = _Resolver
_HEADS: Mapping[str, Callable[[_Resolver, Term, Mapping[str, Index], tuple[Guard, ...]], int]] = {
    "In": _R.load, "Num": _R.number, "Iota": _R.iota, "Sum": _R.fold, "Red": _R.fold, "Scan": _R.scan, "Pad": _R.pad,
    "Cat": _R.concat, "Gather": _R.gather,
    **dict.fromkeys(("Map", "Zip", "Add", "Mul", "Select", "Cast"), _R.apply), **dict.fromkeys(_VIEWS, _R.view),
}  # fmt: skip
INDEX_MAPS = frozenset({"Gather", "Cat", "Pad", "Merge"})
"""Those that only say where an element is read, and that no strided view can say as well."""
RUNNING = frozenset({"Scan", "argmax", "argmin"})
"""Heads and folds that not every kernel of loops has."""
