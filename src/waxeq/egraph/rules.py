"""Rules: text files, read with their laws and classes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from waxeq.egraph.installed import rule_files
from waxeq.egraph.kernels import Pattern
from waxeq.egraph.kernels import forms as kernel_forms
from waxeq.egraph.program import Phase, RuleProgram
from waxeq.errors import RuleError, TargetError

Class = Literal["exact", "reassociating", "approximate"]
CLASSES: tuple[Class, ...] = ("exact", "reassociating", "approximate")

_TAG = re.compile(r";;\s*(exact|reassociating|approximate)(?:\s+([\d.eE+-]+))?\s*$")
_TRIED = re.compile(r";;\s*(\S+)")
_TOKEN = re.compile(r'[()]|;[^\n]*|"[^"]*"?')
"""What decides where forms begin and end: parentheses, but for those in comments and strings."""
_HEAD = re.compile(r"\(\s*([^\s()\";]+)")
_DECLARES = re.compile(r"\(\s*(relation|function|constructor)\s+([^\s()\";]+)")
_SETS = re.compile(r"\(\s*set\s*\(\s*([^\s()\";]+)")
_COMMANDS = frozenset(
    (
        "check", "datatype", "delete", "extract", "fail", "include", "input", "let", "output", "panic", "pop",
        "print-function", "print-size", "print-stats", "prove", "push", "query-extract", "run", "run-schedule", "set",
        "set-option", "simplify", "sort", "subsume", "union",
    )
)  # fmt: skip
"""Words that egglog takes for a command even where a relation has that name."""
_NAME = re.compile(r':name\s+"([^"]+)"')
_RULESET = re.compile(r":ruleset\s+(\S+?)[\s)]")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its egglog text, the law in words, the class of equality it claims (with the bound of an approximate
    one).
    """

    name: str
    ruleset: str
    law: str
    cls: Class
    bound: float
    text: str
    file: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A file: its rules, what else it declares (rulesets, helper functions), its text."""

    path: Path
    rules: tuple[Rule, ...]
    declarations: str
    text: str


def core_directory() -> Path:
    """The entry point of waxeq's own rules."""
    from waxeq.share import share

    return share("rules")


def read_file(path: Path) -> RuleFile:
    """Parse a rule file. Nothing in it is run.

    Raises TargetError for a file that is not there, cannot be read or is no text; RuleError as `parse_rules`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as e:
        raise TargetError(f"{path} cannot be read: there is no such rule file") from e
    except OSError as e:
        raise TargetError(f"{path} cannot be read: {e.strerror}; give a rule file, as my.egg") from e
    except UnicodeDecodeError as e:
        raise TargetError(f"{path} is not text, so it is no rule file") from e
    return parse_rules(path, text)


@lru_cache(maxsize=256)  # a search reads every file twice: to see that its rules may run, and to run them
def parse_rules(path: Path, text: str) -> RuleFile:
    """A rule file whose text is known; `path` only names it.

    Raises RuleError with file:line for a form that does not close or is no part of a rule file, and for a rule without
    name, law or class.
    """
    rules, other, declared = [], [], set()
    for form, start in _forms(text, path):
        line = text.count("\n", 0, start) + 1
        if re.match(r"\(\s*(rewrite|birewrite|rule)[\s()]", form):
            rules.append(_rule(form, _above(text, start), path, line))
        else:
            _declaration(form, declared, f"{path}:{line}")
            other.append(form)
    return RuleFile(path, tuple(rules), "\n".join(other), text)


def read_rules(path: Path) -> RuleFile:
    """A file that is named for its rules. Raises as `read_file`, and RuleError for a file that holds none."""
    found = read_file(path)
    if not found.rules:
        raise RuleError(f"{path} holds no rule")
    return found


def _declaration(form: str, declared: set[str], place: str) -> None:
    """Add what a form declares. Raises RuleError for one that is neither a declaration nor a fact of what the file
    itself declares: a fact about others' relations would change what certified rules do."""
    made, fact, head = _DECLARES.match(form), _SETS.match(form), _HEAD.match(form)
    word = head[1] if head else form
    if made:
        declared.add(made[2])
        return
    stated = fact[1] if fact else word
    if word == "ruleset" or (stated in declared and stated not in _COMMANDS):
        return
    raise RuleError(
        f"{place}: form `{word}` has no place in a rule file; it holds rewrite, birewrite, rule, ruleset, relation, "
        "function, constructor, and facts of what it declares"
    )


def distinct(files: Iterable[RuleFile]) -> None:
    """Raise RuleError, naming both places, when two rules have one name."""
    first: dict[str, Rule] = {}
    for f in files:
        for r in f.rules:
            if r.name in first:
                raise RuleError(f"{r.place}: rule {r.name} has the name of the one at {first[r.name].place}; rename it")
            first[r.name] = r


def _forms(text: str, path: Path) -> Iterable[tuple[str, int]]:
    """Top-level forms with their places; comments and strings are skipped over."""
    depth = start = 0
    for found in _TOKEN.finditer(text):
        token, i = found[0], found.start()
        if token == "(":
            start = i if depth == 0 else start
            depth += 1
        elif token == ")":
            depth -= 1
            if depth < 0:
                raise RuleError(f"{path}:{text.count(chr(10), 0, i) + 1}: a ')' too many")
            if depth == 0:
                yield text[start : i + 1], start
        elif token[0] == '"':
            ends = len(token) > 1 and token[-1] == '"'
            # egglog would read an escaped quote on, and so see other forms than these
            if not ends or "\\" in token:
                what = "a string may not hold a backslash" if ends else "this string does not end"
                raise RuleError(f"{path}:{text.count(chr(10), 0, i) + 1}: {what}")
    if depth:
        raise RuleError(f"{path}:{text.count(chr(10), 0, start) + 1}: this form is not closed")


def _above(text: str, start: int) -> list[str]:
    """The comment lines directly above a place."""
    rows: list[str] = []
    for line in reversed(text[:start].rstrip("\n").split("\n")):
        if not line.startswith(";"):
            break
        rows.insert(0, line)
    return rows


def _rule(form: str, comments: list[str], path: Path, line: int) -> Rule:
    place = f"{path}:{line}"
    name, ruleset = _NAME.search(form), _RULESET.search(form)
    tag = next((m for m in map(_TAG.match, comments) if m), None)
    law = " ".join(c.lstrip("; ") for c in comments if not c.startswith(";;"))
    if name is None or "/" not in name[1]:
        raise RuleError(f'{place}: the rule has no name; give it one, as :name "family/what"')
    if ruleset is None:
        raise RuleError(f"{place}: rule {name[1]} is in no ruleset; add :ruleset FAMILY")
    if tag is None:
        tried = next((m[1] for m in map(_TRIED.match, comments) if m), None)
        what = "has no class" if tried is None or tried in CLASSES else f"has the unknown class {tried!r}"
        raise RuleError(
            f"{place}: rule {name[1]} {what}; write ;; exact, ;; reassociating or ;; approximate 1e-3 above it"
        )
    if not law:
        raise RuleError(f"{place}: rule {name[1]} states no law; write it as a comment above")
    cls: Class = tag[1]  # pyright: ignore[reportAssignmentType]
    return Rule(name[1], ruleset[1], law, cls, _bound(cls, tag[2], f"{place}: rule {name[1]}"), form, str(path), line)


def _bound(cls: Class, text: str | None, rule: str) -> float:
    """The relative error that a rule may make; only of an approximation it is said."""
    if cls != "approximate":
        return 0.0
    try:
        bound = float(text or "")
    except ValueError:
        bound = 0.0
    if not 0 < bound < math.inf:
        raise RuleError(f"{rule} does not say how far it may be off; write ;; approximate 1e-3 above it")
    return bound


# -- what a rule says, free of egglog


@dataclass(frozen=True, slots=True)
class Var:
    """A pattern variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Lit:
    """A string, an integer or a float."""

    value: str | int | float


@dataclass(frozen=True, slots=True)
class Apply:
    """A constructor, function, relation or primitive on arguments."""

    name: str
    args: tuple[Expr, ...]


Expr = Var | Lit | Apply
Fact = tuple[Expr, ...]
"""One expression that holds, or several that are equal."""


@dataclass(frozen=True, slots=True)
class Body:
    """What one direction of a rule asks for; whether it makes classes one; the expressions of its right side."""

    facts: tuple[Fact, ...]
    unites: bool
    right: tuple[Expr, ...] = ()


@lru_cache(maxsize=4096)  # each explanation asks for all of them
def bodies(rule: Rule) -> tuple[Body, ...]:
    """A rule as egglog itself parses it; two bodies for a birewrite. Raises RuleError with file:line."""
    return tuple(b for c in _parse(rule.text, rule.place) for b in _bodies(c))


@lru_cache(maxsize=256)  # of all files, for each rule that is checked
def ground_facts(text: str, place: str = "<text>") -> Mapping[str, Sequence[tuple[str | int | float, ...]]]:
    """The rows that egglog text states outright, `(rel "a")` or `(set (f "a") "b")`, by relation or function."""
    found: dict[str, list[tuple[str | int | float, ...]]] = {}
    for c in _parse(text, place):
        action = getattr(c, "action", None)
        kind = type(action).__name__
        if kind == "Set":
            row = (action.lhs, *map(_expr, (*action.args, action.rhs)))  # pyright: ignore[reportOptionalMemberAccess]
        elif kind == "Expr_" and type(action.expr).__name__ == "Call":  # pyright: ignore[reportOptionalMemberAccess]
            row = (action.expr.name, *map(_expr, action.expr.args))  # pyright: ignore[reportOptionalMemberAccess]
        else:
            continue
        values = tuple(x.value for x in row[1:] if isinstance(x, Lit))
        if len(values) == len(row) - 1:
            found.setdefault(row[0], []).append(values)
    return found


def _parse(text: str, place: str) -> Sequence[Any]:
    from egglog import bindings

    try:
        return bindings.EGraph().parse_program(text, place)
    except (bindings.EggSmolError, SyntaxError) as e:
        raise RuleError(f"{place}: {said(e)}") from e


def said(error: Exception) -> str:
    """What egglog says is wrong, in one sentence and without its own places, which count within one form."""
    rows = [r.strip() for r in str(error).splitlines() if r.strip()]
    kept = [r for r in rows if not re.match(r"(\S+: )?In \d+:\d+", r)]
    return kept[-1] if kept else "this form is none that egglog can read"


def _bodies(command: Any) -> Iterable[Body]:
    kind = type(command).__name__
    if kind == "RuleCommand":
        r = command.rule
        actions = [type(a).__name__ for a in r.head]
        right = [
            x for a in r.head for x in (getattr(a, "lhs", None), getattr(a, "rhs", None), getattr(a, "expr", None))
        ]
        kept = tuple(_expr(x) for x in right if type(x).__name__ in ("Call", "Var", "Lit"))
        yield Body(tuple(map(_fact, r.body)), "Union" in actions, kept)
        return
    w = command.rewrite
    left, right, when = _expr(w.lhs), _expr(w.rhs), tuple(map(_fact, w.conditions))
    yield Body(((left,), *when), True, (right,))
    if kind == "BiRewriteCommand":
        yield Body(((right,), *when), True, (left,))


def _fact(f: Any) -> Fact:
    return (_expr(f.left), _expr(f.right)) if type(f).__name__ == "Eq" else (_expr(f.expr),)


def _expr(e: Any) -> Expr:
    kind = type(e).__name__
    if kind == "Var":
        return Var(e.name)
    if kind == "Lit":
        return Lit(getattr(e.value, "value", ""))
    return Apply(e.name, tuple(map(_expr, e.args)))


_ALWAYS = ("identity", "constant", "movement", "slice", "gather", "concat", "select", "function", "composite", "window")
_ALGEBRA = ("commute", "elementwise", "affine", "linear", "reduction")
PHASES = (
    Phase("order", ("commute",), 1),
    Phase("merge", ("merge",), 64),
    Phase("simplify", ("commute", *_ALWAYS), 6),
    Phase("distribute", ("distribute",), 1),
    Phase("gather", (*_ALGEBRA, *_ALWAYS), 5),
    Phase("lowrank", ("lowrank",), 1),
    Phase("algebra", (*_ALGEBRA, *_ALWAYS), 20),
    Phase("scalar", ("scalar",), 1),
    Phase("kernels", ("kernels",), 8, required=True),
)
"""When which family runs. Families that no file declares are left out."""
_HOME = "algebra"
"""The phase of rulesets that no phase names: those of other people's files."""


def load_rules(
    loosest: Class,
    patterns: Mapping[str, Pattern],
    *,
    algebra: bool = True,
    files: Sequence[Path | RuleFile] | None = None,
    tolerance: float = math.inf,
) -> RuleProgram:
    """The program of a saturation: rules no looser than `loosest` that are off by `tolerance` at most, kernels from
    their patterns. `files`: those that are read already, or where they lie; without it, the installed ones.

    Raises RuleError (file:line) as `read_file` does, and for two rules of one name; TargetError as `rule_files`.
    """
    given = rule_files() if files is None else files
    parsed = [f if isinstance(f, RuleFile) else read_file(f) for f in given]
    distinct(parsed)
    allowed = CLASSES[: CLASSES.index(loosest) + 1]
    texts, declared = [], {"kernels"}
    for f in parsed:
        kept = [r.text for r in f.rules if r.cls in allowed and r.bound <= tolerance] if algebra else []
        texts.append((f.path.name, (f.declarations, *kept)))
        declared |= {*re.findall(r"\(ruleset\s+(\S+)\)", f.declarations)}
    texts.append(("kernels.egg", kernel_forms(patterns.values())))
    phases = []
    others = declared.difference(*(p.rulesets for p in PHASES))
    for p in PHASES:
        sets = tuple(s for s in p.rulesets if s in declared)
        if p.name == _HOME:
            sets = (*sets, *sorted(others))
        if sets and (algebra or p.required):
            phases.append(Phase(p.name, sets, p.iterations, p.required))
    constructors = tuple((c, p.tensors) for c, p in patterns.items())
    return RuleProgram(tuple(texts), tuple(phases), constructors)
