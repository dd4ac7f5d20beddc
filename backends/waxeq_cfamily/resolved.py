"""A meaning as scalar values over loop axes: heads that only re-index are gone into the indices of what is read.

Every tensor of a meaning is a function from the positions along its axes to a scalar. Resolving the root at the loop
axes themselves turns slices, renames, pads, concatenations and gathers into index arithmetic, so that no kernel ever
copies to look at a tensor in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from waxeq.backend.call import View, operand_index
from waxeq.basis.typing import TermType, types
from waxeq.ir.term import Term
from waxeq.ir.types import is_float
from waxeq_cfamily.scalars import carried
from waxeq_cfamily.values import Guard, Index, Row, Unsupported, Values, axes_of, kept


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
        where = self._looked_at(self.at(i, env, guards))
        return self.at(x, {**env, k: Index.of(("row", where, self.sizes[k]))}, guards)

    def _looked_at(self, n: int) -> int:
        """The row of a position, as one that is defined where its value is used: what folds and scans make is read from
        where they left it, which nobody looks at. It is a cast to its own dtype, which no pass may leave out."""
        r = self.rows[n]
        return self.row(Row("apply", "Cast", (n,), r.dtype, r.axes)) if r.op in ("fold", "scan") else n


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
