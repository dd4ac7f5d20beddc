"""For every kernel of a plan: where it comes from, the rules that led to it, its cost and the runner-up's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel
from waxeq.egraph.installed import rule_files
from waxeq.egraph.kernels import Pattern, patterns
from waxeq.egraph.lower import Lowered, lower
from waxeq.egraph.program import RuleProgram
from waxeq.egraph.rules import CLASSES, Class, Rule, RuleFile, load_rules, read_file
from waxeq.egraph.saturate import Limits, Stop, Worker, saturate
from waxeq.egraph.snapshot import Snapshot
from waxeq.events import Deadline
from waxeq.inspect.derive import KERNELS, Law, derivations, laws, whole
from waxeq.inspect.follow import Calls, Nodes, Piece
from waxeq.inspect.match import Index
from waxeq.inspect.report import kernels as facts
from waxeq.inspect.restored import Parts, own_name, written_apart
from waxeq.ir.blocks import Block, cut
from waxeq.ir.graph import Graph, expand
from waxeq.ir.parts import parts_of
from waxeq.plan.encode import decode_rules
from waxeq.plan.plan import Plan, Step
from waxeq.search.result import Result

Rules = tuple[str, ...] | None

_SECONDS, _LEAST = 6.0, 1.0
"""What all blocks of a plan may take to be saturated again, and to be looked through for what led to kernels, and each
of them in any case. A search has a budget; some models take whatever they are given."""


@dataclass(frozen=True)
class Explained:
    """One kernel of a plan. `facts`: what the report says of it (formula, source places, cost, runner-up).

    `rules`: names of the rules that lead from the model as written to this kernel, in an order in which they can be
    applied; empty when the kernel computes what was written; None when today's rules do not lead there.
    """

    facts: Mapping[str, Any]
    rules: Rules


@dataclass(frozen=True)
class Explanation:
    """Why a plan is as it is. Prints as a table; `to_json()` is plain data. `own_rules`: those of the rules named that
    are not installed; the plan carries them."""

    model: str
    as_written: bool
    kernels: tuple[Explained, ...]
    notes: tuple[str, ...] = ()
    own_rules: tuple[Rule, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "as_written": self.as_written,
            "kernels": [{**e.facts, "rules": None if e.rules is None else list(e.rules)} for e in self.kernels],
            "own_rules": [{"name": r.name, "class": r.cls, "law": r.law, "place": r.place} for r in self.own_rules],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=120, no_color=True, highlight=False)
        with console.capture() as got:
            console.print(self)
        return got.get()

    def __rich__(self) -> Any:
        from waxeq.inspect.show import explain_view

        return explain_view(self.to_json())


def explain(result: Result) -> Explanation:
    """Why the plan of a result is as it is. Blocks that were remembered are saturated again."""
    found = {b.block.key: b.space.snapshot for b in result.blocks if b.space is not None}
    return explain_plan(result.plan, result.kernels, found)


def explain_plan(
    plan: Plan, kernels: Mapping[str, Kernel], snapshots: Mapping[str, Snapshot] | None = None
) -> Explanation:
    """Why a plan is as it is. `snapshots`: saturated blocks by key, where there are some already."""
    if plan.written:
        note = "nothing was found that is faster than the model as written, so that is what runs"
        return Explanation(plan.name, True, (), (note,))
    own = decode_rules(plan.about)
    found, ended = _rules_of(plan, kernels, snapshots or {}, own)
    rows = tuple(Explained(k, r) for k, r in zip(facts(plan, kernels), found, strict=True))
    notes = _missing(ended, bool(own)) if any(r is None for r in found) else ()
    used = {n for names in found for n in names or ()}
    return Explanation(plan.name, False, rows, notes, tuple(r for f in own for r in f.rules if r.name in used))


def _missing(ended: Sequence[str], carried: bool) -> tuple[str, ...]:
    """Why it is not said which rules led to some kernels. `ended`: what was not looked at to the end; `carried`: the
    plan has rules of its own."""
    if ended:
        return tuple(f"{text}; which rules led to kernels that are not traced back is not said" for text in ended)
    rules = " and with those it was searched with" if carried else ""
    return (f"some kernels cannot be traced back with the rules that are installed now{rules}",)


def _rules_of(
    plan: Plan, kernels: Mapping[str, Kernel], snapshots: Mapping[str, Snapshot], own: Sequence[RuleFile]
) -> tuple[list[Rules], tuple[str, ...]]:
    """For each step the rules that led to it; and, where none were found, sentences on what was not looked at."""
    again = _Again.of(plan.about.get("search", {}), kernels, own)
    graph = expand(plan.graph)
    pieces = list(_pieces(plan, again.kernels, cut(graph)))
    blocks, until = {p.block.key: lower(p.block.graph) for p in pieces}, Deadline(_SECONDS)
    try:
        grown = {k: (snapshots[k], "") if k in snapshots else again.saturated(x, until) for k, x in blocks.items()}
    finally:
        again.worker.close()
    calls = {k: Calls(Index.of(whole(grown[k][0], x)), again.patterns) for k, x in blocks.items()}
    nodes: dict[str, dict[int, Nodes | None]] = {key: {} for key in blocks}
    values: dict[str, tuple[int, ...]] = {x.name: (i,) for i, x in enumerate(graph.leaves)}
    parts = Parts(plan)
    for p in pieces:
        p, apart = _apart(parts.read_apart(p, values), graph, values)
        followed = p.follow(calls[p.block.key], blocks[p.block.key], values | apart)
        nodes[p.block.key] |= followed.nodes
        made = followed.values | parts.wholes(p, graph, followed.values)
        values |= {r: (*values.get(r, ()), *vs) for r, vs in made.items()}
    found, ended, until = dict[int, Rules](), dict[str, None](), Deadline(_SECONDS)
    for key, rows in nodes.items():
        rules, halted = _derived(rows, calls[key].index, blocks[key], again.laws, until)
        found |= rules
        if None in rules.values():
            ended |= dict.fromkeys(text for text in (grown[key][1], halted) if text)
    return [found[i] for i in range(len(plan.steps))], tuple(ended)


def _part(until: Deadline) -> Deadline:
    """The time for the next block."""
    return until.within(max(_LEAST, until.left))


def _pieces(plan: Plan, kernels: Mapping[str, Kernel], blocks: Sequence[Block]) -> Iterator[Piece]:
    """The blocks that a plan has steps of. Buffers are named by their block: b3.t7. Steps are by the kernels that their
    own are variants of: the e-graph knows no variants."""
    for n, b in enumerate(blocks):
        name = f"b{n}."
        own = {i: written_apart(s) for i, s in enumerate(plan.steps) if own_name(s).startswith(name)}
        steps = {i: replace(s, call=_plain(s.call, kernels)) for i, s in own.items()}
        if steps:
            yield Piece(name, b, steps, [f for f in plan.folds if f.writes.startswith(name)])


def _apart(p: Piece, graph: Graph, values: Mapping[str, tuple[int, ...]]) -> tuple[Piece, dict[str, tuple[int, ...]]]:
    """A piece whose steps read parts of buffers as buffers of their own, as the block has them, and what lies in these:
    the plan has no copies of parts that can be read where they are."""
    parts = {(w, first): v for v in p.block.leaves.values() for w, first in parts_of(graph, v)}
    named: dict[str, tuple[int, ...]] = {}
    steps: dict[int, Step] = {}
    for i, s in p.steps.items() if parts else ():
        reads, views = [*s.reads], [*s.call.operands]
        for n, (r, x) in enumerate(zip(s.reads, s.call.operands, strict=True)):
            of = next((v for w in values.get(r, ()) if (v := parts.get((w, x.offset))) is not None), None)
            if of is not None and graph.type(of).elements >= x.extent - x.offset:
                reads[n], views[n] = f"{r}[{x.offset}]", replace(x, offset=0)
                named[reads[n]] = (of,)
        steps[i] = replace(s, reads=tuple(reads), call=replace(s.call, operands=tuple(views)))
    return replace(p, steps=steps or p.steps), named


@dataclass(frozen=True)
class _Again:
    """What it takes to saturate a block again as it was when the plan was made, and to see how it came to be that."""

    kernels: Mapping[str, Kernel]
    patterns: Mapping[str, Pattern]
    program: RuleProgram
    nodes: int
    laws: Mapping[str, tuple[Law, ...]]
    worker: Worker

    @staticmethod
    def of(about: Mapping[str, Any], kernels: Mapping[str, Kernel], own: Sequence[RuleFile]) -> _Again:
        loosest: Class = about.get("class", "reassociating")
        algebra: bool = about.get("algebra", True)
        allowed = CLASSES[: CLASSES.index(loosest) + 1] if algebra else ()
        installed = [read_file(p) for p in rule_files()]
        names = {r.name for f in installed for r in f.rules}
        files = [*installed, *(f for f in own if not any(r.name in names for r in f.rules))]
        rules = [r for f in files for r in f.rules if r.cls in allowed]
        able = {n: k for n, k in kernels.items() if _took_part(n, k, about)}
        meanings = patterns(able)
        program = load_rules(loosest, meanings, algebra=algebra, files=files)
        made, nodes = {p.kernel: p for p in meanings.values()}, about.get("nodes", 60_000)
        return _Again(able, made, program, nodes, laws(rules, meanings), Worker.start())

    def saturated(self, lowered: Lowered, until: Deadline) -> tuple[Snapshot, str]:
        """The e-graph, and a sentence where it did not become what it would."""
        limits = Limits(self.nodes, _part(until).seconds or _LEAST)
        found = saturate(lowered, self.program, limits, self.worker)
        short = found.stop in (Stop.TimeLimit, Stop.MemoryLimit)
        return found.snapshot, f"applying the rules again was stopped: {found.stop.value}" if short else ""


def _took_part(name: str, kernel: Kernel, about: Mapping[str, Any]) -> bool:
    """Whether a kernel was there when the plan was searched: others would rule out candidates that it was made of."""
    here = name.partition(".")[0] in about["backends"] if "backends" in about else True
    return here and kernel.error <= about.get("tolerance", math.inf)


def _derived(
    nodes: Mapping[int, Nodes | None],
    index: Index,
    lowered: Lowered,
    by_head: Mapping[str, tuple[Law, ...]],
    until: Deadline,
) -> tuple[dict[int, Rules], str]:
    """For each step of a block and of its repeats the rules that led to it; and a sentence where time ran out."""
    targets = list(dict.fromkeys(m for rows in nodes.values() for m in rows or ()))
    known = derivations(index, lowered, by_head, targets, _part(until))
    rules = {i: _joined(None if rows is None else [known.rules[m] for m in rows]) for i, rows in nodes.items()}
    return rules, "" if known.complete else f"looking for rules was stopped after {_SECONDS:g} seconds"


def _plain(c: Call, kernels: Mapping[str, Kernel]) -> Call:
    """The call by the kernel that its own is a variant of."""
    backend, _, name = c.kernel.partition(".")
    known = kernels.get(c.kernel)
    base = name if known is None else known.variant_of or name
    return replace(c, kernel=f"{backend}.{base}")


def _joined(parts: Sequence[Rules] | None) -> Rules:
    """The rules of several derivations, each once; None when one is missing."""
    if parts is None or any(p is None for p in parts):
        return None
    return tuple(dict.fromkeys(r for p in parts for r in p or () if not r.startswith(KERNELS)))
