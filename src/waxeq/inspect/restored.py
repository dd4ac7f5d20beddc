"""Steps of a plan as their blocks have them: each reads and writes buffers of its own, where the plan has parts of
others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from waxeq.backend.call import View
from waxeq.inspect.follow import Piece
from waxeq.ir.graph import Graph
from waxeq.plan.cover import span
from waxeq.plan.plan import Plan, Step

Values = Mapping[str, tuple[int, ...]]
"""Which values of the model lie in buffers."""


def own_name(s: Step) -> str:
    """What the buffer that a step writes is called in its block, by which it begins."""
    return s.part or s.writes


def written_apart(s: Step) -> Step:
    """The step, with a buffer of its own for its result."""
    if not s.part:
        return s
    return replace(s, writes=s.part, part="", call=replace(s.call, out=replace(s.call.out, offset=0)))


class Parts:
    """What lies where in the buffers of a plan that several steps write."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rows: dict[str, list[tuple[int, int, str]]] = {}
        for s in plan.steps:
            if s.part and s.call.out.elements:
                self._rows.setdefault(s.writes, []).append((*span(s.call.out), s.part))

    def read_apart(self, p: Piece, values: Values) -> Piece:
        """A piece whose steps read parts that the block knows by their own names."""
        known = {*p.block.leaves.values()}

        def own(name: str) -> bool:
            return name.startswith(p.name) or not known.isdisjoint(values.get(name, ()))

        steps = {i: self._reading(s, own) for i, s in p.steps.items()}
        return replace(p, steps=steps) if self._rows else p

    def wholes(self, p: Piece, graph: Graph, found: Values) -> dict[str, tuple[int, ...]]:
        """What may lie in buffers of a piece that no step of its own makes: results that were `found` in no other."""
        left = [v for v in p.block.outputs.values() if not any(v in vs for vs in found.values())]
        rows = {}
        for name in self._rows:
            b = self._plan.buffers[name]
            alike = (v for v in left if (t := graph.type(v)).elements == b.elements and t.dtype == b.dtype)
            if name.startswith(p.name) and (vs := tuple(alike)):
                rows[name] = vs
        return rows

    def _reading(self, s: Step, own: Callable[[str], bool]) -> Step:
        rows = [self._read(r, v, own) for r, v in zip(s.reads, s.call.operands, strict=True)]
        call = replace(s.call, operands=tuple(v for _, v in rows))
        return replace(s, reads=tuple(r for r, _ in rows), call=call)

    def _read(self, r: str, v: View, own: Callable[[str], bool]) -> tuple[str, View]:
        """What an operand is read from, and how."""
        low, high = span(v) if v.elements else (0, 0)
        for start, stop, part in self._rows.get(r, ()):
            if start <= low < high <= stop and own(part):
                return part, replace(v, offset=v.offset - start)
        return r, v
