"""Which values of narrow floats may keep the digits that float32 has while others are made of them.

Excess precision, as C has it (FLT_EVAL_METHOD, ISO C 5.2.4.2.2) and XLA by default: what is rounded less often is no
further from the exact value. Where a small difference could become a large one, values are rounded as they are written:
all that ends up in what compares, counts or looks up, or is cast to integers, and what stands before the end of a
domain. What is cast to fewer digits is so for some reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.ir.types import is_float, numpy_dtype
from waxeq_cfamily.scalars import NARROW, rounds
from waxeq_cfamily.values import Row, Values

_SMOOTH = frozenset({
    "Add", "Mul", "sub", "div", "recip", "square", "Sum",
    "exp", "exp2", "expm1", "sin", "cos", "tanh", "arctan", "erf", "sigmoid",
})  # fmt: skip
"""Functions of a value that are as good of one with more digits, and defined wherever they are of the other."""
_ENDING = frozenset({
    "sqrt", "rsqrt", "cbrt", "log", "log2", "log10", "log1p", "arcsin", "arccos", "arccosh", "arctanh", "arcsinh",
    "sinh", "cosh", "pow", "hypot", "logaddexp", "logaddexp2",
})  # fmt: skip
"""The same of functions that are defined up to somewhere, or grow fast: what they are of is rounded."""
_MOVES = frozenset({"Ren", "Split", "Merge", "Diag", "Slice", "Pad", "Cat", "Gather", "Unfold"})
_PASSING = frozenset({"neg", "abs", "max", "min", "fmax", "fmin", "Select", "within"}) | _MOVES
"""Functions that give a digit for each of their argument's: what is made of them decides."""


class _Node(NamedTuple):
    """A function of other values, by their numbers; those are before it."""

    name: str
    args: tuple[int, ...]
    dtype: str


def excess(values: Values) -> frozenset[int]:
    """The rows of floats that need not be as their dtype has them: all that is made of them is smooth, or written."""
    return _spared([_Node(_of_row(r), r.args, r.dtype) for r in values.rows])


def as_bits(values: Values) -> Values:
    """Narrow floats that are moved and nothing else as whole numbers of as many bits, NaN as it is."""
    narrow = {n for n, r in enumerate(values.rows) if r.dtype in NARROW}
    moved = all(values.rows[n].op in ("load", "within", "number") for n in narrow)
    if (
        not narrow
        or not moved
        or any(a in narrow for n, r in enumerate(values.rows) if n not in narrow for a in r.args)
    ):
        return values
    return replace(values, rows=tuple(_bits(r) if r.dtype in NARROW else r for r in values.rows))


def _bits(r: Row) -> Row:
    bits = np.array(float(r.name), numpy_dtype(r.dtype)).view(np.uint16) if r.op == "number" else None
    return replace(r, dtype="uint16", name=r.name if bits is None else repr(float(bits)))


def spares(meaning: Term) -> bool:
    """Whether some value of a meaning, and not its result alone, need not be rounded."""
    return any(t is not meaning and _rounded(t, dtype) for t, dtype in _spared_terms(meaning))


def in_float32(meaning: Term) -> Term:
    """The same of float32 operands in place of narrow ones, rounded to a narrow dtype only where it matters, and at the
    end. Products that are summed and nothing else are no values of their own, as in all contractions."""
    spared, kinds = dict(_spared_terms(meaning)), types(meaning)
    read = {a for t in kinds if t.head != "Sum" for a in t.terms}
    whole = {a for t in kinds if t.head == "Sum" for a in t.terms if a.head == "Mul"} - read
    done: dict[Term, Term] = {}
    for t, kind in kinds.items():
        made = _wider(t, kind.dtype, done)
        rounded = _rounded(t, kind.dtype) or (t.head == "Sum" and kind.dtype in NARROW)
        if rounded and t not in spared and t not in whole:
            made = Term("Cast", "float32", Term("Cast", kind.dtype, made))
        done[t] = made
    dtype = kinds[meaning].dtype
    return Term("Cast", dtype, done[meaning]) if dtype in NARROW else done[meaning]


def _spared(nodes: Sequence[_Node]) -> frozenset[int]:
    users: dict[int, list[int]] = {}
    for n, node in enumerate(nodes):
        for a in node.args:
            users.setdefault(a, []).append(n)
    calm: set[int] = set()
    found: set[int] = set()
    for n in reversed(range(len(nodes))):
        name, _, dtype = nodes[n]
        made = users.get(n, ())
        if not is_float(dtype) or not all(u in calm and nodes[u].name in _CONTINUOUS for u in made):
            continue
        calm.add(n)
        passing = (u for u in made if nodes[u].name in _PASSING or _widens(nodes[u]))
        asked = name == "Cast" and dtype in NARROW
        if not asked and all(u in found for u in passing) and not any(nodes[u].name in _ENDING for u in made):
            found.add(n)
    return frozenset(found)


_CONTINUOUS = _SMOOTH | _ENDING | _PASSING | {"Cast"}
"""Functions that make a small difference of a small one. What anything else is made of is rounded, and all that it is
made of: a difference may be all that is left of a value."""


def _widens(node: _Node) -> bool:
    return node.name == "Cast" and node.dtype not in NARROW


def _of_row(r: Row) -> str:
    """The function that a row is, by the name it has among terms."""
    if r.op == "fold":
        return {"sum": "Sum"}.get(r.name, str(r.name))
    return str(r.name) if r.op == "apply" else r.op


@lru_cache(maxsize=1 << 12)
def _spared_terms(meaning: Term) -> tuple[tuple[Term, str], ...]:
    """The terms that need not be rounded, with their dtypes."""
    kinds = types(meaning)
    number = {t: n for n, t in enumerate(kinds)}
    nodes = [_Node(_of_term(t), tuple(number[a] for a in t.terms), kinds[t].dtype) for t in kinds]
    order = [*kinds]
    return tuple((order[n], nodes[n].dtype) for n in sorted(_spared(nodes)))


def _of_term(t: Term) -> str:
    """The function that a term applies; else its head."""
    return str(t.args[0]) if t.head in ("Map", "Zip", "Red") else t.head


def _number(value: float, dtype: str) -> float:
    """A number as a dtype has it."""
    with np.errstate(over="ignore"):
        return float(np.float64(value).astype(numpy_dtype(dtype)))


def _rounded(t: Term, dtype: str) -> bool:
    """Whether a term is a function whose value has to be rounded in a dtype."""
    return t.head in ("Map", "Zip", "Add", "Mul", "Cast") and rounds(_of_term(t), dtype)


def _wider(t: Term, dtype: str, done: dict[Term, Term]) -> Term:
    """A term of what its arguments are in float32, before it is rounded."""
    narrow = dtype in NARROW
    match t.head:
        case "In" | "Par" if narrow:
            return Term(t.head, t.args[0], t.args[1], "float32")
        case "Num" if narrow:
            return Term("Num", _number(t.args[0], dtype), "float32")
        case "Pad" if narrow:
            k, n, low, value, x = t.args
            return Term("Pad", k, n, low, _number(value, dtype), done[x])
        case "Iota" if narrow:
            return Term("Cast", "float32", t)
        case "Cast":
            to, x = ("float32" if narrow else dtype), done[t.terms[0]]
            given = types(x)[x].dtype
            if narrow and given == "float64":
                x = Term("Cast", dtype, x)  # not rounded to float32 first
            return x if given == to else Term("Cast", to, x)
    return Term(t.head, *_with(t, done))


def _with(t: Term, done: dict[Term, Term]) -> Iterator[Any]:
    for a in t.args:
        yield done[a] if isinstance(a, Term) else a
