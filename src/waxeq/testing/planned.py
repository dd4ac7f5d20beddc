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
from waxeq.extract.candidates import Candidate, Space, State, candidates
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.cuts import Cuts
from waxeq.extract.greedy import greedy
from waxeq.extract.price import other_means
from waxeq.extract.rough import Rough
from waxeq.ir.blocks import Block
from waxeq.ir.graph import Graph, Leaf, Node, expand
from waxeq.ir.interpret import interpret
from waxeq.ir.types import is_float
from waxeq.memory.plan import assign_plan
from waxeq.plan.compose import compose
from waxeq.plan.plan import Plan
from waxeq.plan.schedule import schedule
from waxeq.runtime.program import Program
from waxeq.search.block import make_space
from waxeq.testing.programs import RandomProgram, rms

NODES = 150
"""E-nodes that saturation may make of one program."""
_MORE = (0.15, 0.4, 1.0)
"""How much of the e-graph is looked at, until a plan is found: what a kernel takes is not known before it is asked."""


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
        """A planner with every installed backend and the rules that may reassociate."""
        worker = Worker.start()
        found = {n: k for n, k in kernels(backends(())).items() if k.error == 0.0}
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
        for more in _MORE:
            rough = Rough(part.snapshot, other_means(space), space.leaves)
            few = part if more == 1.0 else part.only(_thinned(rough, space.leaves, rng, more))
            space, roots = make_space(self.kernels, few.lowered, few.snapshot)
            rows = candidates(space, Cuts(Rough(few.snapshot, other_means(space), space.leaves)))
            choice = greedy(_problem(space, rows, roots, rng))
            if choice is not None:
                return self._written(few, choice, space)
        raise BudgetError("no kernel computes some value of the program")

    def _written(self, part: Part, choice: Choice, space: Space) -> Plan:
        plan = schedule(choice, part.lowered, part.snapshot, space.leaves, self.kernels, {})
        g = part.graph
        leaves = {x.name: i for i, x in enumerate(g.leaves)}
        block = Block(g, leaves, dict(g.outputs), tuple(v for v, _ in g.values()), "")
        whole = compose(g, [block], [plan], "random", [n for n, _ in g.outputs], {})
        return assign_plan(whole, self.kernels).check()


def errors(program: RandomProgram, plan: Plan, kernels: Mapping[str, Kernel]) -> list[str]:
    """What is wrong with a plan's results against float64, in words."""
    prefix = plan.outputs[0].name.partition(".")[0] + "."
    run = Program(plan, kernels, {prefix + n: a for n, a in program.weights.items()})
    got = run.flat_results({prefix + n: a for n, a in program.inputs.items()})
    want = interpret(program.graph, {**program.inputs, **program.weights}, oracle=True)
    rows = (_error(n, program, got[prefix + n], want[n]) for n, _ in program.graph.outputs)
    return [r for r in rows if r is not None]


def _error(name: str, program: RandomProgram, got: np.ndarray, want: np.ndarray) -> str | None:
    t = program.graph.type(dict(program.graph.outputs)[name])
    if (got.dtype, got.shape) != (t.numpy, t.shape):
        return f"{name} is {got.dtype}{list(got.shape)}, not {t}"
    if not is_float(t.dtype):
        same = np.array_equal(got, want)
        return None if same else f"{name} ({t}) has {np.mean(got != want):.0%} wrong elements"
    error, size = rms(got.astype(np.float64) - want), rms(want)
    if error <= program.allowed[name] * size:
        return None
    return f"{name} ({t}) has relative RMS error {error / max(size, 1e-300):.1e}, over {program.allowed[name]:.1e}"


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
        return replace(n, args=tuple(order[a] if p in n.places else a for p, a in enumerate(n.args)))

    old = [snapshot.classes[i] for i in order]
    classes = tuple(replace(c, nodes=tuple(map(renumbered, c.nodes))) for c in old)
    return Snapshot(classes, {n: order[i] for n, i in roots.items()}, snapshot.sizes)


# -- a plan at random


def _thinned(rough: Rough, leaves: Collection[int], rng: random.Random, more: float) -> Snapshot:
    """The e-graph with few e-nodes a class: the cheapest at random prices, and of the others the part `more`. Views
    stay, as whether one is free depends on strides."""
    rough.means = [replace(m, work=m.work * rng.lognormvariate(0.0, 1.5)) for m in rough.means]
    rough.flow.clear()
    rough._spread(leaves)
    seen = {m.node for m in rough.means if m.work > 0.0}
    classes = []
    for i, c in enumerate(rough.snapshot.classes):
        kept = rough.maker.get(i)
        reads = None if kept is None else frozenset(kept.tensors)  # what one kernel refuses another may take
        few = (n for n in c.nodes if frozenset(n.tensors) == reads or n not in seen or rng.random() < more)
        classes.append(c if c.weights_only else replace(c, nodes=tuple(few)))
    return replace(rough.snapshot, classes=tuple(classes))


def _problem(space: Space, rows: Sequence[Candidate], roots: tuple[State, ...], rng: random.Random) -> Problem:
    """The extraction problem at random prices."""
    makers: dict[State, list[Priced]] = {}
    for c in rows:
        price = rng.lognormvariate(0.0, 1.0) * (1 + 0.1 * len(c.inputs)) * 1e-6
        makers.setdefault(c.out, []).append(Priced(c, Estimate(price, price, price, "roofline")))
    given = set(space.leaves.values())
    given |= {s for ps in makers.values() for p in ps for s in p.candidate.inputs if space.free(s.number)}
    given |= {r for r in roots if space.free(r.number)}
    return Problem({s: tuple(ps) for s, ps in makers.items()}, roots, frozenset(given))
