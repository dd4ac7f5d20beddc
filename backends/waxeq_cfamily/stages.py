"""Stages: which values of a nest are computed in one loop, and which are kept for a later one.

For one point of the outer axes, folds must be complete before what uses them begins. A value that is needed in several
stages is computed again, or kept in a small buffer when it is costly; what does not depend on the inner axes is a
scalar. Stages over the same loops at the same level are one loop.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.compared import compared
from waxeq_cfamily.products import Product
from waxeq_cfamily.scalars import NARROW, carried
from waxeq_cfamily.values import Index, Values, chain, reach

TURNED: Mapping[int, str] = MappingProxyType(
    {1: "wx_turned_bytes", 2: "wx_turned_shorts", 4: "wx_turned", 8: "wx_turned_long"}
)
"""C functions that turn squares in registers, by the bytes of an element."""
_KEPT = 1 << 17
"""Bytes that one kept value may take: more would leave the cache, and computing it again is cheaper."""
_NEAR = 1 << 15
"""Bytes of a row of the result that is still in the first cache when it is read again."""
_MANY = 2
"""Operands of which a value is made that is read again where the result will be: reading them all anew takes longer.
NumPy's arrays begin anywhere in a line of the cache, results with one: of what is read there, half is as fast."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One loop nest: `order` of its axes, the folds it makes, the values it keeps, the numbers of the `results` that
    it writes. Its last loop is made of vectors when `straight`. Or no loop but a `product` of matrices."""

    level: int
    order: tuple[str, ...]
    folds: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    straight: bool = True
    product: Product | None = None

    @property
    def result(self) -> bool:
        """Whether it writes a result."""
        return bool(self.results)


@dataclass(frozen=True)
class Space:
    """How a nest is walked: `outer` axes, the slowest first, one point at a time; `tiles` cut an axis in pieces, one of
    which is inner at a time; the first of `vectors` that a nest has is its innermost loop. What lies side by side along
    `across`, not the vector, is read into a buffer first. `products` are made as a whole. `held`: so many rows' folds
    over pairs stay in registers. `rewrites`: a value may lie where the result will. `looked`: rows share positions."""

    values: Values
    outer: tuple[str, ...]
    tiles: Mapping[str, int] = field(default_factory=dict)
    vectors: tuple[str, ...] = ()
    across: str | None = None
    products: tuple[Product, ...] = ()
    held: int = 0
    rewrites: bool = False
    looked: bool = False

    @property
    def vector(self) -> str | None:
        return self.vectors[0] if self.vectors else None

    @cached_property
    def inner(self) -> tuple[str, ...]:
        """Axes that are loops of stages, the vector axes last, those with the longest steps first."""
        inner = [k for k in self.values.sizes if k not in self.outer or k in self.tiles]
        late = {k: len(self.vectors) - i for i, k in enumerate(self.vectors)}
        return tuple(sorted(inner, key=lambda k: (late.get(k, 0), -reach(self.values, k), k)))

    def width(self, axis: str) -> int:
        """How much of an axis one point of the outer axes takes."""
        return min(self.tiles.get(axis, self.values.sizes[axis]), self.values.sizes[axis])

    def extent(self, axis: str) -> int:
        """How many places of an outer axis there are: pieces of one that is cut in pieces."""
        return -(-self.values.sizes[axis] // self.tiles.get(axis, 1))

    def points(self, without: Collection[str] = ()) -> int:
        """How many points the outer axes have but for some of these: what depends on no others is made as often."""
        return math.prod(self.extent(k) for k in self.outer if k not in without)

    @cached_property
    def turned(self) -> frozenset[int]:
        """Loads that are made along `across`."""
        if self.across is None:
            return frozenset()
        steps = {n: r.name[1] for n, r in enumerate(self.values.rows) if r.op == "load"}
        return frozenset(
            n for n, i in steps.items()
            if i.stride(self.across) == 1 and self.vector is not None and i.stride(self.vector) not in (0, 1)
        )  # fmt: skip

    def under(self, row: int) -> frozenset[str]:
        """The inner axes that a row depends on."""
        return self._under[row]

    @cached_property
    def written(self) -> frozenset[str]:
        """The inner axes that the result has; its value may be the same along some."""
        return self.has(self.values.out)

    def has(self, out: Index) -> frozenset[str]:
        """The inner axes that a result at a place has."""
        return frozenset(a for a, _ in out.terms if isinstance(a, str)) & frozenset(self.inner)

    @cached_property
    def _under(self) -> tuple[frozenset[str], ...]:
        inner = frozenset(self.inner)
        return tuple(r.axes & inner for r in self.values.rows)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """In the order in which they run."""
        return self._scheduled[0]

    @property
    def rewritten(self) -> int | None:
        """The kept row that lies where the result will, until the last stage."""
        return self._scheduled[1]

    @cached_property
    def _scheduled(self) -> tuple[tuple[Stage, ...], int | None]:
        scheduler = _Scheduler(self)
        return scheduler.stages(), scheduler.rewritten

    @cached_property
    def buffered(self) -> Mapping[int, tuple[str, ...]]:
        """The rows that lie in buffers, with the axes of those in order: products have their columns side by side, one
        that is `crossed` its rows."""
        rows = [n for s in self.stages for n in (*s.kept, *(f for f in s.folds if self.under(f)))]
        rows += [p.fold for p in self.products if not self.direct(p)]
        last = {p.fold: p.rows if p.fold in self.crossed else p.columns for p in self.products}
        axes = {n: [k for k in self.inner if k in self.under(n)] for n in rows}
        return {n: tuple(sorted(own, key=lambda k, n=n: k == last.get(n))) for n, own in axes.items()}

    def direct(self, p: Product) -> bool:
        """Whether a product is the result itself, and is made where that lies."""
        return p.fold == self.values.root and self.values.out.stride(p.columns) == 1

    @cached_property
    def crossed(self) -> frozenset[int]:
        """The product whose rows are the vector of all that reads it: its tile is turned in cache, once."""
        p = self.products[0] if len(self.products) == 1 else None
        if p is None or p.rows != self.vector or self.direct(p):
            return frozenset()
        return frozenset({p.fold} if numpy_dtype(self.values.rows[p.fold].dtype).itemsize == 4 else ())

    def bytes_of(self, row: int) -> int:
        """Bytes of a buffer for a row."""
        n = math.prod(self.width(k) for k in self.under(row))
        return n * numpy_dtype(carried(self.values.rows[row].dtype)).itemsize

    @property
    def scratch(self) -> int:
        """Bytes of all buffers; of what is turned there are two."""
        own = (n for n in (*self.buffered, *self.crossed) if n != self.rewritten)
        raw = (n for n in self.turned if self.values.rows[n].dtype in NARROW)
        return sum(-(-self.bytes_of(n) // 64) * 64 for n in own) + sum(self.bytes_of(n) // 2 + 64 for n in raw)


class _Scheduler:
    def __init__(self, space: Space) -> None:
        self.space, self.values = space, space.values
        self.rows = self.values.rows
        self.folds = self._heads()
        self.products = {p.fold: p for p in space.products}
        sides = (n for p in space.products for n in (p.left, p.right) if self.rows[n].op != "load")
        self.kept: set[int] = {*space.turned, *self.values.scans, *(n for n in sides if n not in self.folds)}
        self.rewritten: int | None = None
        self._known: dict[tuple[int, frozenset[str]], int] = {}

    def _heads(self) -> dict[int, tuple[tuple[str, ...], int]]:
        """The outermost fold of each chain."""
        chains = {n: chain(self.values, n) for n, r in enumerate(self.rows) if r.op == "fold"}
        inside: set[int] = set()
        for n, (_, source) in chains.items():
            m = self.rows[n].args[0]
            while m != source:
                inside.add(m)
                m = self.rows[m].args[0]
        return {n: c for n, c in chains.items() if n not in inside}

    def stages(self) -> tuple[Stage, ...]:
        self.rewritten = self._read_again()  # first: what it is made of, a division among that, is then computed once
        if self.rewritten is not None:
            self._keep(self.rewritten)
        while twice := self._computed_twice():
            self._keep(max(twice))
        return tuple(self._grouped())

    def _keep(self, row: int) -> None:
        self.kept.add(row)
        self._known.clear()

    # -- levels

    def level(self, row: int, over: frozenset[str]) -> int:
        """The first level at which a loop over these axes may use a row."""
        key = (row, over)
        if key not in self._known:
            if row in self.folds:
                self._known[key] = self.fold_level(row) + 1
            elif row in self.kept:
                own = self.space.under(row)
                later = over != own or self.rows[row].op == "scan"
                self._known[key] = self.inputs_level(row, own) + later
            else:
                self._known[key] = self.inputs_level(row, over)
        return self._known[key]

    def inputs_level(self, row: int, over: frozenset[str]) -> int:
        return max((self.level(a, over) for a in self.values.reads(self.rows[row])), default=0)

    def over(self, fold: int) -> frozenset[str]:
        """The loops a fold is made in."""
        axes, source = self.folds[fold]
        return self.space.under(source) | frozenset(axes)

    def fold_level(self, fold: int) -> int:
        if fold in self.products:
            p = self.products[fold]
            return max(self.level(n, frozenset()) for n in (p.left, p.right))
        return self.level(self.folds[fold][1], self.over(fold))

    # -- what is kept

    def _cone(self, start: int) -> Iterator[int]:
        """Rows that are computed where `start` is, itself included."""
        seen, stack = set(), [start]
        while stack:
            n = stack.pop()
            if n in seen:
                continue
            seen.add(n)
            yield n
            stack += [a for a in self.values.reads(self.rows[n]) if a not in self.folds and a not in self.kept]

    def _sites(self) -> Iterator[tuple[tuple[int, frozenset[str]], int]]:
        """(loop, row whose value it needs): where folds are made, values kept and the result written."""
        for f, (_, source) in self.folds.items():
            if f in self.products:
                continue
            yield (self.fold_level(f), self.over(f)), source
        for n in self.kept:
            yield self._place(n), n
        for n, out in self.values.results:
            under = self.space.has(out)
            yield (self.level(n, under), under), n

    def _place(self, kept: int) -> tuple[int, frozenset[str]]:
        """The loop in which a kept row is made."""
        under = self.space.under(kept)
        return self.inputs_level(kept, under), under

    def _computed_twice(self) -> list[int]:
        """Costly rows that would be computed in several loops, or again and again in one; and products that a loop must
        find as another had them."""
        places: dict[int, set[tuple[int, frozenset[str]]]] = {}
        for place, start in self._sites():
            if start in self.folds or (start in self.kept and place != self._place(start)):
                continue
            for n in self._cone(start):
                if (
                    self.space.under(n)
                    and n not in self.folds
                    and n not in self.kept
                    and (self.rows[n].costly or compared(self.values, n))
                ):
                    places.setdefault(n, set()).add(place)
        again = {n for n, p in places.items() if len(p) > 1 or any(over > self.space.under(n) for _, over in p)}
        return [n for n in again if self.space.bytes_of(n) <= _KEPT]

    def _read_again(self) -> int | None:
        """The row made of most operands that an earlier loop has and the last one would make anew, where it may lie in
        the place of the result: where no loop reads later what the result may replace."""
        space, values, root = self.space, self.values, self.values.root
        v, dtype = space.vector, self.rows[root].dtype
        if not space.rewrites or v is None or space.inner != (v,) or space.tiles or self.kept or values.others:
            return None
        if values.out.stride(v) != 1 or carried(dtype) != dtype or space.bytes_of(root) > _NEAR:
            return None
        elements = self._elements(root)
        loops = {f: source for f, (_, source) in self.folds.items() if self.over(f) == {v}}
        cones = ((self.fold_level(f), n) for f, source in loops.items() for n in self._cone(source))
        made = {n: level for level, n in cones if self.level(n, frozenset((v,))) == level}
        found: dict[int, int] = {}
        for n in made.keys() & {*self._cone(root)}:
            r = self.rows[n]
            later = [root, *(source for f, source in loops.items() if self.fold_level(f) > made[n])]
            read = {m for start in later for m in self._loads(start, without=n)}
            alike = r.op == "apply" and r.dtype == dtype and self._elements(n) == elements
            if alike and all(self._elements(m) < elements for m in read):
                found[n] = len(self._loads(n))
        best = max(found, key=lambda n: (found[n], n), default=None)
        return None if best is None or found[best] < _MANY else best

    def _elements(self, row: int) -> int:
        return math.prod(self.values.sizes[k] for k in self.rows[row].axes)

    def _loads(self, start: int, without: int | None = None) -> set[int]:
        """What is read where a row is computed, another one being there."""
        seen: set[int] = set()
        stack = [start]
        while stack:
            n = stack.pop()
            if n not in seen and n != without and (n == start or n not in self.folds):
                seen.add(n)
                stack += self.values.reads(self.rows[n])
        return {n for n in seen if self.rows[n].op == "load"}

    # -- loops

    def _grouped(self) -> Iterator[Stage]:
        groups: dict[tuple[int, tuple[str, ...]], dict[str, list[int]]] = {}
        for f, (axes, _) in self.folds.items():
            if f in self.products:
                continue
            first = [k for k in self.space.inner if k in self.over(f)]
            v = next((k for k in self.space.vectors if k in first), None)
            free = [k for k in first if k not in axes and k != v]
            order = (*free, *(k for k in first if k in axes and k != v), *((v,) if v in first else ()))
            groups.setdefault((self.fold_level(f), order), {}).setdefault("folds", []).append(f)
        for n in sorted(self.kept):
            under = self.space.under(n)
            if self.rows[n].op == "scan":
                groups.setdefault((self.inputs_level(n, under), self._running(n)), {}).setdefault("kept", []).append(n)
                continue
            if n in self.space.turned:
                across = self.space.across
                order = tuple(sorted((k for k in self.space.inner if k in under), key=lambda k: k == across))
                groups.setdefault((self.inputs_level(n, under), order), {}).setdefault("kept", []).append(n)
                continue
            groups.setdefault(self._joined(groups, self.inputs_level(n, under), under), {}).setdefault(
                "kept", []
            ).append(n)
        stages = [Stage(self.fold_level(f), (), product=p) for f, p in self.products.items()]
        for (level, order), g in groups.items():
            ran = {k for n in g.get("kept", ()) if self.rows[n].op == "scan" for k in self.rows[n].folded}
            straight = bool(order) and order[-1] in {*self.space.vectors, self.space.across} - ran
            stages.append(Stage(level, order, tuple(g.get("folds", ())), tuple(g.get("kept", ())), straight=straight))
        yield from self._in_turn(sorted(stages, key=lambda s: (s.level, len(s.order), s.order)))
        if self.values.root in self.products and self.space.direct(self.products[self.values.root]):
            return
        yield from self._results()

    def _results(self) -> Iterator[Stage]:
        """Results over the same axes are written in one loop."""
        found: dict[frozenset[str], list[int]] = {}
        for i, (_, out) in enumerate(self.values.results):
            found.setdefault(self.space.has(out), []).append(i)
        for under, numbers in found.items():
            order = tuple(k for k in self.space.inner if k in under)
            straight = bool(order) and order[-1] in self.space.vectors
            level = max(self.level(self.values.results[i][0], under) for i in numbers)
            yield Stage(level, order, results=tuple(numbers), straight=straight)

    def _in_turn(self, stages: list[Stage]) -> Iterator[Stage]:
        """By level, and at one level what keeps a value before the loops of another order that read it."""
        maker = {n: i for i, s in enumerate(stages) for n in s.kept}
        needs = {i: {maker[n] for n in self._read(s) if n in maker} - {i} for i, s in enumerate(stages)}
        while needs:
            ready = next(i for i, before in needs.items() if not before & needs.keys())
            del needs[ready]
            yield stages[ready]

    def _read(self, stage: Stage) -> set[int]:
        """The kept rows that the loops of a stage look at."""
        starts = [self.folds[f][1] for f in stage.folds]
        starts += [a for n in stage.kept for a in self.values.reads(self.rows[n])]
        return {
            a for n in starts for row in self._cone(n) for a in (row, *self.values.reads(self.rows[row]))
        } & self.kept

    def _running(self, scan: int) -> tuple[str, ...]:
        """The order of loops of a scan: its own axis last, but for the vector axis where that is another."""
        axis, under = self.rows[scan].folded[0], self.space.under(scan)
        v = next((k for k in self.space.vectors if k in under), axis)
        rest = tuple(k for k in self.space.inner if k in under and k not in (axis, v))
        return (*rest, axis) if v == axis else (*rest, axis, v)

    def _joined(
        self, groups: Mapping[tuple[int, tuple[str, ...]], object], level: int, under: frozenset[str]
    ) -> tuple[int, tuple[str, ...]]:
        """A loop at that level over those axes: one that is there, or a new one."""
        for at, order in groups:
            if at == level and frozenset(order) == under:
                return at, order
        return level, tuple(k for k in self.space.inner if k in under)
