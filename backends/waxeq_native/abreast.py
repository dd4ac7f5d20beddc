"""Walks of sweeps of several calls as one function of several results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import islice

from waxeq.backend.call import View
from waxeq.backend.kernel import Features
from waxeq_cfamily.abreast import abreast
from waxeq_cfamily.jammed import Rows
from waxeq_cfamily.past import in_lines
from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.sliding import Row, Sought, function, sought
from waxeq_cfamily.taken import NAME, Named
from waxeq_cfamily.values import Unsupported
from waxeq_cfamily.walks import Walk

CACHED = 1 << 23
"""Bytes of all arrays up to which they may lie in a cache that gives lines as fast as they are computed on."""


@dataclass(frozen=True)
class Style:
    """How a kernel writes functions: their C names, where they end, whether narrow floats are rounded only where it
    matters, and whether results are written past the cache."""

    functions: Mapping[tuple[str, str], str]
    limits: Mapping[tuple[str, str], tuple[float, str]]
    excess: bool
    streams: bool = False


@dataclass(frozen=True, eq=False)
class Slid:
    """The walk of the sweeps of a call, so that it can be written together with others: how it is `written`, what it
    `reads`, the `bytes` of its result and its `slot` among the arguments, how many tiles of a walk are worth a chunk,
    and the features of one that moves so many bytes."""

    walk: Walk
    style: Style
    reads: Sequence[tuple[View, Hashable]]
    threads: int
    bytes: int
    slot: int
    grain: Callable[[Walk], int]
    features: Callable[[Walk, int], Features]

    @property
    def dtypes(self) -> Sequence[str]:
        """Of its operands."""
        return [v.dtype for v, _ in self.reads]


@dataclass(frozen=True)
class Abreast:
    """One function for several walks of sweeps. Its arguments are the addresses of theirs. What they read is read again
    after results were written: none of these may lie where an operand does."""

    rows: tuple[Row, ...]
    walk: Walk
    first: Slid
    replaces: frozenset[int] = frozenset()

    @cached_property
    def text(self) -> Named:
        return Named(function(self.rows, NAME))

    @property
    def tasks(self) -> int:
        return self.walk.tasks()

    @property
    def grain(self) -> int:
        return self.first.grain(self.walk)

    def features(self, moved: int) -> Features:
        """What the cost model may know of it, where it moves so many bytes."""
        return self.first.features(self.walk, moved)


@lru_cache(maxsize=1 << 10)
def slid(walks: tuple[Slid, ...], operands: tuple[tuple[int, ...], ...], first: int) -> Abreast | None:
    """The function of some walks; `operands[i]` are the numbers of those of walk i among the operands of all, and
    `first` is the place of a walk's first operand among its arguments. None where they are better written apart."""
    one = abreast([w.walk.sweeps for w in walks], operands)
    if one is None or any(w.style != walks[0].style for w in walks):
        return None
    places: dict[int, tuple[str, tuple[View, Hashable]]] = {}
    for i, (w, numbers) in enumerate(zip(walks, operands, strict=True)):
        for n, m in enumerate(numbers):
            view, shared = w.reads[n]
            places.setdefault(m, (f"((char *const *)args[{i}])[{first + n}]", (view, (i, shared))))
    texts, reads = zip(*(places[m] for m in sorted(places)), strict=True)
    results = [f"((char *const *)args[{i}])[{walks[i].slot}]" for group in one.results for i in group]
    moved = sum(v.bytes for v, _ in reads) + sum(w.bytes for w in walks)
    try:
        walk = Walk.of(one.sweeps, walks[0].threads, len(one.results))
        rows = written(walk, walks[0].style, texts, reads, results, moved)
    except Unsupported:
        return None
    return Abreast(rows, walk, walks[0])


def written(
    walk: Walk, style: Style, texts: Sequence[str], reads: Sequence[tuple[View, Hashable]], results: Sequence[str],
    moved: int,
) -> tuple[Row, ...]:  # fmt: skip
    """What writes the text of each sweep of a walk that moves so many bytes. `texts`: of the addresses of what it
    `reads`, the views of which those of one buffer have equal names; `results`: those of what it makes. Raises
    Unsupported."""
    dtypes = [v.dtype for v, _ in reads]
    asked: tuple[Sought, ...] = ()
    if moved > CACHED:
        asked = sought(walk, [v for v, _ in reads], [shared for _, shared in reads], results)
    ends = tuple(x for row in asked if row.write for x in row.texts) if style.streams else ()
    asked = tuple(row for row in asked if not (row.write and style.streams))
    found, left = [], iter(results)
    for turn, group in enumerate(walk.groups):
        s = walk.space(group)
        if any(r.dtype not in CTYPES for r in s.values.rows):
            raise Unsupported("a dtype that C has not")
        past = style.streams and group[0] >= walk.first and in_lines(s.values, walk.inner(group[0])[-1])
        first, *others = islice(left, len(s.values.results)) if group[0] >= walk.first else [""] * len(s.values.results)
        row = Row(
            s, style.functions, texts, first, dtypes, limits=style.limits, others=others,
            excess=style.excess, walk=walk, turn=turn, own=len(texts), sought=asked,
            past=past, ends=ends if past and group[-1] == len(walk.sweeps) - 1 else (),
        )  # fmt: skip
        row.check()
        jammed = walk.jammed(group)
        if jammed is not None:
            several = walk.space(group, jammed.values)
            named = {f.name: getattr(row, f.name) for f in fields(row)}
            found.append(Rows(**{**named, "space": several, "one": replace(row, sought=(), ends=())}, jammed=jammed))
            continue
        found.append(row)
    return tuple(found)
