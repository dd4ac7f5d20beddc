"""Matching rule patterns on a snapshot, to tell after the fact which rules lead from one e-node to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from waxeq.egraph.snapshot import ENode, Snapshot

Tree = Any
"""A pattern: ("?", name) for a variable, ("=", value) for a literal, or (head, tree, ...)."""
Found = Mapping[str, Any]


@dataclass(frozen=True)
class Index:
    """A snapshot with a look-up from e-node to class."""

    snapshot: Snapshot
    classes: Mapping[tuple[str, tuple[Any, ...]], int]

    @staticmethod
    def of(snapshot: Snapshot) -> Index:
        rows = {(n.head, n.args): i for i, c in enumerate(snapshot.classes) for n in c.nodes}
        return Index(snapshot, rows)

    def match(self, tree: Tree, number: int, found: Found) -> Iterator[Found]:
        """Every way class `number` contains the pattern, extending `found`."""
        if tree[0] == "?":
            if tree[1] not in found:
                yield {**found, tree[1]: number}
            elif found[tree[1]] == number:
                yield found
            return
        for n in self.snapshot.classes[number].nodes:
            yield from self.match_node(tree, n, found)

    def match_node(self, tree: Tree, n: ENode, found: Found) -> Iterator[Found]:
        """Every way the pattern matches with `n` on top."""
        if n.head != tree[0] or len(tree) - 1 != len(n.args):
            return
        rows: list[Found] = [found]
        for i, (t, a) in enumerate(zip(tree[1:], n.args, strict=True)):
            if i in n.places:
                rows = [g for f in rows for g in self.match(t, a, f)]
            elif t[0] == "=":
                rows = [f for f in rows if t[1] == a]
            else:
                rows = [{**f, t[1]: a} for f in rows if f.get(t[1], a) == a]
            if not rows:
                return
        yield from rows

    def build(self, tree: Tree, found: Found) -> int | None:
        """The class of an instantiated pattern, if the e-graph has it."""
        if tree[0] == "?":
            return found.get(tree[1])
        args = []
        for t in tree[1:]:
            a = t[1] if t[0] == "=" else found.get(t[1]) if t[0] == "?" else self.build(t, found)
            if a is None:
                return None
            args.append(a)
        return self.classes.get((tree[0], tuple(args)))

    def node(self, tree: Tree, found: Found) -> ENode | None:
        """The e-node of an instantiated pattern, if the e-graph has it."""
        number = self.build(tree, found)
        if number is None or tree[0] == "?":
            return None
        args = tuple(t[1] if t[0] == "=" else found[t[1]] if t[0] == "?" else self.build(t, found) for t in tree[1:])
        return next((n for n in self.snapshot.classes[number].nodes if n.head == tree[0] and n.args == args), None)
