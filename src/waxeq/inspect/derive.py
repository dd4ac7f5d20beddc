"""Which rules lead from the model as written to chosen e-nodes: a proof found backwards in the saturated e-graph."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from waxeq.basis.typing import types
from waxeq.egraph.kernels import Pattern
from waxeq.egraph.kernels import forms as kernel_forms
from waxeq.egraph.lower import Lowered
from waxeq.egraph.rules import Body, Rule, bodies
from waxeq.egraph.snapshot import EClass, ENode, Snapshot, looks, node_places
from waxeq.egraph.written import in_classes
from waxeq.events import FOREVER, Deadline
from waxeq.inspect.match import Index, Member, heads

KERNELS = "kernels/"
"""Start of the names of rules that only say what a kernel computes."""


@dataclass(frozen=True)
class Law:
    """One direction of a rule."""

    name: str
    body: Body


@dataclass(frozen=True)
class _Application:
    """`law` makes `made` where the e-nodes `needs` are there."""

    law: str
    made: Member
    needs: tuple[Member, ...]


@dataclass(frozen=True)
class Derived:
    """For each target the names of the rules that make it from the model as written, in an order they can run in; ()
    for what the model itself says, None where no derivation was found. `complete`: there is none then; else the time
    was over before all was looked at."""

    rules: Mapping[Member, tuple[str, ...] | None]
    complete: bool


def laws(rules: Iterable[Rule], patterns: Mapping[str, Pattern]) -> Mapping[str, tuple[Law, ...]]:
    """Rules, and what kernels mean, by the heads of the e-nodes they can make."""
    rows = [Law(r.name, b) for r in rules for b in bodies(r) if b.unites]
    for form in kernel_forms(patterns.values()):
        if form.startswith("(rule ("):
            name = form.rpartition(':name "')[2].partition('"')[0]
            rule = Rule(name, "kernels", "", "exact", 0.0, form, "kernels", 0)
            rows += [Law(name, b) for b in bodies(rule) if b.unites]
    found: dict[str, list[Law]] = {}
    for row in rows:
        for head in dict.fromkeys(h for e in row.body.right for h in heads(e)):
            found.setdefault(head, []).append(row)
    return {h: tuple(r) for h, r in found.items()}


def derivations(
    index: Index,
    lowered: Lowered,
    by_head: Mapping[str, tuple[Law, ...]],
    targets: Sequence[Member],
    until: Deadline = FOREVER,
) -> Derived:
    """The rules that lead to each target, as far as they are found `until` then. `index`: of a `whole` e-graph.

    What could have made the targets is looked for, what that needed, and so on, until all targets are derived; not what
    only those need that are.
    """
    given = index.members([x.term for x in lowered.roots.values()])
    best: dict[Member, _Application | None] = dict.fromkeys(given)
    rows, asked = list[_Application](), set[Member]()
    while (edge := [m for m in _needed(rows, best, targets) if m not in asked]) and not until.expired:
        rows += _made(index, by_head, edge, until)
        asked |= set(edge)
        best = _cheapest(given, rows)
    return Derived({t: _names(t, best) for t in targets}, not until.expired)


def whole(snapshot: Snapshot, lowered: Lowered) -> Snapshot:
    """The e-graph with the e-nodes that rules have put simpler ones in place of, and all of the model as written: of
    that, what only such e-nodes read is in classes of its own."""
    roots = {x.term: snapshot.roots[n] for n, x in lowered.roots.items() if n in snapshot.roots}
    nodes = [[*c.nodes, *c.replaced] for c in snapshot.classes]
    known = {looks(n.head, n.args): i for i, ns in enumerate(nodes) for n in ns}
    more: list[EClass] = []
    kinds = types(*roots)
    own = in_classes(roots, lambda t, args: known.get(looks(t.head, args), roots.get(t, len(nodes))))
    for t, args, number in own:
        if number == len(nodes):
            value = t.args[0] if t.head == "Num" else None
            more.append(EClass(frozenset(kinds[t].axes), kinds[t].dtype, False, value, ()))
            nodes.append([])
        if looks(t.head, args) not in known:
            nodes[number].append(ENode(t.head, args, node_places(t.head, {})))
    rows = zip((*snapshot.classes, *more), nodes, strict=True)
    return replace(snapshot, classes=tuple(replace(c, nodes=tuple(ns), replaced=()) for c, ns in rows))


def _made(
    index: Index, by_head: Mapping[str, tuple[Law, ...]], members: Iterable[Member], until: Deadline
) -> Iterator[_Application]:
    """Applications that could have made e-nodes."""
    for member in members:
        if until.expired:
            return
        for law in by_head.get(member[1].head, ()):
            for needs in dict.fromkeys(index.applications(law.body, member)):
                if member not in needs:
                    yield _Application(law.name, member, needs)


def _needed(
    rows: Sequence[_Application], best: Mapping[Member, _Application | None], targets: Sequence[Member]
) -> list[Member]:
    """The targets that are not derived yet, and what they may be derived from that is not, the nearest first."""
    ways: dict[Member, list[_Application]] = {}
    for a in rows:
        ways.setdefault(a.made, []).append(a)
    found = dict.fromkeys(t for t in targets if t not in best)
    waiting = list(found)
    for m in waiting:
        new = [n for a in ways.get(m, ()) for n in a.needs if n not in best and n not in found]
        found |= dict.fromkeys(new)
        waiting += dict.fromkeys(new)
    return list(found)


def _cheapest(given: set[Member], rows: Sequence[_Application]) -> dict[Member, _Application | None]:
    """For each e-node that can be made, the last application of a derivation with fewest steps (Knuth's algorithm)."""
    missing = [len(set(r.needs) - given) for r in rows]
    users: dict[Member, list[int]] = {}
    for i, r in enumerate(rows):
        for m in set(r.needs) - given:
            users.setdefault(m, []).append(i)
    cost: dict[Member, int] = {}
    best: dict[Member, _Application | None] = dict.fromkeys(given)
    heap = [(1, i) for i, n in enumerate(missing) if n == 0]
    heapq.heapify(heap)
    while heap:
        steps, i = heapq.heappop(heap)
        made = rows[i].made
        if made in best:
            continue
        best[made], cost[made] = rows[i], steps
        for u in users.get(made, ()):
            missing[u] -= 1
            if missing[u] == 0:
                heapq.heappush(heap, (1 + sum(cost.get(m, 0) for m in set(rows[u].needs)), u))
    return best


def _names(target: Member, best: Mapping[Member, _Application | None]) -> tuple[str, ...] | None:
    """The rules of a derivation, first things first."""
    if target not in best:
        return None
    names: list[str] = []
    done: set[Member] = set()

    def go(m: Member) -> None:
        a = best[m]
        if m in done or a is None:
            return
        done.add(m)
        for need in a.needs:
            go(need)
        names.append(a.law)

    go(target)
    return tuple(names)
