"""Certificates for rules: a rule may run only after it has been tried on instances made to break it.

For each rule, typed instances of its left side are drawn; each is put in an e-graph with that one rule, and whatever
the rule makes one class is evaluated and compared as the class of the rule claims.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import numpy as np

from waxeq.basis.heads import HEADS
from waxeq.basis.scalar import DETERMINANTS, REDUCERS, SCALARS, SCANS, SCATTERS, TRIANGLES
from waxeq.basis.typing import types
from waxeq.egraph.installed import rule_files
from waxeq.egraph.rules import Apply, Class, Expr, Lit, Rule, bodies, distinct, read_file, read_rules, said
from waxeq.errors import RuleError
from waxeq.ir.types import DTYPES
from waxeq.testing.agree import Failure, Outcome, compare
from waxeq.testing.dtypes import IllTyped
from waxeq.testing.firing import Bench, Context, Fired
from waxeq.testing.guards import Instance
from waxeq.testing.instances import Wish, corners, draw
from waxeq.testing.pattern import Pattern, pattern
from waxeq.testing.show import show_failure
from waxeq.testing.shrink import Case, shrink, trimmed

Verdict = Literal["certified", "refuted", "not exercised"]

SAMPLES = 50
_ATTEMPTS = 25
"""Attempts at an instance, for each instance wanted."""
_CORNER = 10
"""Attempts at an instance in a given corner."""


@dataclass(frozen=True)
class Certificate:
    """What was found about one rule.

    tried: instances put in an e-graph; met: those on which the rule fired; compared: elements held against each other.
    dtypes, sizes and ranks are those of the instances met. reason: why it was not certified.
    """

    rule: str
    place: str
    cls: Class
    verdict: Verdict
    tried: int
    met: int
    compared: int
    dtypes: frozenset[str] = frozenset()
    sizes: frozenset[int] = frozenset()
    ranks: frozenset[int] = frozenset()
    reason: str = ""
    failure: Failure | None = None

    @property
    def admitted(self) -> bool:
        """Whether the rule may run."""
        return self.verdict == "certified"

    def check(self) -> Certificate:
        """Raise RuleError, with the counterexample, unless the rule is admitted. Returns itself."""
        if not self.admitted:
            raise RuleError(str(self))
        return self

    def __str__(self) -> str:
        head = f"{self.place}: {self.rule} ({self.cls}) is {self.verdict}"
        if self.admitted:
            sizes = " ".join(map(str, sorted(self.sizes)))
            return f"{head}: {self.met} instances of {self.tried}, {', '.join(sorted(self.dtypes))}, sizes {sizes}"
        rows = [f"{head}: {self.reason}"]
        if self.failure is not None:
            rows.append(show_failure(self.failure))
        return "\n".join(rows)


def check_files(
    paths: Iterable[Path | str],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    progress: Callable[[Certificate], None] | None = None,
) -> tuple[Certificate, ...]:
    """A certificate for every rule of the files, in order; `progress` is called with each as it is made.

    Raises RuleError with file:line for what is no rule at all: text that does not parse, heads that do not exist,
    variables of the right side that the left does not bind, patterns that no dtypes fit, two rules of one name.
    """
    found = []
    files = {Path(p).resolve(): read_rules(Path(p)) for p in paths}
    distinct((*(read_file(p) for p in rule_files() if p.resolve() not in files), *files.values()))
    for file in files.values():
        context = Context(file)
        for rule in context.file.rules:
            found.append(check_rule(rule, samples=samples, seed=seed, context=context))
            if progress is not None:
                progress(found[-1])
    return tuple(found)


def check_rule(rule: Rule, *, samples: int = SAMPLES, seed: int = 0, context: Context | None = None) -> Certificate:
    """Try a rule on `samples` instances on which it fires. `context`: its file, read again if not given.

    The same rule, samples and seed give the same certificate. Raises RuleError as `check_files` does.
    """
    context = Context(read_file(Path(rule.file))) if context is None else context
    return _Check(rule, context, seed).run(samples)


@dataclass
class _Seen:
    tried: int = 0
    met: int = 0
    compared: int = 0
    equations: int = 0
    ways: set[int] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    sizes: set[int] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)

    def note(self, case: Case) -> None:
        roots, sizes = case
        self.met += 1
        found = types(*roots)
        self.dtypes |= {t.dtype for t in found.values()}
        used = frozenset().union(*(t.axes for t in found.values()))
        self.sizes |= {sizes[k] for k in used}
        self.ranks |= {len(t.axes) for t in found.values()}


class _Check:
    def __init__(self, rule: Rule, context: Context, seed: int) -> None:
        self.rule = rule
        self.bodies = bodies(rule)
        for b in self.bodies:
            for e in (*(e for f in b.facts for e in f), *b.right):
                _known(e, rule)
        self.patterns = tuple(pattern(b, context.rows, rule.place) for b in self.bodies)
        self.bench = _bench(context, rule)
        self.seed = seed
        self.rng = np.random.default_rng([seed, *rule.name.encode()])
        self.seen = _Seen()

    def run(self, samples: int) -> Certificate:
        for p in self.patterns:
            for case in self._cases(p, -(-samples // len(self.patterns))):
                found = self._failure(case)
                if found is not None:
                    return self._refuted(case, found)
        unites = any(b.unites for b in self.bodies)
        if not self.seen.met:
            return self._certificate("not exercised", "it fired on no instance that could be made of its left side")
        if len(self.seen.ways) < len(self.bodies):
            return self._certificate("not exercised", "it goes both ways and fired in one of them only")
        if unites and not self.seen.equations:
            return self._certificate("not exercised", "it fired, but what it makes equal was equal before")
        if unites and not self.seen.compared:
            return self._certificate("not exercised", "no instance had a value that could be compared")
        return self._certificate("certified")

    def _cases(self, p: Pattern, wanted: int) -> Iterator[Case]:
        """The corners of the pattern, as far as they can be had, then instances until `wanted` of them fired."""
        for wish in corners(p):
            made = next((m for _ in range(_CORNER) if (m := self._draw(p, wish)) is not None), None)
            if made is not None:
                yield made.roots, made.sizes
        end = self.seen.met + wanted
        for n in range(_ATTEMPTS * wanted + 200):
            if self.seen.met >= end:
                return
            made = self._draw(p, Wish(plain=n % 4 == 0))
            if made is not None:
                yield made.roots, made.sizes

    def _draw(self, p: Pattern, wish: Wish) -> Instance | None:
        try:
            return draw(p, self.rng, wish)
        except IllTyped as e:
            raise RuleError(f"{self.rule.place}: rule {self.rule.name} is ill-typed: {e}") from e

    def _failure(self, case: Case) -> Failure | str | None:
        self.seen.tried += 1
        fired = self.bench.fire(*case)
        if fired.matches:
            self.seen.note(case)
            self.seen.ways |= fired.matches.keys()
        self.seen.equations += len(fired.equations)
        found = self._compare(fired)
        self.seen.compared += found.compared
        return found.failure or fired.refusal

    def _compare(self, fired: Fired) -> Outcome:
        compared = 0
        for e in fired.equations:
            found = compare(e, self.rule, self.rng)
            compared += found.compared
            if found.failure is not None:
                return Outcome(found.failure, compared)
        return Outcome(None, compared)

    def _refuted(self, case: Case, found: Failure | str) -> Certificate:
        if isinstance(found, str):
            return self._certificate("refuted", f"the e-graph refuses it: {found}")

        def fails(smaller: Case) -> Failure | None:
            fired = self.bench.fire(*trimmed(smaller))
            for _ in range(3):
                again = self._compare(fired).failure
                if again is not None and again.kind == found.kind:
                    return again
            return None

        failure = shrink(case, found, fails)[1]
        return self._certificate("refuted", failure.message, failure)

    def _certificate(self, verdict: Verdict, reason: str = "", failure: Failure | None = None) -> Certificate:
        s, r = self.seen, self.rule
        return Certificate(
            r.name, r.place, r.cls, verdict, s.tried, s.met, s.compared, frozenset(s.dtypes), frozenset(s.sizes),
            frozenset(s.ranks), reason, failure,
        )  # fmt: skip


def _bench(context: Context, rule: Rule) -> Bench:
    """The bench of a rule. Raises RuleError in one sentence for what egglog refuses."""
    try:
        return Bench(context, rule)
    except RuleError as e:
        unknown = re.search(r"Unbound function (\S+)", str(e))
        if unknown is None:
            raise RuleError(f"{rule.place}: rule {rule.name}: {said(e)}") from e
        near = get_close_matches(unknown[1], HEADS, n=3, cutoff=0.3)
        hint = f"the closest heads are {', '.join(near)}" if near else f"the heads are {', '.join(HEADS)}"
        raise RuleError(f"{rule.place}: rule {rule.name}: there is no head {unknown[1]!r}; {hint}") from e


_FUNCTIONS = {
    "Map": SCALARS, "Zip": SCALARS, "Red": REDUCERS, "Scan": SCANS, "Scatter": SCATTERS, "Det": DETERMINANTS,
    "Triangular": TRIANGLES,
}  # fmt: skip


def _known(e: Expr, rule: Rule) -> None:
    """Raise RuleError for a literal that names no function or dtype; egglog, to which all are strings, cannot."""
    if not isinstance(e, Apply):
        return
    if e.name in HEADS and len(e.args) == len(HEADS[e.name].args):
        for a, s in zip(e.args, HEADS[e.name].sorts, strict=True):
            if isinstance(a, Lit) and s == "Fn" and a.value not in _FUNCTIONS[e.name]:
                raise RuleError(f"{rule.place}: rule {rule.name}: {e.name} knows no function {a.value!r}")
            if isinstance(a, Lit) and s == "Dtype" and a.value not in DTYPES:
                raise RuleError(f"{rule.place}: rule {rule.name}: {a.value!r} is no dtype")
    for a in e.args:
        _known(a, rule)
