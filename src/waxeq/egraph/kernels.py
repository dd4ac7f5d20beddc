"""Kernel patterns in the e-graph: from a kernel's meaning come its constructor, the rule that introduces it, and
back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from waxeq.backend.kernel import Kernel
from waxeq.basis.heads import HEADS, Sort
from waxeq.basis.typing import read
from waxeq.ir.term import Term

MANY = "Sum*"
"""The head that stands, in a pattern, for one or more sums over a set of axes."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A kernel's meaning over variables: the constructor is `constructor(variables...)`."""

    kernel: str
    tree: tuple
    variables: tuple[tuple[str, Sort], ...]

    @property
    def constructor(self) -> str:
        return "K." + self.kernel

    @property
    def tensors(self) -> tuple[int, ...]:
        """Positions of the tensor variables."""
        return tuple(i for i, (_, s) in enumerate(self.variables) if s == "T")

    def meaning(self, args: tuple[Any, ...]) -> Term:
        """The term, with `args` (terms for tensors, a set of axes for a "Sum*") for the variables."""
        given = dict(zip((n for n, _ in self.variables), args, strict=True))

        def go(e: Any, sort: str) -> Any:
            if isinstance(e, str):
                return given[e] if e in given else _literal(e, sort)
            head, *rest = e
            if head == MANY:
                t = go(rest[1], "T")
                for k in sorted(given[rest[0]]):
                    t = Term("Sum", k, t)
                return t
            return Term(head, *(go(x, s) for x, s in zip(rest, HEADS[head].sorts, strict=True)))

        return go(self.tree, "T")


def pattern(name: str, kernel: Kernel) -> Pattern:
    """The pattern of a kernel of form "pattern"."""
    tree = read(kernel.pattern)
    assert isinstance(tree, tuple), kernel.pattern
    found: dict[str, Sort] = {}

    def walk(e: Any, sort: Sort) -> None:
        if isinstance(e, str):
            if not _is_literal(e):
                found[e] = sort
            return
        head, *rest = e
        sorts: tuple[Sort, ...] = ("Axes", "T") if head == MANY else HEADS[head].sorts
        for x, s in zip(rest, sorts, strict=True):
            walk(x, s)

    walk(tree, "T")
    return Pattern(name, tree, tuple(found.items()))


def patterns(kernels: Mapping[str, Kernel]) -> dict[str, Pattern]:
    """Patterns by constructor name, of the kernels that have one."""
    rows = (pattern(n, k) for n, k in kernels.items() if k.form == "pattern" and not k.variant_of)
    return {p.constructor: p for p in rows}


def _is_literal(e: str) -> bool:
    return e[0] in '"-' or e[0].isdigit()


def _literal(e: str, sort: str) -> Any:
    return float(e) if sort == "Float" else int(e) if sort == "Int" else e.strip('"')


def forms(rows: Iterable[Pattern]) -> tuple[str, ...]:
    """egglog text, form by form: constructors and rules of ruleset `kernels`."""
    from waxeq.egraph.schema import SORTS

    out = ["(ruleset kernels)"]
    for p in rows:
        sorts = " ".join(SORTS[s] for _, s in p.variables)
        out.append(f"(constructor {p.constructor} ({sorts}) T)")
        if p.tree[0] == MANY:
            out += _many(p)
        else:
            out.append(_rule(p, _write(p.tree), [n for n, _ in p.variables], "introduce"))
    return tuple(out)


def _write(e: Any) -> str:
    return e if isinstance(e, str) else "(" + " ".join(map(_write, e)) + ")"


def _rule(p: Pattern, lhs: str, args: list[str], what: str) -> str:
    made = f"({p.constructor} {' '.join(args)})"
    return f'(rule ((= e {lhs})) ((union e {made})) :ruleset kernels :name "kernels/{p.kernel}/{what}")'


def _many(p: Pattern) -> list[str]:
    """Rules for a pattern (Sum* ks body): the first sum, then one more sum over a call found before."""
    ks, body = p.tree[1], _write(p.tree[2])
    names = [n for n, _ in p.variables]
    first = [("(set-insert (set-empty) k)" if n == ks else n) for n in names]
    more = [("(set-insert ks k)" if n == ks else n) for n in names]
    inner = f"({p.constructor} {' '.join('ks' if n == ks else n for n in names)})"
    return [
        _rule(p, f"(Sum k {body})", first, "one-sum"),
        f"(rule ((= e (Sum k {inner})) (set-not-contains ks k)) ((union e ({p.constructor} {' '.join(more)}))) "
        f':ruleset kernels :name "kernels/{p.kernel}/more-sums")',
    ]
