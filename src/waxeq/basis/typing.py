"""Axes and dtype of a term, read from the same rows that the e-graph's analyses are generated from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from waxeq.basis.heads import HEADS
from waxeq.basis.scalar import REDUCERS, SCALARS
from waxeq.ir.term import Term, postorder

AxesOf = Callable[[Any], frozenset[str]]


@dataclass(frozen=True, slots=True)
class TermType:
    """The set of axes and the dtype of a term."""

    axes: frozenset[str]
    dtype: str


def read(text: str) -> tuple | str:
    """An s-expression as nested tuples of atoms."""
    stack: list[list] = [[]]
    for token in text.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            stack.append([])
        elif token == ")":
            done = tuple(stack.pop())
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    return stack[0][0]


@cache
def _axes_rule(head: str) -> tuple | str:
    return read(HEADS[head].axes)


@cache
def _dtype_rule(head: str) -> tuple | str:
    return read(HEADS[head].dtype)


def node_axes(head: str, args: tuple, axes_of: AxesOf) -> frozenset[str]:
    """Axes of `head` applied to `args`; `axes_of` gives the axes of a tensor argument (a term, an e-class, ...)."""
    names = dict(zip((n for n, _ in HEADS[head].args), args, strict=True))

    def go(e: tuple | str) -> Any:
        if isinstance(e, str):
            return names[e]
        op, *rest = e
        if op == "ax":
            return axes_of(names[rest[0]])
        if op == "set-empty":
            return frozenset()
        first, second = (go(r) for r in rest)
        if op == "set-union":
            return first | second
        return first | {second} if op == "set-insert" else first - {second}

    return frozenset(go(_axes_rule(head)))


def result_dtype(f: str, dtype: str) -> str:
    """The dtype of scalar function `f` on `dtype`."""
    return "bool" if SCALARS[f].gives == "bool" else dtype


def reduced_dtype(f: str, dtype: str) -> str:
    """The dtype of reducing `dtype` by `f`."""
    given = REDUCERS[f][1]
    return dtype if given == "same" else given


def node_dtype(head: str, args: tuple, dtype_of: Callable[[Any], str]) -> str:
    """Dtype of `head` applied to `args`; `dtype_of` gives that of a tensor argument."""
    names = dict(zip((n for n, _ in HEADS[head].args), args, strict=True))
    rule = _dtype_rule(head)
    if isinstance(rule, str):
        return names.get(rule, rule)
    if rule[0] == "dt":
        return dtype_of(names[rule[1]])
    table = result_dtype if rule[0] == "result" else reduced_dtype
    return table(names[rule[1]], dtype_of(names[rule[2]]))


def new_sizes(head: str, args: tuple, size: Callable[[str], int]) -> dict[str, int]:
    """Sizes that an application of `head` fixes for the axes it makes."""
    names = dict(zip((n for n, _ in HEADS[head].args), args, strict=True))

    def go(e: tuple | str) -> int:
        if isinstance(e, str):
            return int(e)
        if e[0] == "size":
            return size(names[e[1]])
        a, b = (go(x) for x in e[1:])
        return a * b if e[0] == "*" else a + b

    return {names[n]: go(read(rule)) for n, rule in HEADS[head].sizes}


def types(*roots: Term) -> dict[Term, TermType]:
    """The type of every subterm."""
    return dict(_types(roots))


@lru_cache(maxsize=2048)  # every kernel asks it of each meaning that is to be fused
def _types(roots: tuple[Term, ...]) -> dict[Term, TermType]:
    done: dict[Term, TermType] = {}
    for t in postorder(*roots):
        done[t] = TermType(
            node_axes(t.head, t.args, lambda a: done[a].axes), node_dtype(t.head, t.args, lambda a: done[a].dtype)
        )
    return done


def sizes_fit(term: Term, sizes: Mapping[str, int]) -> bool:
    """Whether the size table agrees with every size that the term's heads fix."""
    return all(
        sizes.get(n) == s for t in postorder(term) for n, s in new_sizes(t.head, t.args, lambda k: sizes[k]).items()
    )
