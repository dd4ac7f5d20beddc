"""Every way to choose calls, counted exactly and listed in rising cost, where what is needed at a time stays few.

A choice is made state by state, users before what they read: what is still to be decided is a set of states, and two
choices so far that leave the same set are alike from there on. Choices are the paths through a graph of such sets, so
that one walk over it counts them and finds what each set costs at least; with that known, the next cheapest path is
found without looking at any other (best-first search with an exact estimate; Eppstein, "Finding the k shortest paths",
SIAM J. Comput. 28, 1998, for the idea of siblings in order).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from waxeq.extract.candidates import State
from waxeq.extract.choice import Priced, Problem

UNIT = 1e-15
"""Seconds of which costs are whole multiples here: sums of them are exact, and equal in every order."""
NODES = 30_000
"""Sets of states that are looked at before counting gives up: about a second, some ten megabytes."""


@dataclass(frozen=True, slots=True)
class Row:
    """A call that makes state `out` from `inputs` (those that are given left out) at a cost in units of `UNIT`."""

    out: int
    inputs: tuple[int, ...]
    cost: int


@dataclass(frozen=True, slots=True)
class Count:
    """How many choices there are: exactly, or at most."""

    number: int
    exact: bool

    def __mul__(self, other: Count) -> Count:
        return Count(self.number * other.number, self.exact and other.exact)

    def __pow__(self, times: int) -> Count:
        return Count(self.number**times, self.exact)


class TooMany(Exception):
    """More sets of states than were allowed: the choices can be bounded, not counted."""


_Node = tuple[int, tuple[tuple[int, int], ...]]
"""States to be decided, as bits; and within a component of states that may need each other, those already decided, each
with what it reads there."""


@dataclass(frozen=True)
class Ways:
    """Rows by position, and the states that must be made. A choice is a set of rows: one for each state that is needed,
    none that needs itself in a circle."""

    rows: tuple[Row, ...]
    roots: tuple[int, ...]
    nodes: int = NODES

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"rows": [[r.out, list(r.inputs), r.cost] for r in self.rows], "roots": list(self.roots)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Ways:
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError for what is no such data."""
        rows = tuple(Row(int(out), tuple(map(int, inputs)), int(cost)) for out, inputs, cost in data["rows"])
        return Ways(rows, tuple(map(int, data["roots"])))

    def count(self) -> Count:
        """How many choices there are, or at most how many."""
        try:
            return Count(self._walked[self._start][0], exact=True)
        except TooMany:
            return Count(self._at_most(), exact=False)

    def cheapest(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Every choice in rising cost: its cost, and the positions of its rows, users first. Raises TooMany when it is
        first asked for one."""
        order = itertools.count()
        total = self._walked[self._start][1]
        heap: list[tuple[int, int, int, _Node, int, Any]] = []
        if total is not None:
            heap.append((total, next(order), 0, self._start, 0, None))
        while heap:
            total, _, spent, node, edge, path = heapq.heappop(heap)
            if not node[0]:
                yield total, _listed(path)
                continue
            _, _, edges = self._walked[node]
            if edge + 1 < len(edges):
                heapq.heappush(heap, (spent + edges[edge + 1][0], next(order), spent, node, edge + 1, path))
            _, row, following = edges[edge]
            heapq.heappush(heap, (total, next(order), spent + self.rows[row].cost, following, 0, (row, path)))

    # -- the graph of sets

    @cached_property
    def _rank(self) -> tuple[Mapping[int, int], Sequence[int]]:
        """The number of each state, users before what they read; and for each number the bits of its component."""
        import rustworkx

        states = list(dict.fromkeys((*self.roots, *(s for r in self.rows for s in (r.out, *r.inputs)))))
        place = {s: i for i, s in enumerate(states)}
        g = rustworkx.PyDiGraph()
        g.add_nodes_from(range(len(states)))
        g.add_edges_from_no_data(list({(place[r.out], place[i]) for r in self.rows for i in r.inputs}))
        components = [sorted(c) for c in rustworkx.strongly_connected_components(g)]
        at = {n: c for c, group in enumerate(components) for n in group}
        above = rustworkx.PyDiGraph()
        above.add_nodes_from(range(len(components)))
        above.add_edges_from_no_data(list({(at[a], at[b]) for a, b in g.edge_list() if at[a] != at[b]}))
        rank: dict[int, int] = {}
        bits: list[int] = []
        for c in rustworkx.topological_sort(above):
            group = components[c]
            mask = ((1 << len(group)) - 1) << len(rank)
            rank |= {states[n]: len(rank) + i for i, n in enumerate(group)}
            bits += [mask] * len(group)
        return rank, bits

    @cached_property
    def _makers(self) -> Sequence[Sequence[tuple[int, int]]]:
        """By the number of a state: the rows that make it, each with the bits of what it reads."""
        rank, _ = self._rank
        makers: list[list[tuple[int, int]]] = [[] for _ in rank]
        for i, r in enumerate(self.rows):
            makers[rank[r.out]].append((i, sum(1 << rank[s] for s in dict.fromkeys(r.inputs))))
        return makers

    @cached_property
    def _start(self) -> _Node:
        rank, _ = self._rank
        return sum(1 << rank[r] for r in dict.fromkeys(self.roots)), ()

    def _following(self, node: _Node) -> Iterator[tuple[int, _Node]]:
        """The rows that may make the next state, each with what is to be decided then."""
        needed, decided = node
        bit = needed & -needed
        s = bit.bit_length() - 1
        component = self._rank[1][s]
        alone = component == bit
        have = 0
        for d, _ in decided:
            have |= 1 << d
        for row, reads in self._makers[s]:
            if reads & bit or (not alone and _reaches(reads & component, bit, decided)):
                continue
            left = needed ^ bit | reads & ~have
            inside = not alone and left & component
            yield row, (left, tuple(sorted((*decided, (s, reads & component)))) if inside else ())

    @cached_property
    def _walked(self) -> dict[_Node, tuple[int, int | None, list[tuple[int, int, _Node]]]]:
        """For every set that can be met: how many choices there are from there, the least cost of one (None: there is
        none), and (least cost through it, row, next set) of each row, cheapest first. Raises TooMany."""
        done: dict[_Node, Any] = {(0, ()): (1, 0, [])}
        opened: dict[_Node, list[tuple[int, _Node]]] = {}
        stack = [self._start]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            if node not in opened:
                if len(opened) >= self.nodes:
                    raise TooMany
                opened[node] = list(self._following(node))
                stack += [n for _, n in opened[node] if n not in done]
                continue
            stack.pop()
            number, edges = 0, []
            for row, following in opened[node]:
                choices, least, _ = done[following]
                if least is not None:
                    number += choices
                    edges.append((self.rows[row].cost + least, row, following))
            edges.sort(key=lambda e: e[:2])
            done[node] = (number, edges[0][0] if edges else None, edges)
        return done

    def _at_most(self) -> int:
        """Choices when every state could be made, or not, whatever the others are; and, where no state needs itself,
        when what is used twice could be made in two ways."""
        rank, bits = self._rank
        makers = self._makers
        product = math.prod(len(makers[n]) + (s not in self.roots) for s, n in rank.items() if makers[n])
        if any(b & (b - 1) for b in bits):
            return product
        trees = [0] * len(rank)
        for n in reversed(range(len(rank))):
            trees[n] = sum(math.prod(trees[i] for i in members(reads)) for _, reads in makers[n])
        return min(product, math.prod(trees[rank[r]] for r in dict.fromkeys(self.roots)))


def ways_of(calls: Sequence[Priced], problem: Problem, nodes: int) -> Ways:
    """The ways to choose among some calls of a problem."""
    numbers: dict[State, int] = {}

    def number(s: State) -> int:
        return numbers.setdefault(s, len(numbers))

    roots = tuple(number(r) for r in dict.fromkeys(problem.roots) if r not in problem.given)
    rows = tuple(
        Row(
            number(p.candidate.out),
            tuple(number(s) for s in dict.fromkeys(p.candidate.inputs) if s not in problem.given),
            round(p.cost / UNIT),
        )
        for p in calls
    )
    return Ways(rows, roots, nodes)


def _reaches(begin: int, goal: int, decided: Sequence[tuple[int, int]]) -> bool:
    """Whether what was decided leads from some of the states to the goal."""
    reads = dict(decided)
    seen, stack = 0, begin
    while stack:
        if stack & goal:
            return True
        bit = stack & -stack
        stack ^= bit
        seen |= bit
        stack |= reads.get(bit.bit_length() - 1, 0) & ~seen
    return False


def members(bits: int) -> Iterator[int]:
    """The positions of the bits that are set, rising."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _listed(path: Any) -> tuple[int, ...]:
    rows = []
    while path is not None:
        row, path = path
        rows.append(row)
    return tuple(reversed(rows))
