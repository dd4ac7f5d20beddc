"""One block: lower, saturate, grow candidates, price, choose, measure what the choice hangs on, choose again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TypeVar

from waxeq.backend.kernel import Kernel
from waxeq.backend.storage import CPU
from waxeq.basis.heads import COMPUTED
from waxeq.egraph.kernels import patterns
from waxeq.egraph.lower import Lowered, lower
from waxeq.egraph.program import RuleProgram
from waxeq.egraph.saturate import Limits, Saturation, Stop, saturate
from waxeq.egraph.snapshot import Snapshot
from waxeq.egraph.written import as_written
from waxeq.errors import BudgetError, FallbackError
from waxeq.events import FOREVER, Deadline, StageFinished, StageStarted
from waxeq.extract.candidates import Candidate, Space, State
from waxeq.extract.choice import Choice, Problem
from waxeq.extract.closer import closer, closer_within
from waxeq.extract.cuts import Cuts
from waxeq.extract.growing import candidates, is_brief, is_short
from waxeq.extract.joint import joined
from waxeq.extract.orders import Orders, dense_order
from waxeq.extract.price import other_means
from waxeq.extract.rough import Rough
from waxeq.extract.second import runners_up
from waxeq.extract.trees import trees
from waxeq.ir.blocks import Block
from waxeq.plan.schedule import BlockPlan, schedule
from waxeq.search.choosing import Chosen, choose
from waxeq.search.duel import MOST
from waxeq.search.session import Session
from waxeq.search.tuner import promises, tuned
from waxeq.search.widening import widened

Value = TypeVar("Value")
_EACH, _PART = 4e-4, 1e-2
"""Seconds that growing candidates takes for each e-node, about; and for each that is a part of what is computed, which
loops take in at all places where it is looked at."""
_WRITTEN = 0.5
"""Part of the time for candidates that is for those of the model as written, where it is short."""
_WORTH = 0.1
"""Part of the time that growing all candidates takes from which on it is worth beginning with."""
_UNTRIED = "not all rules were applied"
_UNGROWN = "not all ways to fuse were looked at"
_UNCHOSEN = "choosing was stopped"
_UNTIMED = "not all calls that matter were timed"
UNPOLISHED = "what was chosen was not polished and tuned"
"""What is said of a block whose time was over before that."""


@dataclass(frozen=True)
class Optimized:
    """The plan of a block and how it was found. A remembered block has no saturation, problem or choice.

    `beaten`: choices that the best one took the place of: the greedy one, where polishing found another, one of more
    error, and the best of calls that run one by one, or as one loop, where the other is cheaper. `note`: a sentence on
    what it fell back on: it is not remembered then. `left`: what its search did not come to, as time ran out; it had
    been given so many `seconds` (None: there was no budget). `of`: the model that a remembered block was searched for.
    """

    block: Block
    plan: BlockPlan
    remembered: bool
    facts: Mapping[str, object] = field(default_factory=dict)
    space: Space | None = None
    problem: Problem | None = None
    choice: Choice | None = None
    lowered: Lowered | None = None
    beaten: tuple[Choice, ...] = ()
    note: str = ""
    left: tuple[str, ...] = ()
    seconds: float | None = None
    of: str = ""

    def looked_through(self, *, timed: bool) -> Optimized:
        """The same where every choice among its candidates was looked at since, and, if so, every call that matters
        `timed`: what was cut short of finding candidates stays so."""
        done = (_UNCHOSEN, UNPOLISHED, *((_UNTIMED,) if timed else ()))
        return replace(self, left=tuple(t for t in self.left if t not in done))


@dataclass(frozen=True)
class Saturated:
    """A block as an e-graph, and how it was saturated; `hurried`: with the rules alone that are needed."""

    lowered: Lowered
    saturation: Saturation
    hurried: bool


def saturated(session: Session, block: Block, rules: RuleProgram | None = None) -> Saturated:
    """A block under all rules, or under those given; only under those that are needed when time is short."""
    lowered = lower(block.graph)
    hurried = rules is None and session.hurried
    chosen = rules or (session.rules.bare() if hurried else session.rules)
    found = saturate(lowered, chosen, _limits(session), session.worker, lambda: session.stopped)
    return Saturated(lowered, found, hurried)


def search_block(session: Session, block: Block, first: Saturated | None = None) -> Optimized:
    """Search without looking into the memory of optimized blocks; `first`: the saturated block, where it is known.

    Where the candidates that were grown make no whole plan, the block is planned as it is written. Raises FallbackError
    (with `strict`) in that case, BudgetError when no kernel can compute some value even so.
    """
    skipped = session.skipped
    first = first or stage(session, "saturate", lambda: saturated(session, block))
    found = _found(session, block, first, grow)
    if found is None:
        note = f"no choice of kernels makes every result of the block at {place(block)} once it is rewritten"
        if session.options.strict:
            raise FallbackError(note)
        bare = stage(session, "saturate", lambda: saturated(session, block, session.rules.bare()))
        found = _found(session, block, bare, lambda space, _, until: grow_all(space, until))
        if found is None:
            raise BudgetError(
                "no kernel of the installed backends can compute some value of the model; see `waxeq backends`"
            )
        found = replace(found, note=f"{note}: it is planned as written")
    untimed = (_UNTIMED,) if session.skipped > skipped else ()
    return replace(found, left=(*found.left, *untimed, *((UNPOLISHED,) if session.pressed else ())))


def _found(
    session: Session,
    block: Block,
    at: Saturated,
    grown: Callable[[Space, tuple[State, ...], Deadline], Grown],
) -> Optimized | None:
    lowered, saturation = at.lowered, at.saturation
    session.await_ready()
    unusable = len(session.prices.excluded)
    space, roots = make_space(session.usable, lowered, saturation.snapshot, session.options.threads, block.places)
    until = session.growing()
    found = stage(session, "candidates", lambda: grown(space, roots, until))
    session.share_again()
    rows = found.rows
    left = [_UNTRIED] if at.hurried or saturation.stop is Stop.TimeLimit else []
    left += [] if found.all else [_UNGROWN]
    chosen = stage(session, "extract", lambda: choose(session, space, rows, roots))
    if len(session.prices.excluded) > unusable:  # others are to do what was left to kernels that do not run here
        return _found(session, block, at, grown)
    if chosen is None:
        return None
    tunable = session.measuring and not session.hurried
    if tunable and promises(session, space, chosen.choice):  # first: widening may take all the time that is left
        chosen = stage(session, "tune", partial(_improved, session, space, rows, roots, chosen))
        rows = [*rows, *_added(rows, chosen)]
    wider = stage(session, "widen", partial(widened, session, space, rows, roots, chosen, found.text))
    chosen, rows = wider.chosen, wider.rows
    chosen = _closer(session, stage(session, "tune", partial(_improved, session, space, rows, roots, chosen)))
    chosen = _joined(session, chosen)
    facts = _facts(saturation, rows, chosen)
    choice = with_runners_up(chosen.problem, chosen.choice)
    left += [_UNCHOSEN] if choice.timed_out else []
    searched = Optimized(
        block, BlockPlan({}, (), (), {}), False, facts, space, chosen.problem, choice, lowered, chosen.beaten,
        left=tuple(left),
    )  # fmt: skip
    return replace(searched, plan=planned(searched, choice))


def _improved(
    session: Session, space: Space, rows: Sequence[Candidate], roots: tuple[State, ...], chosen: Chosen
) -> Chosen:
    """A choice with its calls tuned."""
    better = tuned(session, space, rows, roots, chosen.choice)
    if better is None:
        return chosen
    beaten = chosen.beaten if better.other is None else (better.other, *chosen.beaten)
    return replace(chosen, problem=better.problem, choice=better.choice, beaten=beaten)


def _added(rows: Sequence[Candidate], chosen: Chosen) -> list[Candidate]:
    """What was chosen that is none of these candidates: variants of some."""
    known = {id(c) for c in rows}
    return [p.candidate for p in chosen.choice.in_order() if id(p.candidate) not in known]


def _joined(session: Session, chosen: Chosen) -> Chosen:
    """A choice with its results made side by side, where that is cheaper."""
    other = joined(chosen.problem, chosen.choice, session.prices.together)
    if other is None:
        return chosen
    best, worse = sorted((chosen.choice, other), key=lambda c: c.cost)
    return replace(chosen, choice=best, beaten=(worse, *chosen.beaten))


def _closer(session: Session, chosen: Chosen) -> Chosen:
    """A choice with, of calls that take as long, those of less error; where whole plans are timed, the other one is a
    rival, and so is one of less error that takes hardly longer."""
    key, measured = session.prices.key, session.prices.model.measured

    def error(c: Candidate) -> float | None:
        timing = measured.get(key(c.call))
        return None if timing is None else timing.rms_relative_error

    other = closer(chosen.problem, chosen.choice, error)
    best = chosen if other is None else replace(chosen, choice=other, beaten=(chosen.choice, *chosen.beaten))
    near = closer_within(best.problem, best.choice, error, MOST[1] - 1.0)
    return best if near is None else replace(best, beaten=(*best.beaten, near))


def place(block: Block) -> str:
    """Where in the model the block begins."""
    return next((str(n.source) for n in block.graph.nodes if n.source is not None), "an unknown line")


def planned(found: Optimized, choice: Choice) -> BlockPlan:
    """The plan of a searched block that follows a choice."""
    space, lowered = found.space, found.lowered
    assert space is not None and lowered is not None, "a remembered block has no choices"
    return schedule(choice, lowered, space.snapshot, space.leaves, space.kernels, _sources(space.snapshot))


def stage(session: Session, name: str, run: Callable[[], Value]) -> Value:
    """What a stage of the search makes, with events when it begins and ends."""
    session.events.emit(StageStarted(name, ""))
    value = run()
    session.events.emit(StageFinished(name, session.deadline.elapsed, ""))
    return value


def _limits(session: Session) -> Limits:
    o = session.options
    return Limits(nodes=o.max_nodes, seconds=max(0.5, session.deadline.share(0.3)), memory_bytes=o.search_memory)


def make_space(
    kernels: Mapping[str, Kernel],
    lowered: Lowered,
    snapshot: Snapshot,
    threads: int = 1,
    places: Mapping[str, str] | None = None,
) -> tuple[Space, tuple[State, ...]]:
    """The extraction space of a saturated block, and the states its results must be in. `places`: the devices of leaves
    and results that lie elsewhere than in the memory of the CPU."""
    places = places or {}
    orders = Orders(lowered, snapshot)
    leaves: dict[int, State] = {}
    for v, name in enumerate(lowered.leaves):
        leaf, axes = lowered.leaves[name]
        number = snapshot.roots[f"%{v}"]
        if leaf.kind not in ("weight", "constant"):
            order = tuple(k for k in axes if k is not None)
            leaves.setdefault(number, State(number, order, places.get(name, CPU)))
    space = Space(snapshot, orders, kernels, patterns(kernels), leaves, threads)
    roots = []
    for name in lowered.outputs:
        number = snapshot.roots[name]
        present = snapshot.classes[number].axes
        order = tuple(k for k in dense_order(lowered.roots[name]) if k in present)
        roots.append(replace(leaves.get(number) or State(number, order), place=places.get(name, CPU)))
    return space, tuple(roots)


@dataclass(frozen=True)
class Grown:
    """Candidates, and whether they are all that are grown where time has no end. `text`: the e-graph of the model as it
    is written, where others were grown too."""

    rows: list[Candidate]
    all: bool
    text: Snapshot | None = None


def grow(space: Space, roots: Sequence[State], until: Deadline = FOREVER) -> Grown:
    """Candidates of a space, without those that rough prices rule out even if all loops were fused. Where there is no
    time for all, those of the model as written come first: rules may have written it in so many ways that nobody would
    come to what its own text is once it is fused."""
    own, whole, lasts = list[Candidate](), False, _EACH * space.snapshot.nodes
    rough = cache(lambda: _rough(space, fused=True))
    text = as_written(space.orders.lowered, space.snapshot, lambda: rough().maker)
    if lasts + _PART * _parts(space) > until.left:
        own = grow_all(replace(space, snapshot=text), until.within(_WRITTEN * until.left), roots=roots).rows
        whole = _whole(space, own, roots)
        if whole and until.left < _WORTH * lasts:
            return Grown(own, all=False)
    pruned = _with_text(rough().pruned({r.number for r in roots}), text)
    found = grow_all(replace(space, snapshot=pruned), until, whole, roots)
    have = {c.looks for c in found.rows} if own else set()
    return replace(found, rows=[*found.rows, *(c for c in own if c.looks not in have)], text=text)


def _parts(space: Space) -> int:
    """E-nodes that are a part of what is computed."""
    rows = (n for c in space.snapshot.classes for n in c.nodes if n.head == "Slice")
    return sum(any(x.head in COMPUTED for x in space.snapshot.classes[n.tensors[0]].nodes) for n in rows)


def _with_text(pruned: Snapshot, text: Snapshot) -> Snapshot:
    """What rough prices left, and all that the model's own text is made of: they do not see that loops over a few
    elements at a time take long, and who wrote a value down may have meant it to be made once."""
    pairs = zip(pruned.classes, text.classes, strict=True)
    return replace(pruned, classes=tuple(replace(c, nodes=(*dict.fromkeys((*c.nodes, *w.nodes)),)) for c, w in pairs))


def _whole(space: Space, rows: Sequence[Candidate], roots: Sequence[State]) -> bool:
    """Whether candidates make a whole plan."""
    made, left, before = set(space.leaves.values()), list(rows), -1
    while len(left) != before:
        before = len(left)
        made |= {c.out for c in left if all(s in made or space.free(s.number) for s in c.inputs)}
        left = [c for c in left if c.out not in made]
    return all(r in made or space.free(r.number) for r in roots)


def grow_all(
    space: Space, until: Deadline = FOREVER, spare: bool = False, roots: Sequence[State] | None = None
) -> Grown:
    """All candidates of a space, with `spare` beside a whole plan; where there is no time for them and the `roots` are
    known, those first that a plan of few calls can be made of. Growing cuts takes a third of the time at most."""
    cuts = Cuts(_rough(space), until.within(until.left / 3))
    few = trees(cuts) if roots is not None and not spare and is_short(space, until) else None
    if roots is not None and few is not None and is_brief(space, until):
        rows = candidates(space, cuts, until, trees=few)
        if _whole(space, rows, roots):
            return Grown(rows, all=False)
    return Grown(candidates(space, cuts, until, spare, few), not until.expired)


def _rough(space: Space, *, fused: bool = False) -> Rough:
    return Rough(space.snapshot, other_means(space), space.leaves, space.index_maps, space.pace, fused)


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


def _facts(saturation: Saturation, rows: Sequence[Candidate], chosen: Chosen) -> dict[str, object]:
    snapshot = saturation.snapshot
    return {
        "e_classes": len(snapshot.classes),
        "e_nodes": sum(len(c.nodes) for c in snapshot.classes),
        "stop": saturation.stop.name,
        "candidates": len(rows),
        "method": chosen.choice.method,
        "gap": chosen.choice.gap,
        "measured": chosen.measured,
    }
