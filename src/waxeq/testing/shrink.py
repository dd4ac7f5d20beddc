"""From a counterexample to a smaller one: fewer axes, smaller sizes, plainer leaves, as long as it stays one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from waxeq.basis.typing import new_sizes, types
from waxeq.ir.term import Term, postorder, rebuild
from waxeq.testing.wellformed import fault

F = TypeVar("F")

Case = tuple[tuple[Term, ...], dict[str, int]]
"""Terms that the left side of a rule matches, with the sizes of their axes."""


def shrink(case: Case, failure: F, fails: Callable[[Case], F | None], budget: int = 120) -> tuple[Case, F]:
    """The smallest case found that still fails, with its failure. `fails` is called at most `budget` times."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(case):
            if budget == 0:
                return case, failure
            if candidate == case or any(fault(r, candidate[1]) for r in candidate[0]):
                continue
            budget -= 1
            found = fails(candidate)
            if found is not None:
                case, failure, smaller = candidate, found, True
                break
    return case, failure


def _smaller(case: Case) -> Iterator[Case]:
    roots, sizes = case
    leaves = [t for t in postorder(*roots) if t.head in ("In", "Par")]
    axes = sorted({k for t in leaves for k in t.args[1]})
    for k in axes:  # an axis nowhere, then in one leaf less
        yield _leaves(case, {t: Term(t.head, t.args[0], t.args[1] - {k}, t.args[2]) for t in leaves})
    for t in leaves:
        for k in sorted(t.args[1]):
            yield _leaves(case, {t: Term(t.head, t.args[0], t.args[1] - {k}, t.args[2])})
    for t in postorder(*roots):
        if t.head in ("Map", "Mul") and t.terms[0].head in ("In", "Par"):
            yield _leaves(case, {t: t.terms[0]})
    for k in sorted(trimmed(case)[1]):
        for n in range(1, sizes[k]) if sizes[k] else (1,):  # no elements are harder to read than one
            yield roots, _consistent(roots, {**sizes, k: n})
    dtypes = {t.args[2] for t in leaves}
    if "float32" not in dtypes and len(dtypes) == 1:
        yield _leaves(case, {t: Term(t.head, t.args[0], t.args[1], "float32") for t in leaves})


def _leaves(case: Case, change: Mapping[Term, Term]) -> Case:
    """The case with some subterms replaced."""
    roots, sizes = case

    def one(t: Term, args: tuple) -> Term:
        return change[t] if t in change else Term(t.head, *args)

    return tuple(rebuild(r, one) for r in roots), sizes


def _consistent(roots: tuple[Term, ...], sizes: dict[str, int]) -> dict[str, int]:
    """Sizes with those that heads fix brought in line."""
    for t in postorder(*roots):
        sizes |= new_sizes(t.head, t.args, sizes.__getitem__)
    return sizes


def trimmed(case: Case) -> Case:
    """The case without the sizes of axes that its terms do not name."""
    roots, sizes = case
    used = {a for t in postorder(*roots) for a in t.args if isinstance(a, str)}
    used |= {k for t in types(*roots).values() for k in t.axes}
    return roots, {k: n for k, n in sizes.items() if k in used}
