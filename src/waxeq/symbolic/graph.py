"""One graph for all sizes: graphs that were traced at some sizes, matched value by value, and what differs between them
as functions of the dims.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from waxeq.errors import UnsupportedError, WaxeqError
from waxeq.ir.graph import Graph, Leaf, Node
from waxeq.ir.interpret import interpret
from waxeq.ir.op import Op
from waxeq.ir.types import TensorType
from waxeq.naming import dims_option
from waxeq.symbolic.dims import Sizes
from waxeq.symbolic.fit import fit, fit_float
from waxeq.symbolic.literals import Literals
from waxeq.symbolic.size import Number, Size, written

_SEEN = 3
"""Values of an attribute at other sizes that a sentence names."""
_ENOUGH = 4
"""Sizes at which a value is seen to be a function, where others are left out."""
_SAME = 1e-9
"""Relative error in float64 up to which two graphs compute the same."""

_RANKS = re.compile(r"\.((?:nan)?(?:median|quantile|percentile))\s*\(")
"""Calls of functions that take elements of sorted rows."""


@dataclass(frozen=True)
class Sample:
    """A model traced at some sizes, with arrays for its inputs, weights and constants. One that is not `required` may
    be another model: its sizes are out of range."""

    sizes: Sizes
    graph: Graph
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)
    required: bool = True


def matched(a: Graph, b: Graph) -> dict[int, int] | str:
    """For each value of graph a the one of graph b that is made alike; or the first thing that is not, in words.

    Values of a that are equal in b (a size may happen to equal another one) have one counterpart.
    """
    if [(x.name, x.kind, x.type.dtype, x.type.rank) for x in a.leaves] != [
        (x.name, x.kind, x.type.dtype, x.type.rank) for x in b.leaves
    ]:
        return "its arguments or the arrays it makes are others"
    if [n for n, _ in (*a.outputs, *a.states)] != [n for n, _ in (*b.outputs, *b.states)]:
        return "its results are others"
    pairs: dict[int, int] = {i: i for i in range(len(a.leaves))}
    wanted: dict[int, int] = {}
    for (_, v), (_, w) in zip((*a.outputs, *a.states), (*b.outputs, *b.states), strict=True):
        if wanted.setdefault(v, w) != w:  # one value here, two there
            return "its results are others"
    for v in reversed(range(len(a.leaves) + len(a.nodes))):
        n = a.node(v)
        if n is None or v not in wanted:
            continue
        m = b.node(wanted[v])
        why = _unlike(n, m)
        if why:
            return f"{n.source}: {why}" if n.source else why
        assert m is not None
        for i, j in zip(n.inputs, m.inputs, strict=True):
            if wanted.setdefault(i, j) != j:
                return f"{n.source}: {n.op.label} reads other values"
    wrong = next((v for v, w in wanted.items() if a.node(v) is None and v != w), None)
    return f"argument {a.leaves[wrong].name!r} is used otherwise" if wrong is not None else {**pairs, **wanted}


def _unlike(n: Node, m: Node | None) -> str:
    if m is None or type(n.op) is not type(m.op) or _words(n.op) != _words(m.op):
        other = "nothing is computed" if m is None else f"it is {m.op.label}"
        return f"what is {n.op.label} at one size, at another {other}"
    if len(n.inputs) != len(m.inputs) or n.type.dtype != m.type.dtype or n.type.rank != m.type.rank:
        return f"{n.op.label} gives {n.type} at one size and {m.type} at another"
    return ""


def _words(op: Op) -> str:
    """An op without its numbers."""

    def bare(x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(bare, x))
        return 0 if type(x) in (int, float) else x

    return repr({k: bare(x) for k, x in op.attributes.items()})


@dataclass(frozen=True)
class Sized:
    """A graph whose sizes are functions of the dims: `graph` has `Size` and `Number` where these depend on them.
    `first` is the sample its values are numbered as; `numbers` says what stands for numbers there."""

    graph: Graph
    first: Sample
    alike: tuple[Sample, ...]

    @cached_property
    def literals(self) -> Literals:
        """The numbers that depend on no dim."""
        return Literals(self.graph)


def general(samples: Sequence[Sample]) -> Sized:
    """What graphs traced at some sizes have in common. Raises UnsupportedError, naming the op and where it stands, when
    the model is another one at another size, or a size is no polynomial in the dims."""
    sized, odd = seen_from(max(samples, key=lambda s: len(s.graph.nodes)), samples)
    for s, why in odd:
        if s.required:
            _require_same(sized, s, why)
    return sized


def seen_from(first: Sample, samples: Sequence[Sample]) -> tuple[Sized, list[tuple[Sample, str]]]:
    """The same with values numbered as in one of the samples; and those that are made otherwise, with the reason.
    Raises UnsupportedError."""
    alike, odd = [first], []
    found: list[Mapping[int, int]] = [{v: v for v in range(len(first.graph.leaves) + len(first.graph.nodes))}]
    for s in samples:
        if s is not first:
            pairs = matched(first.graph, s.graph)
            if isinstance(pairs, str):
                odd.append((s, pairs))
            else:
                alike.append(s)
                found.append(pairs)
    return Sized(_fitted(first, alike, found, odd), first, tuple(alike)), odd


def _fitted(
    first: Sample, alike: Sequence[Sample], pairs: Sequence[Mapping[int, int]], odd: Sequence[tuple[Sample, str]]
) -> Graph:
    g = first.graph

    def types(v: int, what: str) -> TensorType:
        rows = [s.graph.type(p.get(v, v)).shape for s, p in zip(alike, pairs, strict=True)]
        return TensorType(g.type(v).dtype, _fit_all(alike, rows, what, odd))

    leaves = tuple(Leaf(x.name, types(i, f"{x.kind} {x.name!r}"), x.kind) for i, x in enumerate(g.leaves))
    for i, x in enumerate(leaves):
        if x.kind != "input":
            _require_fixed(first, alike, i, x)
    nodes = []
    for v, n in g.values():
        if any(v not in p for p in pairs):
            nodes.append(n)  # only what is needed for no result has no counterpart
            continue
        where = f"{n.source}: {n.op.label}" if n.source else n.op.label
        ops = [_node(s.graph, p[v]).op for s, p in zip(alike, pairs, strict=True)]
        try:
            given = {f.name: _fit_all(alike, [getattr(o, f.name) for o in ops], where, odd) for f in fields(n.op)}  # pyright: ignore
        except UnsupportedError as e:
            raise UnsupportedError(f"{e}{_of_ranks(n)}") from e
        nodes.append(replace(n, op=_like(n.op, given), type=types(v, where)))
    return replace(g, leaves=leaves, nodes=tuple(nodes))


def _of_ranks(n: Node) -> str:
    """What to add where a line takes places in sorted rows, which are no polynomials of their size; else nothing."""
    name = None if n.source is None else _RANKS.search(n.source.text)
    if name is None:
        return ""
    return (
        f". np.{name[1]} along an axis whose size changes takes such places (the middle of 7 elements is one of them, "
        f"of 8 it is two): take it along an axis of one size, or give the model one size: leave {dims_option()} out"
    )


def _require_fixed(first: Sample, alike: Sequence[Sample], i: int, x: Leaf) -> None:
    """Weights, states and arrays that the model makes while it is traced are the same at all sizes."""
    arrays = [s.graph.constants.get(s.graph.leaves[i].name) for s in alike]
    known = [a for a in arrays if a is not None]
    same = all(np.array_equal(a, known[0], a.dtype.kind == "f") for a in known)
    if not same or any(isinstance(n, Size) for n in x.type.shape):
        place = next((f"{n.source}: " for n in first.graph.nodes if i in n.inputs and n.source), "")
        raise UnsupportedError(
            f"{place}{x.kind} {x.name!r} is another array at another size; only inputs can depend on a dim: make it of "
            "the inputs, with np.arange(x.shape[0]) say, or take a slice of a larger one"
        )


def _node(graph: Graph, v: int) -> Node:
    n = graph.node(v)
    assert n is not None
    return n


def _like(op: Op, attributes: Mapping[str, Any]) -> Op:
    """The op with attributes that may be functions, which its own checks do not know."""
    made = object.__new__(type(op))
    for k, a in attributes.items():
        object.__setattr__(made, k, a)
    return made


def _fit_all(alike: Sequence[Sample], rows: Sequence[Any], where: str, odd: Sequence[tuple[Sample, str]]) -> Any:
    """An attribute as a function of the dims. Raises UnsupportedError."""
    if isinstance(rows[0], tuple) and all(isinstance(r, tuple) and len(r) == len(rows[0]) for r in rows):
        return tuple(_fit_all(alike, parts, where, odd) for parts in zip(*rows, strict=True))
    found = _fit(alike, rows)
    if found is None and any(r is not None for r in rows):
        apart = {repr(r): f"{r} where {written(s.sizes)}" for s, r in reversed([*zip(alike, rows, strict=True)])}
        seen = "; ".join([*apart.values()][::-1][:_SEEN])
        more = f" (and {odd[0][1]})" if odd else ""
        raise UnsupportedError(
            f"{where} depends on a dim in a way that is no polynomial: {seen}{more}; a range of sizes needs one "
            f"program: {_narrower(alike, rows) or 'give a narrower range, or a dim of its own'}"
        )
    return found


def _fit(alike: Sequence[Sample], rows: Sequence[Any]) -> Any:
    """A value as a function of the dims; None where it is none that is known."""
    if all(type(r) is type(rows[0]) and repr(r) == repr(rows[0]) for r in rows):
        return rows[0]
    sizes = [s.sizes for s in alike]
    if all(type(r) is int for r in rows):
        return fit(sizes, rows)
    return fit_float(sizes, [float(r) for r in rows]) if all(type(r) in (int, float) for r in rows) else None


def _narrower(alike: Sequence[Sample], rows: Sequence[Any]) -> str:
    """The longest range in which a value is a function of the dims, where leaving out one end of a dim's is enough."""
    for name in alike[0].sizes:
        known = sorted({s.sizes[name] for s in alike if s.required})
        for low, high in (*((n, known[-1]) for n in known[1:]), *((known[0], n) for n in known[-2::-1])):
            kept = [(s, r) for s, r in zip(alike, rows, strict=True) if low <= s.sizes[name] <= high]
            if len(kept) >= _ENOUGH and _fit([s for s, _ in kept], [r for _, r in kept]) is not None:
                ends = f"from {low}" if low > known[0] else f"up to {high}"
                return f"where {_beyond(name, low, high, known)} it is another: give a range {ends}"
    return ""


def _beyond(name: str, low: int, high: int, known: Sequence[int]) -> str:
    """The sizes of a dim that are left out of all from the first to the last that are known."""
    if low > known[0]:
        return f"{name} = {known[0]}" if low == known[0] + 1 else f"{name} < {low}"
    return f"{name} = {known[-1]}" if high == known[-1] - 1 else f"{name} > {high}"


def at(graph: Graph, sizes: Sizes) -> Graph:
    """The graph at some sizes. Raises PlanError."""
    leaves = tuple(replace(x, type=_type(x.type, sizes)) for x in graph.leaves)
    nodes = tuple(
        replace(n, op=_like(n.op, {f.name: _at(getattr(n.op, f.name), sizes) for f in fields(n.op)}),  # pyright: ignore
                type=_type(n.type, sizes))
        for n in graph.nodes
    )  # fmt: skip
    return replace(graph, leaves=leaves, nodes=nodes)


def _type(t: TensorType, sizes: Sizes) -> TensorType:
    return TensorType(t.dtype, _at(t.shape, sizes))


def _at(x: Any, sizes: Sizes) -> Any:
    if isinstance(x, tuple):
        return tuple(_at(v, sizes) for v in x)
    return x.at(sizes) if isinstance(x, (Size, Number)) else x


def _require_same(sized: Sized, s: Sample, why: str) -> None:
    """A graph that looks otherwise must compute the same: at a size of 1 nothing is broadcast, say. Raises
    UnsupportedError."""
    g = at(sized.graph, s.sizes)
    example = written(sized.first.sizes)
    refusal = (
        f"the model is another one where {written(s.sizes)} than where {example}: {why}; a range of sizes needs one "
        "program: give a range that has one of these alone, or take what depends on the size out of the model"
    )
    here = [(x.name, x.kind, x.type) for x in g.leaves if x.kind != "constant"]
    there = [(x.name, x.kind, x.type) for x in s.graph.leaves if x.kind != "constant"]
    types = [(n, g.type(v)) for n, v in (*g.outputs, *g.states)]
    below = any(size < 0 for n in g.nodes for size in n.type.shape)
    if below or here != there or types != [(n, s.graph.type(v)) for n, v in (*s.graph.outputs, *s.graph.states)]:
        raise UnsupportedError(refusal)
    unfit = (WaxeqError, ValueError, IndexError, np.linalg.LinAlgError)
    for arrays in (s.arrays, *_others(s.arrays)):
        try:
            want = interpret(s.graph, {**s.graph.constants, **arrays}, oracle=True)
        except unfit:
            if arrays is s.arrays:
                raise
            continue  # numbers that the model takes nowhere say nothing
        try:
            got = interpret(g, {**g.constants, **arrays}, oracle=True)
        except unfit as e:  # a place that is not there at this size
            raise UnsupportedError(refusal) from e
        if not all(_agree(got[n], w) for n, w in want.items()):
            raise UnsupportedError(refusal)


def _others(arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Other numbers for the same arguments: examples may be all ones, for which many functions are the same. First near
    those that are given, which have a meaning for the model, then any."""
    rng = np.random.default_rng(0)

    def near(a: np.ndarray) -> np.ndarray:
        if a.dtype.kind in "biu":  # positions, say, and kept in their range
            return rng.permutation(a.reshape(-1)).reshape(a.shape)
        return (a.astype(np.float64) * rng.uniform(0.5, 1.5, a.shape)).astype(a.dtype)

    def any_of(a: np.ndarray) -> np.ndarray:
        return near(a) if a.dtype.kind in "biu" else rng.standard_normal(a.shape).astype(a.dtype)

    return [{n: f(a) for n, a in arrays.items()} for f in (near, any_of)]


def _agree(a: np.ndarray, b: np.ndarray) -> bool:
    if b.dtype.kind != "f" or a.shape != b.shape:
        return np.array_equal(a, b)
    known = np.isfinite(b)
    scale = float(np.sqrt(np.mean(np.square(b[known])))) if known.any() else 1.0
    same = np.array_equal(a[~known], b[~known], equal_nan=True)
    return same and bool(np.all(np.abs(a[known] - b[known]) <= _SAME * (scale or 1.0)))
