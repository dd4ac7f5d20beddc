"""Plans of random programs, many at a time: programs share one e-graph, and what is extracted is not the best plan but
one at random, for every plan that can be extracted must be right."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from waxeq.backend.discover import backends, kernels
from waxeq.backend.kernel import Kernel
from waxeq.cost.estimate import Estimate
from waxeq.egraph.kernels import patterns
from waxeq.egraph.lower import Lowered, lower
from waxeq.egraph.program import RuleProgram
from waxeq.egraph.rules import load_rules
from waxeq.egraph.saturate import Limits, Worker, saturate
from waxeq.egraph.snapshot import ENode, Snapshot
from waxeq.errors import BudgetError
from waxeq.extract.candidates import Candidate, Space, State
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.cuts import Cuts
from waxeq.extract.greedy import greedy
from waxeq.extract.growing import candidates
from waxeq.extract.price import other_means
from waxeq.extract.rough import Means, Rough
from waxeq.ir.blocks import Block
from waxeq.ir.graph import Graph, Leaf, Node, expand
from waxeq.ir.interpret import interpret
from waxeq.ir.types import is_float
from waxeq.memory.plan import assign_plan
from waxeq.options import DEFAULT_TOLERANCE
from waxeq.plan.compose import compose
from waxeq.plan.plan import Plan
from waxeq.plan.schedule import schedule
from waxeq.plan.sections import in_sections
from waxeq.runtime.program import Program
from waxeq.search.block import make_space
from waxeq.testing.programs import RandomProgram, rms

NODES = 100
"""E-nodes that saturation may make of one program."""
_MORE = (0.0, 0.0, 0.3, 1.0)
"""How much of the e-graph is looked at besides what was drawn, until a plan is found: what a kernel takes is not known
before it is asked."""
_FUSED = (0.0, 0.7, 1.4)
"""Powers of the number of e-nodes of a call that its price rises with: fused calls are nearly always, often or seldom
the cheapest."""
_TRIES = 200
"""Classes that are looked at before one is left out."""
_WAYS = 20
"""Ways to have a class that are looked at."""
_CUTS = 0.25
"""The part of the cuts of several e-nodes that calls are made from. All are at the end: the maximum of nothing, which
no kernel has, is there in what is computed for each element of nothing."""
_CONDITION = 200.0
"""How much larger an error that a kernel adds may be in a result: programs are well-conditioned."""


@dataclass(frozen=True)
class Part:
    """One program in an e-graph: its graph, expanded and with its own names, its terms, and what can be reached."""

    graph: Graph
    lowered: Lowered
    snapshot: Snapshot

    def only(self, snapshot: Snapshot) -> Part:
        """The part in a smaller e-graph of the same class numbers."""
        count = len(self.graph.leaves)
        kept = {n: i for n, i in snapshot.roots.items() if n in self.lowered.outputs or int(n[1:]) < count}
        return replace(self, snapshot=_reachable(snapshot, kept))


@dataclass
class Planner:
    """Kernels, rules and the process that saturates; used as a context manager."""

    kernels: Mapping[str, Kernel]
    rules: RuleProgram
    worker: Worker

    @staticmethod
    def open() -> Planner:
        """A planner with every installed backend, those kernels that approximate too, and the rules that may
        reassociate."""
        worker = Worker.start()
        found = {n: k for n, k in kernels(backends(())).items() if k.error <= DEFAULT_TOLERANCE}
        return Planner(found, load_rules("reassociating", patterns(found)), worker)

    def __enter__(self) -> Planner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.worker.close()

    def saturated(self, programs: Sequence[RandomProgram]) -> list[Part]:
        """Each program in an e-graph that all of them were saturated in."""
        graphs = [_prefixed(expand(p.graph), f"p{i}.") for i, p in enumerate(programs)]
        together, numbers = _union(graphs)
        lowered = lower(together)
        limits = Limits(NODES * len(programs), 120.0, 2 << 30)
        snapshot = saturate(lowered, self.rules, limits, self.worker).snapshot
        return [_part(lowered, snapshot, g, n) for g, n in zip(graphs, numbers, strict=True)]

    def plan(self, part: Part, rng: random.Random) -> Plan:
        """A random plan. Raises BudgetError when the kernels cannot compute the program."""
        space, roots = make_space(self.kernels, part.lowered, part.snapshot)
        rough = Rough(part.snapshot, other_means(space), space.leaves, space.index_maps)
        kernels = self._some(rng)
        for more in _MORE:
            few = part if more == 1.0 else part.only(_thinned(rough, space.leaves, rng, more))
            space, roots = make_space(kernels, few.lowered, few.snapshot)
            rougher = Rough(few.snapshot, other_means(space), space.leaves, space.index_maps)
            rows = candidates(space, _some_cuts(Cuts(rougher), rng, _CUTS if more < 1.0 else 1.0))
            choice = greedy(_problem(space, rows, roots, rng))
            if choice is not None:
                return self._written(few, choice, space)
            kernels = self.kernels
        raise BudgetError("no kernel computes some value of the program")

    def _some(self, rng: random.Random) -> Mapping[str, Kernel]:
        """All kernels but some of those that fuse, as most of what they could do together is not drawn anyway."""
        fusing = [n for n, k in self.kernels.items() if k.form == "loops"]
        whole = rng.choice(sorted({n.partition(".")[0] for n in fusing}))
        left = {n for n in fusing if n.partition(".")[0] != whole and rng.random() < 0.7}
        return {n: k for n, k in self.kernels.items() if n not in left}

    def _written(self, part: Part, choice: Choice, space: Space) -> Plan:
        plan = schedule(choice, part.lowered, part.snapshot, space.leaves, self.kernels, {})
        g = part.graph
        leaves = {x.name: i for i, x in enumerate(g.leaves)}
        block = Block(g, leaves, dict(g.outputs), tuple(v for v, _ in g.values()), "")
        whole = compose(g, [block], [plan], "random", [n for n, _ in g.outputs], {})
        return assign_plan(in_sections(whole, self.kernels), self.kernels).check()


def errors(program: RandomProgram, plan: Plan, kernels: Mapping[str, Kernel]) -> list[str]:
    """What is wrong with a plan's results against float64, in words."""
    prefix = plan.outputs[0].name.partition(".")[0] + "."
    run = Program(plan, kernels, {prefix + n: a for n, a in program.weights.items()})
    got = run.flat_results({prefix + n: a for n, a in program.inputs.items()})
    want = interpret(program.graph, {**program.inputs, **program.weights}, oracle=True)
    added = _CONDITION * sum({s.call.kernel: kernels[s.call.kernel].error for s in plan.steps}.values())
    rows = (_error(n, program, got[prefix + n], want[n], added) for n, _ in program.graph.outputs)
    return [r for r in rows if r is not None]


def _error(name: str, program: RandomProgram, got: np.ndarray, want: np.ndarray, added: float) -> str | None:
    t = program.graph.type(dict(program.graph.outputs)[name])
    if (got.dtype, got.shape) != (t.numpy, t.shape):
        return f"{name} is {got.dtype}{list(got.shape)}, not {t}"
    if not is_float(t.dtype):
        same = np.array_equal(got, want)
        return None if same else f"{name} ({t}) has {np.mean(got != want):.0%} wrong elements"
    error, size, allowed = rms(got.astype(np.float64) - want), rms(want), program.allowed[name] + added
    if error <= allowed * size:
        return None
    return f"{name} ({t}) has relative RMS error {error / max(size, 1e-300):.1e}, over {allowed:.1e}"


# -- several programs as one


def _prefixed(g: Graph, prefix: str) -> Graph:
    leaves = tuple(Leaf(prefix + x.name, x.type, x.kind) for x in g.leaves)
    outputs = tuple((prefix + n, v) for n, v in g.outputs)
    return replace(g, leaves=leaves, outputs=outputs, constants={prefix + n: a for n, a in g.constants.items()})


def _union(graphs: Sequence[Graph]) -> tuple[Graph, list[dict[int, int]]]:
    """One graph of all, and for each the number of every value in it."""
    leaves = [x for g in graphs for x in g.leaves]
    nodes: list[Node] = []
    numbers: list[dict[int, int]] = []
    before = 0
    for g in graphs:
        number = {i: before + i for i in range(len(g.leaves))}
        before += len(g.leaves)
        for v, n in g.values():
            number[v] = len(leaves) + len(nodes)
            nodes.append(replace(n, inputs=tuple(number[i] for i in n.inputs)))
        numbers.append(number)
    outputs = tuple((n, number[v]) for g, number in zip(graphs, numbers, strict=True) for n, v in g.outputs)
    return Graph(tuple(leaves), tuple(nodes), outputs).check(), numbers


def _part(lowered: Lowered, snapshot: Snapshot, g: Graph, number: Mapping[int, int]) -> Part:
    """What belongs to one of the programs, with the program's own numbers."""
    outputs = tuple(n for n, _ in g.outputs)
    names = {n: n for n in outputs} | {f"%{v}": f"%{w}" for v, w in number.items()}
    roots = {n: lowered.roots[w] for n, w in names.items()}
    leaves = {x.name: lowered.leaves[x.name] for x in g.leaves}
    own = _reachable(snapshot, {n: snapshot.roots[w] for n, w in names.items()})
    return Part(g, Lowered(leaves, roots, outputs, lowered.sizes), own)


def _reachable(snapshot: Snapshot, roots: Mapping[str, int]) -> Snapshot:
    order: dict[int, int] = {}
    stack = list(roots.values())
    while stack:
        i = stack.pop()
        if i not in order:
            order[i] = len(order)
            stack += [a for n in snapshot.classes[i].nodes for a in n.tensors]

    def renumbered(n: ENode) -> ENode:
        return ENode(n.head, tuple(order[a] if p in n.places else a for p, a in enumerate(n.args)), n.places)

    old = [snapshot.classes[i] for i in order]
    classes = tuple(replace(c, nodes=tuple(map(renumbered, c.nodes))) for c in old)
    return Snapshot(classes, {n: order[i] for n, i in roots.items()}, snapshot.sizes)


# -- a plan at random


def _thinned(rough: Rough, leaves: Collection[int], rng: random.Random, more: float) -> Snapshot:
    """The e-graph with one e-node a class, drawn so that none needs itself, and of the others the part `more`. Views
    stay, as whether one is free depends on strides."""
    drawn = _drawn(rough, leaves, rng)
    seen = {m.node for m in rough.means if m.work > 0.0}
    inside = {(i, n) for m in drawn.values() for i, n in m.inside}
    classes = []
    for i, c in enumerate(rough.snapshot.classes):
        kept = drawn.get(i)
        alike = kept is None or kept.node not in rough.single.get(i, ())  # what one kernel refuses another may take
        reads = frozenset() if kept is None else frozenset(kept.inputs)
        few = [
            n for n in c.nodes
            if n not in seen or (i, n) in inside or rng.random() < more
            or (kept is None or n is kept.node or (alike and frozenset(n.tensors) == reads))
        ]  # fmt: skip
        rng.shuffle(few)  # equals are taken in their order
        classes.append(c if c.weights_only else replace(c, nodes=tuple(few)))
    return replace(rough.snapshot, classes=tuple(classes))


def _drawn(rough: Rough, leaves: Collection[int], rng: random.Random) -> Mapping[int, Means]:
    """A way to have each class, any of them as likely as another, such that none needs what it is for. Classes for
    which that takes long to find are left out."""
    ways: dict[int, list[Means]] = {}
    for m in rough.means:
        ways.setdefault(m.number, []).append(m)
    drawn: dict[int, Means] = {}
    there = {*leaves, *(i for i, c in enumerate(rough.snapshot.classes) if c.weights_only)}

    def settled(i: int, above: set[int], tries: list[int]) -> bool:
        if i in drawn or i in there:
            return True
        tries[0] -= 1
        if i in above or tries[0] < 0:
            return False
        above.add(i)
        for m in rng.sample(ways.get(i, ()), min(_WAYS, len(ways.get(i, ())))):
            if tries[0] < 0:
                break
            if all(settled(a, above, tries) for a in m.inputs):
                drawn[i] = m
                break
        above.discard(i)
        return i in drawn

    for i in range(len(rough.snapshot.classes)):
        settled(i, set(), [_TRIES])
    return drawn


def _some_cuts(cuts: Cuts, rng: random.Random, part: float) -> Cuts:
    """Those of one e-node, without which there is seldom a plan, and of the others about that part."""
    for i, rows in cuts.best.items():
        cuts.best[i] = tuple(c for c in rows if len(c.inside) == 1 or rng.random() < part)
    return cuts


def _problem(space: Space, rows: Sequence[Candidate], roots: tuple[State, ...], rng: random.Random) -> Problem:
    """The extraction problem at random prices."""
    makers: dict[State, list[Priced]] = {}
    fused = rng.choice(_FUSED)
    for c in rows:
        price = rng.lognormvariate(0.0, 1.0) * max(1, len(c.nodes)) ** fused * (1 + 0.1 * len(c.inputs)) * 1e-6
        makers.setdefault(c.out, []).append(Priced(c, Estimate(price, price, price, "roofline")))
    given = set(space.leaves.values())
    given |= {s for ps in makers.values() for p in ps for s in p.candidate.inputs if space.free(s.number)}
    given |= {r for r in roots if space.free(r.number)}
    return Problem({s: tuple(ps) for s, ps in makers.items()}, roots, frozenset(given))
