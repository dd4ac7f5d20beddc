"""One block: lower, saturate, grow candidates, price, choose, measure what the choice hangs on, choose again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel
from waxeq.egraph.kernels import patterns
from waxeq.egraph.lower import Lowered, lower
from waxeq.egraph.saturate import Limits, Saturation, saturate
from waxeq.egraph.snapshot import Snapshot
from waxeq.errors import BudgetError
from waxeq.events import StageFinished, StageStarted
from waxeq.extract.candidates import Candidate, Space, State, candidates
from waxeq.extract.choice import Choice, Problem
from waxeq.extract.cuts import Cuts
from waxeq.extract.exact import polish
from waxeq.extract.greedy import greedy
from waxeq.extract.orders import Orders, dense_order
from waxeq.extract.price import other_means
from waxeq.extract.rough import Rough
from waxeq.extract.second import runners_up
from waxeq.ir.blocks import Block
from waxeq.plan.encode import decode_block, encode_block
from waxeq.plan.schedule import BlockPlan, schedule
from waxeq.search.session import Session

_ROUNDS = 12
_RIVAL_ROUNDS = 5
_PER_ROUND = 16


@dataclass(frozen=True)
class Optimized:
    """The plan of a block and how it was found. A remembered block has no saturation, problem or choice."""

    block: Block
    plan: BlockPlan
    remembered: bool
    facts: Mapping[str, object] = field(default_factory=dict)
    space: Space | None = None
    problem: Problem | None = None
    choice: Choice | None = None
    lowered: Lowered | None = None


def optimize_block(session: Session, block: Block) -> Optimized:
    """The best plan for a block: remembered from the table, or searched for."""
    key = session.memo_key(block.key)
    known = None if session.options.fresh else session.table.memo_get("block", key)
    if known is not None:
        data = json.loads(known)
        return Optimized(block, decode_block(data["plan"]), True, data["facts"])
    found = search_block(session, block)
    if not session.hurried:  # a search that was cut short is not the last word on a block
        remember(session, found)
    return found


def remember(session: Session, found: Optimized) -> None:
    """Keep the plan of a block in the table, for every model that has an equal block."""
    payload = {"plan": encode_block(found.plan), "facts": dict(found.facts)}
    session.table.memo_put("block", session.memo_key(found.block.key), json.dumps(payload, sort_keys=True))


def search_block(session: Session, block: Block) -> Optimized:
    """Search without looking into the memory of optimized blocks."""
    lowered = lower(block.graph)
    rules = session.rules.bare() if session.hurried else session.rules
    saturation = _stage(
        session,
        "saturate",
        lambda: saturate(lowered, rules, _limits(session), session.worker, lambda: session.events.stop_requested),
    )
    space, roots = make_space(session.kernels, lowered, saturation.snapshot, session.options.threads)
    rows = _stage(session, "candidates", lambda: grow(space, roots))
    problem, choice, measured = _stage(session, "extract", lambda: choose(session, space, rows, roots))
    facts = _facts(saturation, rows, choice, measured)
    found = Optimized(block, BlockPlan({}, (), (), {}), False, facts, space, problem, choice, lowered)
    return replace(found, plan=planned(found, choice))


def planned(found: Optimized, choice: Choice) -> BlockPlan:
    """The plan of a searched block that follows a choice."""
    space, lowered = found.space, found.lowered
    assert space is not None and lowered is not None, "a remembered block has no choices"
    return schedule(choice, lowered, space.snapshot, space.leaves, space.kernels, _sources(space.snapshot))


def _stage(session: Session, name, run):
    session.events.emit(StageStarted(name, ""))
    value = run()
    session.events.emit(StageFinished(name, session.deadline.elapsed, ""))
    return value


def _limits(session: Session) -> Limits:
    o = session.options
    return Limits(nodes=o.max_nodes, seconds=max(0.5, session.deadline.share(0.3)), memory_bytes=o.max_memory)


def make_space(
    kernels: Mapping[str, Kernel], lowered: Lowered, snapshot: Snapshot, threads: int = 1
) -> tuple[Space, tuple[State, ...]]:
    """The extraction space of a saturated block, and the states its results must be in."""
    orders = Orders(lowered, snapshot)
    leaves: dict[int, State] = {}
    for v, name in enumerate(lowered.leaves):
        leaf, axes = lowered.leaves[name]
        number = snapshot.roots[f"%{v}"]
        if leaf.kind not in ("weight", "constant"):
            leaves.setdefault(number, State(number, tuple(k for k in axes if k is not None)))
    space = Space(snapshot, orders, kernels, patterns(kernels), leaves, threads)
    roots = []
    for name in lowered.outputs:
        number = snapshot.roots[name]
        present = snapshot.classes[number].axes
        roots.append(
            leaves.get(number) or State(number, tuple(k for k in dense_order(lowered.roots[name]) if k in present))
        )
    return space, tuple(roots)


def grow(space: Space, roots: Iterable[State]) -> list[Candidate]:
    """Candidates of a space, without those that rough prices rule out."""
    maps = frozenset[str]().union(*(k.heads for k in space.kernels.values() if k.form == "loops"))
    rough = Rough(space.snapshot, other_means(space), space.leaves, maps)
    near = replace(space, snapshot=rough.pruned({r.number for r in roots}))
    return candidates(near, Cuts(Rough(near.snapshot, other_means(near), near.leaves, maps)))


def choose(
    session: Session, space: Space, rows: list[Candidate], roots: tuple[State, ...]
) -> tuple[Problem, Choice, int]:
    """Choose, measure what the choice hangs on, choose again, until nothing that matters is unmeasured; then polish,
    and measure what only the polished choice uses. After some rounds a guess must promise a gain even at its worst:
    there is always one more that looks a little better than what was measured."""
    measuring = session.options.measure and session.options.cost != "roofline"
    polishing = session.options.polish
    measured = 0
    for n in range(_ROUNDS):
        problem = session.prices.problem(space, rows, roots, cautious=measuring and n >= _RIVAL_ROUNDS)
        choice = greedy(problem)
        if choice is None:
            raise BudgetError(
                "no kernel of the installed backends can compute some value of the model; see `waxeq backends`"
            )
        new = session.measure(_worth_measuring(problem, choice, n < _RIVAL_ROUNDS)) if measuring else 0
        if new == 0 and polishing and not session.hurried:
            choice = polish(problem, choice, session.options.polish_seconds, seed=session.options.seed)
            polishing = False
            new = session.measure(_worth_measuring(problem, choice, False)) if measuring else 0
            polishing = new > 0 and n < _ROUNDS - 2
        measured += new
        if new == 0 and not any(p.candidate.call.kernel in session.prices.excluded for p in choice.in_order()):
            break
    return problem, with_runners_up(problem, choice), measured


def _worth_measuring(problem: Problem, choice: Choice, with_rivals: bool) -> list[Call]:
    """Unmeasured calls that could change the choice: those chosen, then rivals whose low estimate beats what was
    chosen, the greatest possible gain first.
    """
    chosen = [p for p in choice.in_order() if p.estimate.source != "measured"]
    rivals = [
        (q.estimate.low - p.cost, q)
        for s, p in choice.made.items() for q in (*problem.makers[s], *problem.spare.get(s, ()))
        if with_rivals and q is not p and q.estimate.source != "measured" and q.estimate.low < p.cost
    ]  # fmt: skip
    rivals.sort(key=lambda row: row[0])
    calls = [p.candidate.call for p in (*chosen, *(q for _, q in rivals))]
    distinct = {(c.kernel, c.text, c.dims, c.layout): c for c in calls}
    return list(distinct.values())[: max(_PER_ROUND, len(chosen))]


def with_runners_up(problem: Problem, choice: Choice) -> Choice:
    """The choice with, for each state, what the next best way to make it would cost."""
    return replace(choice, runners_up=runners_up(problem, choice))


def _sources(snapshot: Snapshot) -> dict[int, tuple[str, ...]]:
    """Which values of the model as written each e-class stands for."""
    rows: dict[int, tuple[str, ...]] = {}
    for name, number in snapshot.roots.items():
        if name.startswith("%"):
            rows[number] = (*rows.get(number, ()), name)
    return rows


def _facts(saturation: Saturation, rows: Iterable[Candidate], choice: Choice, measured: int) -> dict[str, object]:
    snapshot = saturation.snapshot
    return {
        "e_classes": len(snapshot.classes),
        "e_nodes": sum(len(c.nodes) for c in snapshot.classes),
        "stop": saturation.stop.name,
        "candidates": len(list(rows)),
        "method": choice.method,
        "gap": choice.gap,
        "measured": measured,
    }
