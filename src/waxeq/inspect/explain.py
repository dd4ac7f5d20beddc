"""For every kernel of a plan: where it comes from, the rules that led to it, its cost and the runner-up's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel
from waxeq.egraph.kernels import patterns
from waxeq.egraph.lower import Lowered, lower
from waxeq.egraph.program import RuleProgram
from waxeq.egraph.rules import CLASSES, Class, Rule, RuleFile, load_rules, read_file, rule_files
from waxeq.egraph.saturate import Limits, Worker, saturate
from waxeq.extract.candidates import Candidate, Space, State
from waxeq.inspect.derive import KERNELS, Law, derivations, laws
from waxeq.inspect.match import Member
from waxeq.inspect.report import kernels as facts
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.plan.encode import decode_rules
from waxeq.plan.plan import Plan, Step
from waxeq.search.block import grow, grow_all, make_space
from waxeq.search.result import Result

Rules = tuple[str, ...] | None
Searched = tuple[Space, tuple[State, ...]]
"""A saturated block, and the states that its results must be in."""


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
    searched = [(b.block.key, b.space, b.problem) for b in result.blocks]
    spaces = {
        key: (space, problem.roots) for key, space, problem in searched if space is not None and problem is not None
    }
    return explain_plan(result.plan, result.kernels, spaces)


def explain_plan(
    plan: Plan, kernels: Mapping[str, Kernel], spaces: Mapping[str, Searched] | None = None
) -> Explanation:
    """Why a plan is as it is. `spaces`: saturated blocks by key, where there are some already."""
    if plan.written:
        note = "nothing was found that is faster than the model as written, so that is what runs"
        return Explanation(plan.name, True, (), (note,))
    own = decode_rules(plan.about)
    found = _rules_of(plan, kernels, spaces or {}, own)
    rows = tuple(Explained(k, r) for k, r in zip(facts(plan, kernels), found, strict=True))
    notes = []
    if any(r is None for r in found):
        carried = " and with those it was searched with" if own else ""
        notes.append(f"some kernels cannot be traced back with the rules that are installed now{carried}")
    used = {n for names in found for n in names or ()}
    return Explanation(plan.name, False, rows, tuple(notes), tuple(r for f in own for r in f.rules if r.name in used))


def _rules_of(
    plan: Plan, kernels: Mapping[str, Kernel], spaces: Mapping[str, Searched], own: Sequence[RuleFile]
) -> list[Rules]:
    """For each step the rules that led to it."""
    again = _Again.of(plan.about.get("search", {}), kernels, own)
    blocks = cut(expand(plan.graph))
    steps: dict[str, dict[int, Step]] = {}
    for i, s in enumerate(plan.steps):
        number = int(s.writes.partition(".")[0][1:])  # buffers are named by their block: b3.t7
        steps.setdefault(blocks[number].key, {})[i] = s
    found: dict[int, Rules] = {}
    try:
        for b in {b.key: b for b in blocks}.values():
            lowered = lower(b.graph)
            searched = spaces.get(b.key) or again.search(lowered)
            found |= _block_rules(steps.get(b.key, {}), lowered, searched, again.laws)
    finally:
        again.worker.close()
    return [found[i] for i in range(len(plan.steps))]


@dataclass(frozen=True)
class _Again:
    """What it takes to saturate a block again as it was when the plan was made."""

    kernels: Mapping[str, Kernel]
    program: RuleProgram
    nodes: int
    threads: int
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
        limits = about.get("nodes", 60_000), about.get("threads", 1)
        return _Again(able, program, *limits, laws(rules, meanings), Worker.start())

    def search(self, lowered: Lowered) -> Searched:
        found = saturate(lowered, self.program, Limits(self.nodes), self.worker)
        return make_space(self.kernels, lowered, found.snapshot, self.threads)


def _took_part(name: str, kernel: Kernel, about: Mapping[str, Any]) -> bool:
    """Whether a kernel was there when the plan was searched: others would rule out candidates that it was made of."""
    here = name.partition(".")[0] in about["backends"] if "backends" in about else True
    return here and kernel.error <= about.get("tolerance", math.inf)


def _block_rules(
    steps: Mapping[int, Step], lowered: Lowered, searched: Searched, by_head: Mapping[str, tuple[Law, ...]]
) -> dict[int, Rules]:
    """For each step of one block (or of its repeats) the rules that led to it."""
    space, roots = searched
    wanted_calls = {i: _plain(s.call, space.kernels) for i, s in steps.items()}
    own = {c.kernel for c in wanted_calls.values()}  # most of the time goes into calls of others
    candidates = _candidates(grow(space, roots, only=own).rows)
    if any(_looks(c) not in candidates for c in wanted_calls.values()):  # today's prices rule out others
        candidates = _candidates(grow_all(space, roots, only=own).rows)
    targets: dict[int, tuple[Member, ...] | None] = {}
    for i, call in wanted_calls.items():
        same = candidates.get(_looks(call), ())
        chosen = next((c for c in same if c.call == call), same[0] if same else None)
        targets[i] = None if chosen is None else chosen.nodes
    wanted = list(dict.fromkeys(m for ms in targets.values() for m in ms or ()))
    found = derivations(space.snapshot, lowered, by_head, wanted)
    return {i: _joined(None if ms is None else [found[m] for m in ms]) for i, ms in targets.items()}


def _candidates(rows: Sequence[Candidate]) -> dict[tuple[str, ...], list[Candidate]]:
    """Candidates by the looks of their calls."""
    found: dict[tuple[str, ...], list[Candidate]] = {}
    for c in rows:
        found.setdefault(_looks(c.call), []).append(c)
    return found


def _plain(c: Call, kernels: Mapping[str, Kernel]) -> Call:
    """The call by the kernel that its own is a variant of: candidates are without variants."""
    backend, _, name = c.kernel.partition(".")
    known = kernels.get(c.kernel)
    base = name if known is None else known.variant_of or name
    return replace(c, kernel=f"{backend}.{base}")


def _looks(c: Call) -> tuple[str, ...]:
    return c.kernel, c.text, c.dims, c.layout


def _joined(parts: Sequence[Rules] | None) -> Rules:
    """The rules of several derivations, each once; None when one is missing."""
    if parts is None or any(p is None for p in parts):
        return None
    return tuple(dict.fromkeys(r for p in parts for r in p or () if not r.startswith(KERNELS)))
