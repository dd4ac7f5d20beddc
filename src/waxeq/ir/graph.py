"""Graphs: what the front doors produce. Immutable, typed, in execution order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from waxeq.errors import TypeMismatch
from waxeq.ir.op import Composite, Op
from waxeq.ir.types import TensorType

_INFERRED = 1 << 14
"""Ops with types of operands of which is remembered what they give."""
Kind = Literal["input", "weight", "state", "constant"]


@dataclass(frozen=True, slots=True)
class Source:
    """A place in the user's program."""

    file: str
    line: int
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value the program is given: an input, a weight (bound once), a state or a constant array."""

    name: str
    type: TensorType
    kind: Kind = "input"


@dataclass(frozen=True, slots=True)
class Node:
    """One op applied to values. Values are numbered: leaves first, then nodes, in order."""

    op: Op
    inputs: tuple[int, ...]
    type: TensorType
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """A program: `leaves`, `nodes` in execution order, and `outputs` as (name, value number).

    `states` pairs the name of a state leaf with the value number that replaces it after a call.
    `constants` holds the arrays of leaves of kind "constant".
    """

    leaves: tuple[Leaf, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[tuple[str, int], ...]
    states: tuple[tuple[str, int], ...] = ()
    constants: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)

    def type(self, value: int) -> TensorType:
        n = len(self.leaves)
        return self.leaves[value].type if value < n else self.nodes[value - n].type

    def node(self, value: int) -> Node | None:
        n = len(self.leaves)
        return None if value < n else self.nodes[value - n]

    def values(self) -> Iterator[tuple[int, Node]]:
        """(value number, node) in execution order."""
        return enumerate(self.nodes, len(self.leaves))

    @property
    def results(self) -> tuple[int, ...]:
        """Every value that must exist after a call: outputs and new states."""
        return tuple(v for _, v in (*self.outputs, *self.states))

    def check(self) -> Graph:
        """Re-infer every type; raises TypeMismatch if the graph is ill-formed. Returns itself."""
        names = [x.name for x in self.leaves]
        if len(set(names)) != len(names):
            raise TypeMismatch("two leaves of the graph have one name")
        for v, n in self.values():
            if any(not 0 <= i < v for i in n.inputs):
                raise TypeMismatch(f"value %{v} uses a value that does not come before it")
            got = inferred(n.op, repr(n.op), *(self.type(i) for i in n.inputs))
            if got != n.type:
                raise TypeMismatch(f"value %{v} is declared {n.type} but {n.op.label} gives {got}")
        last = len(self.leaves) + len(self.nodes)
        if any(not 0 <= v < last for v in self.results):
            raise TypeMismatch("an output names a value that does not exist")
        return self


@lru_cache(_INFERRED)
def inferred(op: Op, text: str, *types: TensorType) -> TensorType:
    """What an op gives of these types, of what is asked again and again in long programs; `text` is its repr, which
    tells 0.0 from -0.0 and 1 from True. Raises what it raises."""
    return op.infer(*types)


class GraphBuilder:
    """Builds a graph op by op; equal ops on equal values are one node, dead nodes are dropped by `finish`."""

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.constants: dict[str, np.ndarray] = {}
        self._entries: list[Leaf | Node] = []
        self._known: dict[tuple, int] = {}
        self.source: Source | None = None

    def leaf(self, name: str, type: TensorType, kind: Kind = "input", data: np.ndarray | None = None) -> int:
        """Add a leaf and return its handle."""
        self._entries.append(Leaf(name, type, kind))
        if data is not None:
            self.constants[name] = data
        return len(self._entries) - 1

    def __call__(self, op: Op, *values: int) -> int:
        text = repr(op)
        key = (op, text, values)  # repr tells 0.0 from -0.0 and 1 from True, which compare equal
        known = self._known.get(key)
        if known is None:
            node = Node(op, values, inferred(op, text, *[self._entries[v].type for v in values]), self.source)
            self._entries.append(node)
            known = self._known[key] = len(self._entries) - 1
        return known

    def type(self, value: int) -> TensorType:
        return self._entries[value].type

    def node(self, value: int) -> Node | None:
        """What makes a value; None for a leaf."""
        e = self._entries[value]
        return e if isinstance(e, Node) else None

    def constant(self, value: int) -> np.ndarray | None:
        """The array that a value is in every call; None where it is no constant leaf."""
        e = self._entries[value]
        return self.constants.get(e.name) if isinstance(e, Leaf) and e.kind == "constant" else None

    def finish(
        self, outputs: Iterable[tuple[str, int]], states: Iterable[tuple[str, int]] = (), keep: Iterable[int] = ()
    ) -> Graph:
        """The graph of what `outputs` and `states` need; leaves in `keep` stay even if unused."""
        outputs, states = tuple(outputs), tuple(states)
        need = {v for _, v in (*outputs, *states)}
        for v in reversed(range(len(self._entries))):
            e = self._entries[v]
            if v in need and isinstance(e, Node):
                need.update(e.inputs)
        need |= set(keep)
        leaves = [v for v in sorted(need) if isinstance(self._entries[v], Leaf)]
        nodes = [v for v in sorted(need) if isinstance(self._entries[v], Node)]
        number = {v: i for i, v in enumerate((*leaves, *nodes))}
        kept: list[Any] = [self._entries[v] for v in leaves]
        names = {x.name for x in kept}
        return Graph(
            tuple(kept),
            tuple(Node(e.op, tuple(number[i] for i in e.inputs), e.type, e.source)
                  for e in (self._entries[v] for v in nodes) if isinstance(e, Node)),
            tuple((n, number[v]) for n, v in outputs),
            tuple((n, number[v]) for n, v in states),
            {n: a for n, a in self.constants.items() if n in names},
        )  # fmt: skip


def expand(graph: Graph) -> Graph:
    """The same program with every composite replaced by its expansion, down to ops that lower to the basis."""
    b = GraphBuilder()
    at = [b.leaf(x.name, x.type, x.kind, graph.constants.get(x.name)) for x in graph.leaves]
    for _, n in graph.values():
        b.source = n.source
        at.append(_expand_node(b, n.op, [at[i] for i in n.inputs]))
    return b.finish(
        [(s, at[v]) for s, v in graph.outputs],
        [(s, at[v]) for s, v in graph.states],
        keep=at[: len(graph.leaves)],
    )


class _Expander:
    """A builder that expands composites as they are added."""

    def __init__(self, inner: GraphBuilder) -> None:
        self.inner, self.type = inner, inner.type

    def __call__(self, op: Op, *values: int) -> int:
        return _expand_node(self.inner, op, values)


def _expand_node(b: GraphBuilder, op: Op, values: Iterable[int]) -> int:
    return op.expand(_Expander(b), *values) if isinstance(op, Composite) else b(op, *values)
