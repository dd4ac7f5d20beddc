"""Updates at positions along an axis, put there or added or compared, in the order in which they come.

What is written to is laid out first, as loops do it; then each update goes to its place, with anything element-wise
before it made on the way. Threads share out what lies around the axis, or pieces of long rows: each goes through all
updates of its own part, so that sums and the last of several updates are the same however many threads there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from waxeq.backend.call import Call, operand, operand_index
from waxeq.backend.kernel import Features
from waxeq.basis.heads import COMPUTED
from waxeq.basis.scalar import SCALARS
from waxeq.basis.typing import types
from waxeq.ir.term import Term, postorder
from waxeq_cfamily.functions import libm
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.resolved import INDEX_MAPS, resolve
from waxeq_cfamily.scalars import CTYPES, narrowed, var
from waxeq_cfamily.settled import settled
from waxeq_cfamily.spaces import collapsed
from waxeq_cfamily.stages import Space
from waxeq_cfamily.taken import NAME, astray, empty
from waxeq_cfamily.values import Index, Unsupported, Values
from waxeq_native.loops import Loops, operations
from waxeq_native.steps import OPERANDS
from waxeq_native.work import GRAIN, NativeKernel, Part, Work

_PIECE = 16
"""Elements of a row that one thread has at least: a line of the cache, in float32."""


@dataclass(frozen=True)
class _Updates:
    """What goes to one element of the result: the root of `values` is made of that element and an update. Where it is
    read is where that is written, or, for what is `put`, the update alone. `axis`: along which updates come, one
    after the other. `step`: from one place to the next in the result, which is operand number `target`."""

    values: Values
    axis: str
    step: int
    target: int
    put: bool
    threads: int

    @staticmethod
    def of(call: Call) -> _Updates:
        """Raises Unsupported."""
        c = call.canonical
        f, k, p, i, u, _ = c.meaning.args
        target = len(c.operands)
        kinds = types(c.meaning)
        there = Term("Gather", k, i, operand(target, c.out.axes, c.out.dtype))
        one = Term("Zip", f, there, u) if f in SCALARS else Term("Add", there, u)
        axes = sorted({p, *c.out.axes, *kinds[i].axes, *kinds[u].axes} - {k})
        around = replace(c.out, axes=tuple(axes), shape=tuple(c.sizes[a] for a in axes), strides=(0,) * len(axes))
        values = settled(resolve(one, (*c.operands, c.out), around, c.sizes))
        values = collapsed(replace(values, out=_place(values, target)))
        if any(r.op in ("fold", "scan") or r.costly for r in values.rows):
            raise Unsupported("updates that are better made first")
        return _Updates(values, p, c.out.stride(k), target, f == "set", call.threads)

    @property
    def around(self) -> tuple[str, ...]:
        """The axes of the result but for the one of places, those with the longest steps first."""
        own = (a for a in self.values.sizes if a != self.axis)
        return tuple(sorted(own, key=lambda a: (-(self.values.out.stride(a) or 0), a)))

    @cached_property
    def space(self) -> Space:
        """What lies around the places is a point; and a piece of a row, where threads have no other points."""
        outer = tuple(a for a in self.around if (self.values.out.stride(a) or 0) > self.step)
        rows = [a for a in self.around if a not in outer]
        if self.threads > 1 and rows and math.prod(self.values.sizes[a] for a in outer) < self.threads:
            size = self.values.sizes[rows[0]]
            width = -(-size // self.threads // _PIECE) * _PIECE if len(rows) == 1 else -(-size // self.threads)
            if width < size:
                return Space(self.values, (*outer, rows[0]), {rows[0]: width})
        return Space(self.values, outer)

    @property
    def order(self) -> tuple[str, ...]:
        """The loops of a point: updates, and the elements of each."""
        return (self.axis, *(a for a in self.around if a not in self.space.outer or a in self.space.tiles))


def _place(values: Values, target: int) -> Index:
    """Where an operand is read."""
    return next(r.name[1] for r in values.rows if r.op == "load" and r.name[0] == target)


@dataclass(frozen=True, kw_only=True)
class _Emitter(Emitter):
    """Text of one scatter, of which the result is the last operand."""

    updates: _Updates

    def walked(self) -> Iterator[str]:
        yield "  for (int64_t t = begin; t < end; t++) {"
        yield from ("    " + x for x in (*self.place(), *self._rows(0), *self._loops(0)))
        yield "  }"

    @cached_property
    def _at(self) -> dict[int, list[int]]:
        """The rows that are needed, by how many loops are around them. What lies in the result is read anew each time:
        the update before may have changed it."""
        u, found = self.updates, dict[int, list[int]]()
        for n, r in enumerate(self.values.rows):
            anew = n == self.values.root or (r.op == "load" and r.name[0] == u.target)
            if r.op != "number" and not (anew and u.put):
                depth = max((i + 1 for i, k in enumerate(u.order) if k in r.axes), default=0)
                found.setdefault(len(u.order) if anew else depth, []).append(n)
        return found

    def _rows(self, depth: int) -> Iterator[str]:
        for n in self._at.get(depth, ()):
            yield from self.declared(n)

    def _loops(self, depth: int) -> Iterator[str]:
        u = self.updates
        if depth == len(u.order):
            n = self.values.rows[self.values.root].args[1] if u.put else self.values.root
            yield f"out[{self.index(self.values.out)}] = {narrowed(self.name(n), self.values.rows[n].dtype)};"
            return
        k = u.order[depth]
        tiled = k in self.space.tiles
        low, high = (f"{var(k)}_lo", f"{var(k)}_hi") if tiled else ("0", str(self.values.sizes[k]))
        inside = [*self._rows(depth + 1), *self._loops(depth + 1)]
        if 0 < depth == len(u.order) - 1:
            bad = " reduction(|:bad)" if any("bad |=" in x for x in inside) else ""
            yield f"#pragma omp simd{bad}"
        yield f"for (int64_t {var(k)} = {low}; {var(k)} < {high}; {var(k)}++) {{"
        yield from ("  " + x for x in inside)
        yield "}"


class Scatters(NativeKernel):
    """Updates at places along one axis, with anything element-wise before them."""

    name = "scatter"
    form = "loops"
    heads = INDEX_MAPS | {"Scatter"}

    def matches(self, meaning: Term) -> bool:
        return meaning.head == "Scatter" and all(t.head not in COMPUTED for t in postorder(meaning.args[5]))

    def work(self, call: Call) -> Work | None:
        c = call.canonical
        if not self.matches(c.meaning) or any(v.dtype not in CTYPES for v in (c.out, *c.operands)):
            return None
        before = Loops().work(self._before(call))
        try:
            updates = self.updates(call)
        except Unsupported:
            return None
        values = updates.values
        if before is None or empty(values) or astray(values) or any(r.dtype not in CTYPES for r in values.rows):
            return None
        if call.out.elements == 0:
            return Work(tuple)
        operands = [*(f"args[{OPERANDS + i}]" for i in range(len(c.operands))), "args[2]"]
        dtypes = [*(v.dtype for v in c.operands), c.out.dtype]
        e = _Emitter(
            updates.space, libm(), operands, "args[2]", dtypes, frozenset({*self.in_place(call), updates.target}),
            updates=updates,
        )  # fmt: skip
        try:
            e.check()
        except Unsupported:
            return None
        kept, some = self._kept(call), c.sizes[updates.axis] > 0

        def write() -> tuple[Part, ...]:
            points = updates.space.points()
            each = sum(operations(updates.space).values()) / max(1, points)
            grain = max(1, min(points, round(GRAIN / max(1.0, each))))
            first = (replace(p, text=_unless(p.text, kept)) for p in before.parts)
            return (*first, *[Part(e.function(NAME), points, grain)] * some)

        return Work(write, before.workspace, (bool(values.positions) and some) or before.may_fail)

    def updates(self, call: Call) -> _Updates:
        """Raises Unsupported."""
        return call.remember("updates of a scatter", lambda: _Updates.of(call))

    def _before(self, call: Call) -> Call:
        """The call that lays out what is written to."""
        return call.remember("what is written to", lambda: replace(call, meaning=call.meaning.args[5]))

    def _kept(self, call: Call) -> int | None:
        """The operand that the result may lie in: it is there already then, and nothing else reads it."""
        i, u, x = call.meaning.args[3:]
        if x.head != "In" or x in {*postorder(i), *postorder(u)} or call.shared:
            return None
        n = operand_index(x)
        v, out = call.operands[n], call.out
        same = (v.axes, v.strides, v.dtype, v.offset) == (out.axes, out.strides, out.dtype, out.offset)
        return n if same else None

    def in_place(self, call: Call) -> tuple[int, ...]:
        n = self._kept(call)
        return () if n is None else (n,)

    def features(self, call: Call) -> Features:
        every = operations(self.updates(call).space)
        return {"launches": 2.0, "bytes": float(call.bytes_read + call.out.bytes), **every}


def _unless(text: str, operand: int | None) -> str:
    """A function that does nothing where the result lies in an operand."""
    if operand is None:
        return text
    first, rest = text.split("\n", 1)
    return f"{first}\n  if (args[2] == args[{OPERANDS + operand}]) return;\n{rest}"


KERNELS = (Scatters,)
