"""The e-graph, read back: immutable, numbered the same way in every process, free of egglog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from waxeq.basis.heads import HEADS


def looks(head: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What is equal for equal e-nodes; NaN is not."""
    return (head, *["NaN" if a != a else a for a in args])


@dataclass(frozen=True, slots=True)
class ENode:
    """A head on arguments; tensor arguments are class numbers, found at `places`."""

    head: str
    args: tuple[Any, ...]
    places: tuple[int, ...]
    tensors: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """The classes the node reads, in order, with repeats."""

    def __post_init__(self) -> None:
        args = self.args
        object.__setattr__(self, "tensors", tuple([args[i] for i in self.places]))

    def __str__(self) -> str:
        return f"({self.head} {' '.join(f'#{a}' if i in self.places else str(a) for i, a in enumerate(self.args))})"


@dataclass(frozen=True, slots=True)
class EClass:
    """Nodes that are equal: axes, dtype, whether they depend on weights only, and the value if they are one
    constant. `replaced`: nodes that a rule put a simpler one in place of; only who asks how a node came to be looks
    at them.
    """

    axes: frozenset[str]
    dtype: str
    weights_only: bool
    constant: float | None
    nodes: tuple[ENode, ...]
    replaced: tuple[ENode, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """All classes reachable from the roots. `roots` by name; `sizes` of every axis."""

    classes: tuple[EClass, ...]
    roots: Mapping[str, int]
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        return sum(len(c.nodes) for c in self.classes)

    def widened(self, number: int) -> ENode | None:
        """The cast that a class of whole numbers is, from weights of fewer bits; None for other classes."""
        from waxeq.ir.types import is_float, is_integer, numpy_dtype  # imports numpy, which what saturates does without

        c = self.classes[number]
        casts = {n: self.classes[n.tensors[0]] for n in c.nodes if n.head == "Cast" and is_integer(c.dtype)}
        weights = {n: b.dtype for n, b in casts.items() if b.weights_only and not is_float(b.dtype)}
        bytes_of = {n: numpy_dtype(dtype).itemsize for n, dtype in weights.items()}
        narrow = [n for n, size in bytes_of.items() if size < numpy_dtype(c.dtype).itemsize]
        return min(narrow, key=lambda n: (bytes_of[n], n.tensors), default=None)


@dataclass(frozen=True)
class RawClass:
    """A class as the engine reads it, by the engine's own ids."""

    nodes: list[tuple[str, tuple[Any, ...], tuple[int, ...]]]
    axes: frozenset[str] | None = None
    dtype: str | None = None
    weights_only: bool = False
    constant: float | None = None
    replaced: Sequence[tuple[str, tuple[Any, ...], tuple[int, ...]]] = ()


def settle(raw: Mapping[Any, RawClass], roots: Mapping[str, Any], sizes: Mapping[str, int]) -> Snapshot:
    """Number the classes reachable from the roots and sort their nodes, independent of the engine's ids.

    Classes get a rank by refinement: first by what can be said of each alone (type, heads, atoms), then again and
    again by the ranks of what their nodes read, until nothing splits. Classes still tied are numbered in the order a
    walk from the roots meets them.
    """
    alive = _reachable(raw, roots.values())
    rank = _refine(raw, alive)
    order = _walk(raw, roots, rank)
    number = {c: i for i, c in enumerate(order)}
    classes = []
    for c in order:
        r = raw[c]
        assert r.axes is not None and r.dtype is not None, "a class has no type: an analysis did not run"
        replaced = [n for n in r.replaced if all(n[1][i] in number for i in n[2])]
        classes.append(
            EClass(r.axes, r.dtype, r.weights_only, r.constant, _numbered(r.nodes, number), _numbered(replaced, number))
        )
    return Snapshot(tuple(classes), {n: number[c] for n, c in roots.items()}, dict(sorted(sizes.items())))


def _numbered(
    nodes: Iterable[tuple[str, tuple[Any, ...], tuple[int, ...]]], number: Mapping[Any, int]
) -> tuple[ENode, ...]:
    found = {
        ENode(h, tuple(number[a] if i in places else a for i, a in enumerate(args)), places)
        for h, args, places in nodes
    }
    return tuple(sorted(found, key=_node_key))


def _node_key(n: ENode) -> tuple:
    return (n.head, tuple(_atom_key(a) for a in n.args))


def _atom_key(a: Any) -> tuple:
    return (type(a).__name__, ",".join(sorted(a)) if isinstance(a, frozenset) else a if isinstance(a, int) else repr(a))


def _reachable(raw: Mapping[Any, RawClass], roots: Iterable[Any]) -> list[Any]:
    seen: dict[Any, None] = {}
    stack = list(roots)
    while stack:
        c = stack.pop()
        if c not in seen:
            seen[c] = None
            stack.extend(args[i] for _, args, places in raw[c].nodes for i in places)
    return list(seen)


def _refine(raw: Mapping[Any, RawClass], alive: list[Any]) -> dict[Any, int]:
    def local(c: Any) -> tuple:
        r = raw[c]
        heads = sorted((h, tuple(_atom_key(a) for i, a in enumerate(args) if i not in p)) for h, args, p in r.nodes)
        return (tuple(sorted(r.axes or ())), r.dtype or "", r.weights_only, repr(r.constant), tuple(heads))

    rank = _ranked({c: local(c) for c in alive})
    count = len(set(rank.values()))
    for _ in range(12):
        keys = {
            c: (rank[c], tuple(sorted((h, tuple(rank[args[i]] for i in p)) for h, args, p in raw[c].nodes)))
            for c in alive
        }
        rank = _ranked(keys)
        new = len(set(rank.values()))
        if new in (count, len(alive)):
            break
        count = new
    return rank


def _ranked(keys: Mapping[Any, tuple]) -> dict[Any, int]:
    place = {k: i for i, k in enumerate(sorted(set(keys.values())))}
    return {c: place[k] for c, k in keys.items()}


def _walk(raw: Mapping[Any, RawClass], roots: Mapping[str, Any], rank: Mapping[Any, int]) -> list[Any]:
    """Classes in the order of a depth-first walk: roots in order, nodes by what they look like; operands come first."""
    done: dict[Any, None] = {}
    opened: set[Any] = set()
    stack: list[tuple[Any, bool]] = [(c, False) for c in reversed(list(roots.values()))]
    while stack:
        c, ready = stack.pop()
        if ready:
            done[c] = None
        elif c not in opened:
            opened.add(c)
            stack.append((c, True))
            nodes = sorted(
                raw[c].nodes,
                key=lambda n: (
                    n[0],
                    tuple(_atom_key(a) if i not in n[2] else ("#", rank[a]) for i, a in enumerate(n[1])),
                ),
            )
            for _, args, places in reversed(nodes):
                stack.extend((args[i], False) for i in reversed(places))
    return list(done)


def node_places(head: str, extra: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Positions of tensor arguments of a basis head or of one in `extra`."""
    return HEADS[head].tensors if head in HEADS else extra[head]
