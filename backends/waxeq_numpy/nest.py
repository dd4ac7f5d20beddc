"""Loop nests: the iteration space of a fused kernel, its tiles, its stages and where each keeps its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from waxeq.backend.call import Call
from waxeq.basis.typing import TermType, types
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import numpy_dtype

FOLDS = ("Sum", "Red")
_LINE = 64
_kinds = lru_cache(maxsize=4096)(types)


@lru_cache(maxsize=4096)
def _terms(meaning: Term) -> tuple[Term, ...]:
    return tuple(postorder(meaning))


@dataclass(frozen=True, slots=True)
class Stage:
    """One array operation. `slot` is where its result lies in the workspace (byte offset), None for the result
    itself.
    """

    term: Term
    axes: frozenset[str]
    dtype: str
    folded: tuple[str, ...]
    source: tuple[Term, ...]
    slot: int | None
    hoisted: bool


@dataclass(frozen=True)
class Nest:
    """A meaning as loops: `space` is the order of axes, `tiles` the ranges (start, stop) taken along each tiled
    axis.
    """

    call: Call
    target: int

    @cached_property
    def kinds(self) -> dict[Term, TermType]:
        return _kinds(self.call.meaning)

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        return _terms(self.call.meaning)

    @cached_property
    def bound(self) -> frozenset[str]:
        return frozenset(t.args[t.head == "Red"] for t in self.terms if t.head in FOLDS)

    @cached_property
    def space(self) -> tuple[str, ...]:
        """The result's axes in its memory order, then the rest, those that operands keep closest together last."""
        out = self.call.out
        first = sorted(out.axes, key=lambda k: -out.stride(k))
        rest = {k for x in self.kinds.values() for k in x.axes} - set(first)
        reach = {k: min((abs(v.stride(k)) for v in self.call.operands if v.stride(k)), default=0) for k in rest}
        return (*first, *sorted(rest, key=lambda k: (-reach[k], k)))

    def elements(self, axes: frozenset[str]) -> int:
        return math.prod(self.call.sizes[k] for k in axes)

    @cached_property
    def steps(self) -> dict[str, int]:
        """How much of each tiled axis one tile takes; an axis that is not here is whole in every tile."""
        parallel = []
        for k in self.space:
            if k in self.bound or k not in self.call.out.axes:
                break
            parallel.append(k)
        widest = max((x.axes for x in self.kinds.values()), key=self.elements)
        row = self.elements(frozenset(widest) - set(parallel))
        steps: dict[str, int] = {}
        for k in reversed(parallel):
            size = self.call.sizes[k]
            if steps:
                steps[k] = 1
            elif row * size <= self.target:
                row *= size
            else:
                steps[k] = max(1, self.target // max(1, row))
        return {k: s for k, s in steps.items() if s < self.call.sizes[k]}

    @cached_property
    def tiles(self) -> int:
        return math.prod(-(-self.call.sizes[k] // s) for k, s in self.steps.items())

    def extent(self, axes: frozenset[str]) -> tuple[int, ...]:
        """Shape of the largest tile of a tensor with `axes`, in the order of the space."""
        return tuple(self.steps.get(k, self.call.sizes[k]) if k in axes else 1 for k in self.space)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        return _stages(self)

    @cached_property
    def scratch(self) -> int:
        return max((s.slot + _bytes(self, s.axes, s.dtype) for s in self.stages if s.slot is not None), default=0)


def _bytes(nest: Nest, axes: frozenset[str], dtype: str) -> int:
    n = math.prod(nest.extent(axes)) * numpy_dtype(dtype).itemsize
    return -(-n // _LINE) * _LINE


def nest(call: Call, target: int) -> Nest:
    """The nest of a call (of its canonical form: axes are named by use)."""
    return call.remember(("nest", target), lambda: Nest(call.canonical, target))


def _chains(nest: Nest) -> dict[Term, tuple[tuple[str, ...], Term]]:
    """Folds of one kind over one another, used nowhere else, are one fold over several axes: (axes, what is folded)."""
    uses: dict[Term, int] = {}
    for t in nest.terms:
        for a in t.terms:
            uses[a] = uses.get(a, 0) + 1
    chains: dict[Term, tuple[tuple[str, ...], Term]] = {}
    inner: set[Term] = set()
    for t in nest.terms:
        if t.head not in FOLDS:
            continue
        key, x = t.args[: t.head == "Red"], t.terms[0]
        axes = (t.args[t.head == "Red"],)
        if x in chains and x.head == t.head and x.args[: x.head == "Red"] == key and uses[x] == 1:
            more, source = chains[x]
            if axes[0] not in more:
                inner.add(x)
                axes, x = (*more, *axes), source
        chains[t] = (axes, x)
    return {t: c for t, c in chains.items() if t not in inner}


def _stages(nest: Nest) -> tuple[Stage, ...]:
    chains = _chains(nest)
    folds = {t for t in nest.terms if t.head in FOLDS}
    rows = []
    for t in nest.terms:
        if t.head in ("In", "Num") or (t in folds and t not in chains):
            continue
        axes, source = chains.get(t, ((), None))
        rows.append((t, axes, (source,) if source is not None else t.terms))
    last: dict[Term, int] = {}
    for i, (_, _, source) in enumerate(rows):
        for s in source:
            last[s] = i
    return tuple(_placed(nest, rows, last))


def _placed(nest: Nest, rows: Sequence[tuple], last: dict[Term, int]) -> list[Stage]:
    """Give every stage but the last a slot: the lowest place in the workspace that is free while the result is
    needed.
    """
    taken: list[tuple[int, int, int]] = []  # (start, end, last stage that needs it)
    done: list[Stage] = []
    for i, (t, folded, source) in enumerate(rows):
        x = nest.kinds[t]
        hoisted = bool(nest.steps) and not (x.axes | _under(nest, t)) & set(nest.steps)
        if i == len(rows) - 1:
            done.append(Stage(t, x.axes, x.dtype, folded, source, None, False))
            break
        need = _bytes(nest, x.axes, x.dtype)
        until = len(rows) if hoisted else last.get(t, len(rows))
        # a hoisted result outlives the tile: stages before it run again and must not have its place either
        busy = sorted((s, e) for s, e, n in taken if n >= i or hoisted)
        at = 0
        for s, e in busy:
            if at + need <= s:
                break
            at = max(at, e)
        taken.append((at, at + need, until))
        done.append(Stage(t, x.axes, x.dtype, folded, source, at, hoisted))
    return done


def _under(nest: Nest, t: Term) -> frozenset[str]:
    """Axes of everything a stage reads, bound ones included."""
    return frozenset(k for s in postorder(t) for k in nest.kinds[s].axes)
