"""Whether a term means anything: axes that do not collide, sizes and dtypes that fit. Typing alone gives axes and
dtype to terms that have no value; a rule must not make one of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from waxeq.basis.heads import FACTORED, HEADS, MATRICES
from waxeq.basis.scalar import ADD, MUL, REDUCERS, SCALARS, Scalar
from waxeq.basis.typing import TermType, new_sizes, types
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import DTYPES, FLOATS, INTEGERS

Types = Mapping[Term, TermType]

GROUPS: Mapping[str, frozenset[str]] = {
    "float": frozenset(FLOATS),
    "number": frozenset((*FLOATS, *INTEGERS)),
    "integer": frozenset(INTEGERS),
    "bool": frozenset(("bool",)),
    "any": frozenset(DTYPES),
}
"""The dtypes of each group that a scalar function is defined on."""

REDUCED: Mapping[str, str] = {"any": "bool", "all": "bool"}
"""The group a fold or scan is defined on, where that is not numbers."""


def fault(root: Term, sizes: Mapping[str, int]) -> str | None:
    """The first thing wrong with a term, in words; None for a term that has a value."""
    try:
        known = types(root)
    except KeyError as e:
        return f"{e.args[0]!r} is no function, dtype or axis of the basis"
    for t in postorder(root):
        for wrong in (*_dtypes(t, known), *_axes(t, known, sizes)):
            return f"in {t.head} {' '.join(str(a) for a in t.args if not isinstance(a, Term | frozenset))}: {wrong}"
    return None


def _dtypes(t: Term, known: Types) -> Iterator[str]:
    d = [known[x].dtype for x in t.terms]
    if t.head in ("Add", "Mul", "Zip", "Map"):
        f: Scalar = ADD if t.head == "Add" else MUL if t.head == "Mul" else SCALARS[t.args[0]]
        if f.arity != len(d):
            yield f"{f.name} takes {f.arity} operands"
        elif len(set(d)) > 1:
            yield f"operands of dtypes {' and '.join(d)}"
        elif d[0] not in GROUPS[f.takes]:
            yield f"{f.name} is not defined on {d[0]}"
    elif t.head in ("Sum", "Red", "Scan"):
        group = "number" if t.head == "Sum" else REDUCED.get(t.args[0], "number")
        if d[0] not in GROUPS[group]:
            yield f"not defined on {d[0]}"
        if t.head == "Red" and t.args[0] not in REDUCERS:
            yield f"there is no fold {t.args[0]!r}"
    elif t.head == "Select" and (d[0] != "bool" or d[1] != d[2]):
        yield f"a {d[0]} chooses between {d[1]} and {d[2]}"
    elif t.head == "Cat" and d[0] != d[1]:
        yield f"operands of dtypes {d[0]} and {d[1]}"
    elif t.head == "Gather" and d[0] not in INTEGERS:
        yield f"an index of dtype {d[0]}"
    elif t.head == "Scatter" and (d[0] not in INTEGERS or d[1] != d[2]):
        yield f"an index of dtype {d[0]}, an update of {d[1]} into {d[2]}"
    elif t.head in FACTORED and (d[0] not in MATRICES or len(set(d)) > 1):
        yield f"operands of dtypes {' and '.join(d)}"


def _axes(t: Term, known: Types, sizes: Mapping[str, int]) -> Iterator[str]:
    head = HEADS[t.head]
    bound = [a for a, s in zip(t.args, head.sorts, strict=True) if s in ("Axis", "NewAxis")]
    for k in (*bound, *known[t].axes):
        if k not in sizes:
            yield f"axis {k} has no size"
            return
    for k, n in new_sizes(t.head, t.args, lambda k: sizes[k]).items():
        if sizes[k] != n:
            yield f"axis {k} would have size {n} but has size {sizes[k]}"
    if t.head in _CHECKS:
        a = dict(zip((n for n, _ in head.args), t.args, strict=True))
        yield from _CHECKS[t.head](a, lambda x: known[x].axes, lambda k: sizes[k])


AxesOf = Callable[[Any], frozenset[str]]
Size = Callable[[str], int]
Check = Callable[[Mapping[str, Any], AxesOf, Size], Iterator[str]]


def _clash(axes: frozenset[str], *made: str) -> Iterator[str]:
    for k in made:
        if k in axes:
            yield f"the operand already has an axis {k}"
    if len(set(made)) < len(made):
        yield f"makes axis {made[0]} twice"


def _ren(a: Mapping[str, Any], ax: AxesOf, size: Size) -> Iterator[str]:
    yield from _clash(ax(a["x"]) - {a["a"]}, a["b"])
    if size(a["a"]) != size(a["b"]):
        yield f"axis {a['a']} of size {size(a['a'])} cannot be called {a['b']}, of size {size(a['b'])}"


def _split(a: Mapping[str, Any], ax: AxesOf, size: Size) -> Iterator[str]:
    yield from _clash(ax(a["x"]) - {a["k"]}, a["p"], a["q"])
    if size(a["k"]) != size(a["p"]) * size(a["q"]):
        yield f"axis {a['k']} of size {size(a['k'])} has not {size(a['p'])} x {size(a['q'])} elements"


def _two(new: str, one: str, other: str) -> Check:
    def check(a: Mapping[str, Any], ax: AxesOf, size: Size) -> Iterator[str]:
        if a[one] == a[other]:
            yield f"axis {a[one]} is used twice"
        yield from _clash(ax(a["x"]) - {a[one], a[other]}, a[new])

    return check


def _diag(a: Mapping[str, Any], ax: AxesOf, size: Size) -> Iterator[str]:
    yield from _two("k", "i", "j")(a, ax, size)
    if size(a["i"]) != size(a["j"]):
        yield f"axes {a['i']} and {a['j']} differ in size"


def _factored(a: Mapping[str, Any], ax: AxesOf, size: Size) -> Iterator[str]:
    if a["i"] == a["j"]:
        yield f"axis {a['i']} is used twice"
    if size(a["i"]) != size(a["j"]):
        yield f"axes {a['i']} and {a['j']} differ in size"
    if "b" in a:
        yield from _clash(ax(a["b"]), a["j"])


def _slice(a: Mapping[str, Any], ax: AxesOf, size: Size) -> Iterator[str]:
    yield from _clash(ax(a["x"]) - {a["k"]}, a["n"])
    n = size(a["n"])
    first, last = a["start"], a["start"] + a["step"] * (n - 1)
    if n and not (0 <= first < size(a["k"]) and 0 <= last < size(a["k"])):
        yield f"elements {first} to {last} do not lie in axis {a['k']} of size {size(a['k'])}"


def _pad(a: Mapping[str, Any], ax: AxesOf, size: Size) -> Iterator[str]:
    yield from _clash(ax(a["x"]) - {a["k"]}, a["n"])
    if a["low"] < 0 or a["low"] + size(a["k"]) > size(a["n"]):
        yield f"axis {a['k']} does not fit in axis {a['n']} from {a['low']} on"


def _cat(a: Mapping[str, Any], ax: AxesOf, size: Size) -> Iterator[str]:
    yield from _clash(ax(a["x"]) - {a["p"]}, a["n"])
    yield from _clash(ax(a["y"]) - {a["q"]}, a["n"])


def _scatter(a: Mapping[str, Any], ax: AxesOf, size: Size) -> Iterator[str]:
    yield from _clash(ax(a["x"]), a["p"])
    yield from _clash(ax(a["i"]) | ax(a["u"]), a["k"])


def _unfold(a: Mapping[str, Any], ax: AxesOf, size: Size) -> Iterator[str]:
    yield from _clash(ax(a["x"]) - {a["k"]}, a["o"], a["w"])
    o, w = size(a["o"]), size(a["w"])
    if o and w and a["stride"] * (o - 1) + a["dilation"] * (w - 1) >= size(a["k"]):
        yield f"its windows pass the end of axis {a['k']}"


_CHECKS: Mapping[str, Check] = {
    "Ren": _ren, "Split": _split, "Merge": _two("k", "p", "q"), "Diag": _diag, "Slice": _slice, "Pad": _pad,
    "Cat": _cat, "Scatter": _scatter, "Unfold": _unfold,
    **dict.fromkeys(FACTORED, _factored),
}  # fmt: skip
