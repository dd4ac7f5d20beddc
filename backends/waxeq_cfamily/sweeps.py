"""A meaning as loops one after another, of which later ones read earlier ones at several places around their own:
stencils that are swept again and again, filters of filtered images, chains of differences.

As one loop, the first of n sweeps over five points is computed at 2 n^2 + 2 n + 1 places for every element of the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from waxeq.backend.call import View, operand
from waxeq.basis.typing import types
from waxeq.basis.ways import swept
from waxeq.ir.term import Term, postorder
from waxeq_cfamily.resolved import resolve
from waxeq_cfamily.settled import settled
from waxeq_cfamily.values import Guard, Index, Row, Unsupported, Values, reindexed, renumbered

_FAR = 1 << 24
"""Steps between axes of what an earlier loop makes, as later ones see it: more than any axis of it has places, so that
one number says where on each of them an element is."""

_MOST = 2000
"""Rows that a loop may have: a text of more takes a compiler minutes."""

Places = tuple[int, int]
"""The first and the last of some places along an axis, from a loop's own place on."""


@dataclass(frozen=True)
class Sweep:
    """One loop: its values, its axes in the order of those of the result (the slowest first), and of each earlier loop
    that it reads, by number, at which places along each axis. Loads of operands after the meaning's own are reads of
    earlier loops; their indices are told apart by `place`."""

    values: Values
    axes: tuple[str, ...]
    reads: Mapping[int, tuple[Places, ...]]

    def sizes(self) -> tuple[int, ...]:
        return tuple(self.values.sizes[k] for k in self.axes)


def sweeps(meaning: Term, operands: Sequence[View], out: View, sizes: Mapping[str, int]) -> tuple[Sweep, ...]:
    """The loops that a meaning is made of, the one that makes the result last. Raises Unsupported where there is only
    one, or where later ones do not read earlier ones at fixed places along the same axes."""
    terms = cut(meaning, len(operands))
    if len(terms) < 2 or max(sizes.values(), default=0) >= _FAR // 2:
        raise Unsupported("one loop")
    order = tuple(k for k, _ in sorted(zip(out.axes, out.strides, strict=True), key=lambda row: -row[1]))
    seen = [_far(tuple(sorted(types(t)[t].axes)), sizes, types(t)[t].dtype) for t in terms[:-1]]
    axes: dict[int, tuple[str, ...]] = {len(terms) - 1: order}
    found: list[Sweep] = []
    for n in range(len(terms) - 1, -1, -1):
        values = resolve(terms[n], (*operands, *seen[:n]), out if n == len(terms) - 1 else seen[n], sizes)
        values = settled(values, beside=True)
        if values.folded or values.positions or n not in axes or len(values.rows) > _MOST:
            raise Unsupported("a loop that is no sweep")
        values = replace(values, sizes={**values.sizes, **{k: sizes[k] for k in axes[n]}})
        sweep = _reading(values, axes, n, [v.axes for v in seen], len(operands))
        found.append(sweep)
    return tuple(reversed(found))


def cut(meaning: Term, first: int) -> tuple[Term, ...]:
    """The terms of the loops, in order: what is computed and looked at in several ways. What earlier ones make are
    operands, numbered from `first` on."""
    kinds, made = types(meaning), swept(meaning)
    leaves = {t: operand(first + i, kinds[t].axes, kinds[t].dtype) for i, t in enumerate(made)}
    done: dict[Term, Term] = {}
    for t in postorder(meaning):
        args = (leaves.get(a, done.get(a)) if isinstance(a, Term) else a for a in t.args)
        done[t] = Term(t.head, *args)
    return (*(done[t] for t in made), done[meaning])


def _far(axes: tuple[str, ...], sizes: Mapping[str, int], dtype: str) -> View:
    """How later loops see what an earlier one makes."""
    return View(axes, tuple(sizes[k] for k in axes), tuple(_FAR**i for i in range(len(axes))), dtype)


def place(index: Index, axes: Sequence[str]) -> dict[str, tuple[str, int]] | None:
    """Of each axis of what an earlier loop made (`axes`, as they are seen), which axis of the later loop it is read
    along, and how many places on. None where it is not read at its own place and some fixed number on."""
    rest, moved = index.const, dict[str, int]()
    for k in axes:
        moved[k] = (rest + _FAR // 2) % _FAR - _FAR // 2
        rest = (rest - moved[k]) // _FAR
    along = {c: a for a, c in index.terms if isinstance(a, str)}
    if rest or len(along) != len(index.terms) or along.keys() != {_FAR**i for i in range(len(axes))}:
        return None
    return {k: (along[_FAR**i], moved[k]) for i, k in enumerate(axes)}


def index(at: Sequence[tuple[str, int]]) -> Index:
    """How an element of what an earlier loop made is seen, whose axes come in the order of their names: of each,
    which axis of the later loop it is read along, and how many places on."""
    terms = ((k, _FAR**i) for i, (k, _) in enumerate(at))
    return Index((), sum(moved * _FAR**i for i, (_, moved) in enumerate(at))).plus(Index(tuple(terms)))


def _reading(
    values: Values, axes: dict[int, tuple[str, ...]], n: int, seen: Sequence[tuple[str, ...]], operands: int
) -> Sweep:
    """Loop n; the axes of what it reads are noted. Raises Unsupported."""
    reads: dict[int, tuple[Places, ...]] = {}
    for r in values.rows:
        if r.op != "load" or r.name[0] < operands:
            continue
        m = r.name[0] - operands
        found = place(r.name[1], seen[m])
        here = {} if found is None else {a: (k, d) for k, (a, d) in found.items()}
        if here.keys() != set(axes[n]):
            raise Unsupported("a loop that is read at other than its own places")
        own = tuple(here[a][0] for a in axes[n])
        if axes.setdefault(m, own) != own:
            raise Unsupported("a loop that is read along several axes")
        at = [here[a][1] for a in axes[n]]
        before = reads.get(m, tuple((d, d) for d in at))
        reads[m] = tuple((min(low, d), max(high, d)) for (low, high), d in zip(before, at, strict=True))
    return Sweep(values, axes[n], reads)


def reach(found: Sequence[Sweep], results: int = 1) -> tuple[tuple[Places, ...], ...]:
    """Of every loop, at which places around one of the `results`, which are the last loops, it is needed, along each
    axis."""
    last, own = len(found) - 1, tuple((0, 0) for _ in found[-1].axes)
    needs: dict[int, tuple[Places, ...]] = dict.fromkeys(range(last, last - results, -1), own)
    for n in range(last, -1, -1):
        for m, places in found[n].reads.items():
            own = [(a + c, b + d) for (a, b), (c, d) in zip(needs[n], places, strict=True)]
            before = needs.get(m, tuple(own))
            needs[m] = tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(before, own, strict=True))
    return tuple(needs[n] for n in range(len(found)))


def shifted(found: Sequence[Sweep]) -> Iterator[int]:
    """The axes, by number, along which some loop is read at other places than its own, or is longer than another."""
    sizes = [s.sizes() for s in found]
    for i in range(len(found[-1].axes)):
        beside = any(places[i] != (0, 0) for s in found for places in s.reads.values())
        if beside or any(a[i] != b[i] for a, b in pairwise(sizes)):
            yield i


def merged(sweeps: Sequence[Sweep]) -> tuple[Sweep, tuple[int, ...]]:
    """Sweeps over the same places, along the same axes, as one, and of which of them each of its results is."""
    numbers: dict[Row, int] = {}
    ends = list[int]()
    for s in sweeps:
        new = list[int]()
        for r in s.values.rows:
            new.append(numbers.setdefault(renumbered(r, dict(enumerate(new))), len(numbers)))
        ends.append(new[-1])
    first = ends.index(len(numbers) - 1)  # whose last row was added last
    order = (first, *(i for i in range(len(sweeps)) if i != first))
    others = tuple((ends[i], sweeps[i].values.out) for i in order[1:])
    reads: dict[int, tuple[Places, ...]] = {}
    for m, places in ((m, places) for s in sweeps for m, places in s.reads.items()):
        pairs = zip(reads.get(m, places), places, strict=True)
        reads[m] = tuple((min(a, c), max(b, d)) for (a, b), (c, d) in pairs)
    values = Values(tuple(numbers), sweeps[first].values.sizes, sweeps[first].values.out, others)
    return Sweep(values, sweeps[first].axes, reads), order


@dataclass(frozen=True)
class Jammed:
    """What values are at several places along an axis at once, where all of `inside` hold, and of each result which of
    theirs it is, at which of the places."""

    values: Values
    results: tuple[tuple[int, int], ...]
    inside: tuple[Guard, ...]


def jammed(values: Values, axis: str, many: int, last: str | None) -> Jammed:
    """Values at so many places along an axis, one after another: what several of these have in common is one row. The
    guards of loads that are the same all along the `last` axis hold: those of two places differ; with None each
    has its own."""
    numbers: dict[Row, int] = {}
    inside: dict[Guard, None] = {}
    found = list[tuple[int, Index, tuple[int, int]]]()
    for by in range(many):
        new = list[int]()
        for r in values.rows:
            there = reindexed(renumbered(r, dict(enumerate(new))), lambda i, by=by: i.moved(axis, by))
            along = tuple(g for g in there.guards if r.op != "load" or last is None or not _apart(g[0], last))
            inside |= dict.fromkeys(g for g in there.guards if g not in along)
            new.append(numbers.setdefault(replace(there, guards=along), len(numbers)))
        found += ((new[n], where.moved(axis, by), (i, by)) for i, (n, where) in enumerate(values.results))
    found.sort(key=lambda result: result[0] != len(numbers) - 1)
    (_, out, _), *others = found
    results = tuple((n, where) for n, where, _ in others)
    return Jammed(
        Values(tuple(numbers), values.sizes, out, results), tuple(which for _, _, which in found), tuple(inside)
    )


def _apart(where: Index, axis: str) -> bool:
    """Whether an index is plain, and the same all along an axis."""
    return all(isinstance(a, str) and a != axis for a, _ in where.terms)
