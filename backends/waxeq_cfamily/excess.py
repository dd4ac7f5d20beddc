"""Which values of narrow floats may keep the digits that float32 has while others are made of them.

Excess precision, as C has it (FLT_EVAL_METHOD, ISO C 5.2.4.2.2) and XLA by default: what is rounded less often is no
further from the exact value. Where a small difference could become a large one, a value is rounded as it is written:
before what compares, counts or looks up, at the ends of domains, and before casts, which somebody asked for.
"""

from __future__ import annotations

from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.ir.types import is_float
from waxeq_cfamily.scalars import NARROW, rounds
from waxeq_cfamily.values import Values

_SMOOTH = frozenset({
    "Add", "Mul", "sub", "div", "recip", "square",
    "exp", "exp2", "expm1", "sin", "cos", "tanh", "arctan", "erf", "sigmoid",
})  # fmt: skip
"""Functions of a value that are as good of one with more digits, and defined wherever they are of the other."""
_PASSING = frozenset({"neg", "abs", "max", "min", "fmax", "fmin", "Select"})
"""Functions that give a digit for each of their argument's: what is made of them decides."""


def excess(values: Values) -> frozenset[int]:
    """The rows of floats that need not be as their dtype has them: all that is made of them is smooth, or is written.
    What was cast to fewer digits was so for some reason."""
    found: set[int] = set()
    for n in reversed(range(len(values.rows))):
        r = values.rows[n]
        asked = r.name == "Cast" and r.dtype in NARROW
        if is_float(r.dtype) and not asked and all(_takes(values, u, n, found) for u in values.users.get(n, ())):
            found.add(n)
    return frozenset(found)


def _takes(values: Values, user: int, n: int, found: set[int]) -> bool:
    """Whether a row may be made of one that is not rounded. `found`: those of all later rows that are not."""
    r = values.rows[user]
    if n not in r.args or not is_float(r.dtype):
        return False
    if r.name == "Cast":
        return r.dtype in NARROW or user in found
    if r.op == "apply":
        return r.name in _SMOOTH or (r.name in _PASSING and user in found)
    if r.op == "fold":
        return r.name == "sum" or (r.name in ("max", "min") and user in found)
    return r.op == "within" and user in found


def spares(meaning: Term) -> bool:
    """Whether some value of a meaning may not have to be rounded: another float is made of it."""
    kinds = types(meaning)
    users = (t for t, kind in kinds.items() if is_float(kind.dtype) and _name(t) in _USERS)
    return any(_rounded(a, kinds[a].dtype) for t in users for a in t.terms)


_USERS = _SMOOTH | _PASSING | {"Sum", "Cast"}


def _rounded(t: Term, dtype: str) -> bool:
    """Whether a term is a function whose value is rounded."""
    return t.head in ("Map", "Zip", "Add", "Mul") and rounds(_name(t), dtype)


def _name(t: Term) -> str:
    """The function that a term applies; else its head."""
    return str(t.args[0]) if t.head in ("Map", "Zip") else t.head
