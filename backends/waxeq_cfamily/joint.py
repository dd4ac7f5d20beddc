"""Several nests over the same points as one nest of several results: what they have in common is computed once. Points
are those of the results where nests are element-wise, of what all read where they are folds."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.split import piece
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Atom, Index, Row, Values, reindexed, renumbered

STREAMS = 12
"""Arrays that one loop goes through at most: a core looks ahead for about so many."""
_ROWS = 256
"""Values that one loop computes at most: compilers take more than their share of time for longer ones."""
_NEAR = 2 << 20
"""Bytes up to which what one loop has read is in a near cache when the next reads it: that alone is no reason then."""
_CHEAP = 8
"""Cheap functions that are worth as much as a costly one: computing them again takes longer than having one loop more
to wait for saves."""
_HELD = 1 << 15
"""Bytes of what folds are kept in that one loop has at most: the first cache holds them, and what is read."""
_COMMUTES = frozenset({"Add", "Mul"})


@dataclass(frozen=True)
class Joint:
    """`values` has the results of several nests, `results[i]` being of which nest its i-th result is."""

    values: Values
    results: tuple[int, ...]


def joint(parts: Sequence[Values], operands: Sequence[Sequence[int]]) -> Joint | None:
    """The nests as one; `operands[i]` are the numbers of the operands of nest i among those of all. None where they
    have other points, too many arrays, or one of them little to gain from those before: no large operand that they read
    as well, no costly function that they compute, and few cheap ones."""
    return _together(parts, [_names(parts[0], v) for v in parts], operands)


def folded(parts: Sequence[Space], operands: Sequence[Sequence[int]]) -> tuple[Space, tuple[int, ...]] | None:
    """The walks of nests that fold what all of them read, as one walk of several results, and of which nest each is.
    None where that is not one loop, or one has little to gain from those before."""
    names = [_paired((parts[0].values, operands[0]), (s.values, row)) for s, row in zip(parts, operands, strict=True)]
    one = _together([s.values for s in parts], names, operands)
    if one is None:
        return None
    way = _way(parts, [n for n in names if n is not None])
    if way is None:
        return None
    s = replace(way, values=one.values)
    loops = [x for x in s.stages if x.folds]
    plain = len(loops) == 1 and not any(x.kept for x in s.stages) and s.scratch <= _HELD
    return (s, one.results) if plain else None


def _way(parts: Sequence[Space], names: Sequence[Mapping[str, str]]) -> Space | None:
    """How all nests can be walked: as each is alone, or in the pieces in which some are folded. None where they go
    other ways. The axes have the names of the first."""
    ways = [
        replace(
            s,
            outer=tuple(n[k] for k in s.outer),
            tiles={n[k]: w for k, w in s.tiles.items()},
            vectors=tuple(n[k] for k in s.vectors),
        )
        for s, n in zip(parts, names, strict=True)
    ]
    if any(s.across or s.held or s.products or s.vectors != ways[0].vectors for s in ways):
        return None
    if all((s.outer, s.tiles) == (ways[0].outer, ways[0].tiles) for s in ways):
        return ways[0]
    folds = [{n[k] for k in s.values.folded} for s, n in zip(parts, names, strict=True)]
    cuts = {(k, w) for s, own in zip(ways, folds, strict=True) for k, w in s.tiles.items() if k in own}
    if len(cuts) != 1:
        return None
    ((axis, width),) = cuts
    if axis in ways[0].vectors or any(axis in own and axis not in s.tiles for s, own in zip(ways, folds, strict=True)):
        return None
    return replace(ways[0], outer=(axis,), tiles={axis: width})


def _together(
    parts: Sequence[Values], names: Sequence[Mapping[str, str] | None], operands: Sequence[Sequence[int]]
) -> Joint | None:
    """The rows of all nests, their axes by name of those of the first."""
    made = _Rows(parts[0].sizes)
    ends: list[tuple[int, Index]] = []
    for values, called, numbers in zip(parts, names, operands, strict=True):
        if called is None:
            return None
        root, gains = made.add(values, called, numbers)
        if ends and not gains:
            return None
        ends.append((root, renamed(values.out, called)))
    streams = {r.name[0] for r in made.rows if r.op == "load"}
    if len(streams) + len(ends) > STREAMS or len(made.rows) > _ROWS:
        return None
    last = len(made.rows) - 1  # the root of the nest that added it: nothing reads it
    first = next((i for i, (n, _) in enumerate(ends) if n == last), None)
    if first is None:
        return None
    order = (first, *(i for i in range(len(ends)) if i != first))
    others = tuple(ends[i] for i in order[1:])
    return Joint(Values(tuple(made.rows), parts[0].sizes, ends[first][1], others), order)


@dataclass
class _Rows:
    """Rows of several nests over the same axes; equal ones are one."""

    sizes: Mapping[str, int]
    rows: list[Row] = field(default_factory=list)
    _number: dict[Row, int] = field(default_factory=dict)

    def add(self, values: Values, names: Mapping[str, str], operands: Sequence[int]) -> tuple[int, bool]:
        """The number of a nest's root, and whether it shares with earlier ones what is worth sharing."""
        new, shared = dict[int, int](), dict[int, int]()
        before = len(self.rows)
        for n, r in enumerate(values.rows):
            moved = renumbered(reindexed(r, lambda i: renamed(i, names)), new)
            moved = replace(moved, axes=frozenset(names[k] for k in r.axes), folded=tuple(names[k] for k in r.folded))
            if r.op == "load":
                moved = replace(moved, name=(operands[r.name[0]], moved.name[1]))
            new[n] = self._of(moved)
            if new[n] < before:
                shared[new[n]] = self._worth(moved)
        return new[values.root], sum(shared.values()) >= _CHEAP

    def _of(self, r: Row) -> int:
        key = replace(r, args=tuple(sorted(r.args))) if r.op == "apply" and r.name in _COMMUTES else r
        if key not in self._number:
            self._number[key] = len(self.rows)
            self.rows.append(r)
        return self._number[key]

    def _worth(self, r: Row) -> int:
        """What it is worth, in cheap functions, to have a row once, which is another value at each point: costly ones
        and what comes from afar are a reason of their own."""
        every = math.prod(self.sizes.values())
        if math.prod(self.sizes[k] for k in r.axes) != every:
            return 0
        far = r.op == "load" and every * numpy_dtype(r.dtype).itemsize > _NEAR
        return _CHEAP if far or r.costly else int(r.op == "apply")


def _names(first: Values, other: Values) -> dict[str, str] | None:
    """The axes of another nest by name of those of the first that are as long and lie in its result as they lie in the
    other's; None where they do not."""
    a, b = _placed(first), _placed(other)
    return dict(zip(b, a, strict=True)) if list(a.values()) == list(b.values()) else None


def _paired(first: tuple[Values, Sequence[int]], other: tuple[Values, Sequence[int]]) -> dict[str, str] | None:
    """The axes of another nest by name of those of the first, as both go through an operand that has all of them; the
    numbers of operands come with each. Pieces of an axis are called after it."""
    for a in _whole(*first):
        for b in _whole(*other):
            if a[0] == b[0] and sorted(a[1]) == sorted(b[1]):
                names = {b[1][step]: a[1][step] for step in b[1]}
                return {**names, **{piece(k): piece(own) for k, own in names.items()}}
    return None


def _whole(values: Values, operands: Sequence[int]) -> Iterator[tuple[Hashable, dict[tuple[int, int], str]]]:
    """Loads that have every axis, each with steps of its own: what is read, and the axes by step and size."""
    for r in values.rows:
        if r.op != "load" or r.guards or r.axes != values.sizes.keys():
            continue
        steps = {(c, values.sizes[k]): k for k, c in r.name[1].terms if isinstance(k, str)}
        if len(steps) == len(r.name[1].terms) == len(values.sizes):
            yield (operands[r.name[0]], r.name[1].const), steps


def _placed(values: Values) -> dict[str, tuple[int | None, int]]:
    """The step and the size of each axis, the shortest steps first."""
    rows = {k: (values.out.stride(k), n) for k, n in values.sizes.items()}
    return dict(sorted(rows.items(), key=lambda row: (row[1][0] or 0, row[1][1], row[0])))


def renamed(i: Index, names: Mapping[str, str]) -> Index:
    """An index over axes of other names."""

    def atom(a: Atom) -> Atom:
        if isinstance(a, str):
            return names[a]
        return a if a[0] == "row" else (a[0], renamed(a[1], names), a[2])

    made = Index(const=i.const)
    for a, c in i.terms:
        made = made.plus(Index(((atom(a), c),)))
    return made
