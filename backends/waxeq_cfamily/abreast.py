"""Sweeps of several meanings as those of one walk: what they have in common is made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from waxeq_cfamily.joint import renamed
from waxeq_cfamily.sweeps import Sweep, index, merged, place
from waxeq_cfamily.values import Index, Row, Values, reindexed

_AXES = 10
"""Axes that have names which come in the order of their places."""


@dataclass(frozen=True)
class Abreast:
    """The sweeps of several meanings: the last make the `results`, each those of the meanings with these numbers."""

    sweeps: tuple[Sweep, ...]
    results: tuple[tuple[int, ...], ...]


def abreast(parts: Sequence[Sequence[Sweep]], operands: Sequence[Sequence[int]]) -> Abreast | None:
    """The sweeps of some meanings, each once, those that make their results last; `operands[i]` are the numbers of the
    operands of meaning i among those of all. None where one of them has no sweep in common with those before it.

    Results of the same size are made by one sweep. What is a result and is read by other sweeps is made for those, like
    what is none, and copied from there: of tiles that overlap each makes its own.
    """
    if len({len(sweeps[-1].axes) for sweeps in parts}) > 1 or len(parts[0][-1].axes) > _AXES:
        return None
    made = _Made(1 + max((n for row in operands for n in row), default=-1))
    ends: list[tuple[int, Values]] = []
    for sweeps, numbers in zip(parts, operands, strict=True):
        end, new = made.add(sweeps, numbers)
        if ends and new == len(sweeps):
            return None
        ends.append((end, sweeps[-1].values))
    return made.ordered([(n, renamed(v.out, _names(sweeps[-1]))) for (n, v), sweeps in zip(ends, parts, strict=True)])


@dataclass
class _Made:
    """Sweeps so far, their axes called by their places; what they load from number `own` on are earlier ones."""

    own: int
    sweeps: list[Sweep] = field(default_factory=list)
    _number: dict[tuple[tuple[int, ...], tuple[Row, ...]], int] = field(default_factory=dict)

    def add(self, sweeps: Sequence[Sweep], operands: Sequence[int]) -> tuple[int, int]:
        """The number of the last sweep of a meaning, and how many there were none of before."""
        numbers: list[int] = []
        before = len(self.sweeps)
        for s in sweeps:
            called = self._called(s, sweeps, operands, numbers)
            key = called.sizes(), called.values.rows
            if key not in self._number:
                self._number[key] = len(self.sweeps)
                self.sweeps.append(called)
            numbers.append(self._number[key])
        return numbers[-1], len(self.sweeps) - before

    def _called(self, s: Sweep, sweeps: Sequence[Sweep], operands: Sequence[int], numbers: Sequence[int]) -> Sweep:
        """A sweep of a meaning as one of all; `numbers`: those of the sweeps before it."""
        names, rows = _names(s), list[Row]()
        for r in s.values.rows:
            moved = reindexed(r, lambda i: renamed(i, names))
            if r.op == "load":
                n, where = r.name
                m = n - len(operands)
                seen = (
                    (operands[n], renamed(where, names))
                    if m < 0
                    else (self.own + numbers[m], _seen(r, sweeps[m], names))
                )
                moved = replace(moved, name=seen)
            rows.append(replace(moved, axes=frozenset(names[k] for k in r.axes)))
        sizes = {names[k]: n for k, n in s.values.sizes.items()}
        reads = {numbers[m]: places for m, places in s.reads.items()}
        return Sweep(Values(tuple(rows), sizes, Index()), tuple(names.values()), reads)

    def ordered(self, ends: Sequence[tuple[int, Index]]) -> Abreast:
        """The sweeps that others read, then those of the results, each written to its place."""
        level: list[int] = []  # what may be one loop comes side by side: all that are as far from operands
        for s in self.sweeps:
            level.append(1 + max((level[m] for m in s.reads), default=0))
        read = sorted({m for s in self.sweeps for m in s.reads}, key=lambda n: (level[n], n))
        new = {n: i for i, n in enumerate(read)}
        groups: dict[tuple[int, ...], list[tuple[int, Sweep]]] = {}
        for i, (n, out) in enumerate(ends):
            s = self._copied(n) if n in new else self.sweeps[n]
            groups.setdefault(s.sizes(), []).append((i, replace(s, values=replace(s.values, out=out))))
        last = [merged([s for _, s in group]) for group in groups.values()]
        sweeps = (*(self.sweeps[n] for n in read), *(s for s, _ in last))
        results = (tuple(group[at][0] for at in order) for group, (_, order) in zip(groups.values(), last, strict=True))
        return Abreast(tuple(self._renumbered(s, new) for s in sweeps), tuple(results))

    def _copied(self, n: int) -> Sweep:
        """The sweep that copies another one."""
        s = self.sweeps[n]
        dtype = s.values.rows[s.values.root].dtype
        row = Row("load", (self.own + n, index([(k, 0) for k in s.axes])), (), dtype, frozenset(s.axes))
        values = Values((row,), {k: s.values.sizes[k] for k in s.axes}, Index())
        return Sweep(values, s.axes, {n: tuple((0, 0) for _ in s.axes)})

    def _renumbered(self, s: Sweep, new: Mapping[int, int]) -> Sweep:
        """A sweep with those that it reads called by their new numbers."""

        def called(r: Row) -> Row:
            if r.op != "load" or r.name[0] < self.own:
                return r
            return replace(r, name=(self.own + new[r.name[0] - self.own], r.name[1]))

        values = replace(s.values, rows=tuple(map(called, s.values.rows)))
        return replace(s, values=values, reads={new[m]: places for m, places in s.reads.items()})


def _names(s: Sweep) -> dict[str, str]:
    """Names of axes that tell their places."""
    return {k: f"p{i}" for i, k in enumerate(s.axes)}


def _seen(r: Row, made: Sweep, names: Mapping[str, str]) -> Index:
    """How a load sees an earlier sweep whose axes are called by their places."""
    found = place(r.name[1], sorted(made.axes))
    assert found is not None, "what is read otherwise is no sweep"
    return index([(names[found[k][0]], found[k][1]) for k in made.axes])
