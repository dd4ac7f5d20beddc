"""C text of loops along arrays that are put one after another, or padded, and are folded along the way: one loop for
each, where it is known what is read (index set splitting, as in `sections`).

In one loop each of them was asked at each place whether it is the one: for sixteen arrays forty times as long as all
else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from waxeq.backend.extent import Extent
from waxeq_cfamily.sections import asked
from waxeq_cfamily.values import Guard

if TYPE_CHECKING:
    from waxeq_cfamily.loops import Emitter
    from waxeq_cfamily.nest import Loop

Stretch = tuple[tuple[int, int], Mapping[Guard, bool]]
"""From where to where it goes, and which guards hold there."""

_MOST, _VECTORS = 64, 6
"""Stretches of an axis at most, and of one whose loop is made of vectors: each of these is a long text."""
_FEW, _ROWS = 4, 8
"""Stretches that may each be written for several rows at a time, and the rows from which that is so."""
_ASKED = 2
"""Arrays that may be asked for at each place where there are no stretches."""


def in_stretches(loop: Loop, depth: int) -> list[str]:
    """The loop at some depth of a stage, stretch by stretch; empty where there is one."""
    k = loop.order[depth]
    lines, found = list[str](), stretches(loop, k)
    for span, known in found:
        part = _known(loop, known)
        part.spans = {**loop.spans, k: span}
        part.singly = loop.singly or len(found) > _FEW or span[1] - span[0] < _ROWS
        lines += part.opened(depth)
    return lines


def clipped(low: str, high: str, first: int, last: int) -> tuple[str, str]:
    """Bounds of a piece of an axis that ends within a stretch of it."""
    return f"({low} > {first} ? {low} : {first})", f"({high} < {last} ? {high} : {last})"


def stretches(loop: Loop, k: str) -> Sequence[Stretch]:
    """Those of an axis of a stage; none where nothing is asked along it, or it has too many, or sections do as well."""
    guards, ends = _ends(loop, k)
    most = _VECTORS if k == loop.order[-1] else _MOST
    if not 2 < len(ends) <= most + 1 or (k == loop.order[-1] and (not loop.scalar or loop.converted.several)):
        return ()
    return [((a, b), {g: g[1] <= a + g[0].const < g[2] for g in guards}) for a, b in pairwise(ends)]


def asks(e: Emitter) -> bool:
    """Whether some fold goes along so many arrays that each of its elements would be looked for in all of them."""
    if all(r.op != "within" for r in e.values.rows):
        return False
    loops = [e.loop(s) for s in e.space.stages if s.product is None and s.folds]
    return any(len(_ends(x, k)[1]) > _ASKED + 1 and not stretches(x, k) for x in loops for k in x.order)


def _ends(loop: Loop, k: str) -> tuple[Sequence[Guard], Sequence[int]]:
    """What is asked along an axis that is folded, and where the answer changes: its beginning and its end too."""
    size, folded = loop.values.sizes[k], any(k in axes for axes, _ in loop.sources.values())
    if not folded or not loop.e.sections or k in loop.spans or isinstance(size, Extent):
        return (), ()
    guards = [*dict.fromkeys(_guards(loop, k))]
    places = {end - where.const for where, low, high in guards for end in (low, high)}
    return guards, sorted({0, size, *(p for p in places if 0 < p < size)})


def _guards(loop: Loop, k: str) -> Iterator[Guard]:
    rows = (loop.values.rows[n] for n in loop.cone() if not loop.loaded(n))
    return (g for r in rows for g in asked(r) if g[0].terms == ((k, 1),) and g not in loop.e.decided)


def _known(loop: Loop, known: Mapping[Guard, bool]) -> Loop:
    return type(loop)(replace(loop.e, decided={**loop.e.decided, **known}), loop.stage)
