"""One rule, alone in an e-graph, applied to one instance: what does it say is equal?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from waxeq.egraph import schema
from waxeq.egraph.engine import EGraph, EngineError
from waxeq.egraph.installed import rule_files
from waxeq.egraph.rules import Rule, RuleFile, bodies, ground_facts, read_file
from waxeq.egraph.snapshot import RawClass
from waxeq.errors import RuleError
from waxeq.ir.term import Term, postorder

_ROUNDS = 3
"""Rounds given to a rule that needs facts which other rules of its file state."""


@dataclass(frozen=True)
class Equation:
    """What a rule made one class: `left` was there, `right` is new or was in another class. `sizes` of all axes."""

    left: Term
    right: Term
    sizes: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.left}\n  = {self.right}"


@dataclass(frozen=True)
class Fired:
    """How often the rule matched, by direction (the number of its body), the equations it made, and egglog's own words
    if the schema refused them."""

    matches: Mapping[int, int]
    equations: tuple[Equation, ...]
    refusal: str | None = None


class Context:
    """What a rule is loaded with: the declarations of every rule file, and the rules that only state facts."""

    def __init__(self, file: RuleFile) -> None:
        self.file = file

    @cached_property
    def files(self) -> tuple[RuleFile, ...]:
        """The installed files, in the order they are loaded, and the file itself."""
        installed = [read_file(p) for p in rule_files() if p.resolve() != self.file.path.resolve()]
        return (*installed, self.file)

    @cached_property
    def declarations(self) -> tuple[tuple[str, str], ...]:
        """Path and text of what each file declares."""
        return tuple((str(f.path), f.declarations) for f in self.files)

    @cached_property
    def rows(self) -> dict[str, list[tuple]]:
        """Relations and functions whose rows are stated outright, in the schema or in a file."""
        found: dict[str, list[tuple]] = {}
        for place, text in ((schema.PRELUDE, "\n".join(schema.prelude())), *self.declarations):
            for name, rows in ground_facts(text, place).items():
                found.setdefault(name, []).extend(rows)
        return found

    @cached_property
    def support(self) -> tuple[Rule, ...]:
        """Rules that make no classes one: they state facts that other rules ask for."""
        rules = [r for f in self.files for r in f.rules if r.text.startswith("(rule")]
        return tuple(r for r in rules if not any(b.unites for b in bodies(r)))

    @cached_property
    def strict(self) -> EGraph:
        """An e-graph as the compiler uses it, but for the rules."""
        return self._engine(None)

    @cached_property
    def lenient(self) -> EGraph:
        """The same where two types of one class are no error, to see what was made equal."""
        return self._engine([form.replace(":no-merge", ":merge old") for form in schema.prelude()])

    def renew(self) -> None:
        """Forget the strict e-graph: after an error inside an iteration it is not to be trusted."""
        del self.strict

    def _engine(self, prelude: Sequence[str] | None) -> EGraph:
        e = EGraph.of(prelude)
        for place, text in (*self.declarations, *((r.place, r.text) for r in self.support)):
            if text:
                e.run(text, place)
        return e


class Bench:
    """An e-graph in which one rule is tried again and again. Raises RuleError with file:line when egglog refuses the
    rule: a head it does not know, a variable that is not bound, sorts that do not fit."""

    def __init__(self, context: Context, rule: Rule) -> None:
        self.context, self.rule = context, rule
        self.rulesets = tuple(dict.fromkeys((*(r.ruleset for r in context.support), rule.ruleset)))
        self._text = "" if rule in context.support else rule.text  # support is loaded with the context
        e = context.strict
        e.run("(push)")
        try:
            e.run(self._text, rule.place)
        finally:
            e.run("(pop)")

    def fire(self, roots: Sequence[Term], sizes: Mapping[str, int]) -> Fired:
        """Apply the rule to the terms, once."""
        try:
            return self._fire(self.context.strict, roots, sizes, None)
        except (RuleError, EngineError) as e:
            self.context.renew()
            return self._fire(self.context.lenient, roots, sizes, str(e))

    def _fire(self, e: EGraph, roots: Sequence[Term], sizes: Mapping[str, int], refusal: str | None) -> Fired:
        e.run("(push)")
        e.known.clear()
        try:
            e.run(self._text, self.rule.place)
            e.run("\n".join(f'(set (size "{k}") {n})' for k, n in sizes.items()), "sizes")
            for r in roots:
                e.add(r)
            e.run("(run-schedule (saturate (run analysis)))", "analysis")
            matches = self._matches(e)
            if not matches:
                return Fired({}, (), refusal)
            e.run("(run-schedule (saturate (run analysis)))", "analysis")
            e.roots = {let: let for let in e.known.values()}
            raw, ends, after = e.raw()
            found = _Reading(raw, {t: ends[let] for t, let in e.known.items()}, set(roots))
            return Fired(matches, tuple(Equation(a, b, after) for a, b in found.pairs()), refusal)
        finally:
            e.run("(pop)")

    def _matches(self, e: EGraph) -> Mapping[int, int]:
        for _ in range(_ROUNDS):
            step = e.step("(seq " + " ".join(f"(run {r})" for r in self.rulesets) + ")")
            ways = {self.rule.name: 0, f"{self.rule.name}=>": 0, f"{self.rule.name}<=": 1}
            mine = {ways[k]: n for k, n in step.matches.items() if k in ways}
            if mine or not step.updated:
                return mine
            e.run("(run-schedule (saturate (run analysis)))", "analysis")
        return {}


class _Reading:
    """From classes back to terms: every class that was there keeps its term, new ones get one of theirs."""

    def __init__(self, raw: Mapping[Any, RawClass], ids: Mapping[Term, Any], roots: set[Term]) -> None:
        self.raw, self.ids = raw, ids
        self.before: dict[Any, list[Term]] = {}
        for t in [*roots, *postorder(*roots)]:
            here = self.before.setdefault(ids[t], [])
            if t not in here:
                here.append(t)
        self.terms: dict[Any, Term] = {c: ts[0] for c, ts in self.before.items()}
        self._name_new()

    def _name_new(self) -> None:
        changed = True
        while changed:
            changed = False
            for c, r in self.raw.items():
                if c not in self.terms:
                    for n in r.nodes:
                        if all(n[1][i] in self.terms for i in n[2]):
                            self.terms[c] = self._term(n)
                            changed = True
                            break

    def _term(self, node: tuple[str, tuple, tuple[int, ...]]) -> Term:
        head, args, places = node
        return Term(head, *(self.terms[a] if i in places else a for i, a in enumerate(args)))

    def _old(self, c: Any) -> set[tuple]:
        """The e-nodes of the terms that were in a class before."""
        return {
            (t.head, tuple(self.ids[a] if isinstance(a, Term) else a for a in t.args)) for t in self.before.get(c, ())
        }

    def pairs(self) -> Iterator[tuple[Term, Term]]:
        for c, r in self.raw.items():
            if c not in self.terms:
                continue
            first, old = self.terms[c], self._old(c)
            for t in self.before.get(c, ())[1:]:
                yield first, t
            for n in r.nodes:
                known = (n[0], n[1]) in old or any(n[1][i] not in self.terms for i in n[2])
                if not known and (new := self._term(n)) is not first:
                    yield first, new
