"""Casts of floats to integers that do not hold them, as NumPy has them on machines of today: through 32 bits to fewer,
the least integer of 32 or 64 bits where there is none. C leaves them open, and compilers take a float that was cast to
an integer and back for one that lost its fraction: infinity would stay infinity, and -0.5 become -0. And casts of truth
values, which are factors of 0 and 1."""

from __future__ import annotations

from waxeq.ir.types import is_float
from waxeq_cfamily.scalars import CTYPES, carried, variable
from waxeq_cfamily.values import Row, Values

NONE = "none"
"""The variable of a 0 that compilers do not know."""
_SMALL = frozenset({"int8", "int16"})


def cast(values: Values, r: Row, *, hides: bool) -> str | None:
    """A format string over its argument for a cast that needs care; None for others."""
    source = values.rows[r.args[0]]
    if r.dtype in _SMALL and is_float(source.dtype):
        return f"(({CTYPES[r.dtype]})(int32_t){{0}})"
    return f"(({variable(r.dtype)})({{0}} ^ {NONE}))" if hides and back(values, r) else None


def back(values: Values, r: Row) -> bool:
    """Whether a row makes a float again of an integer that such a float was cast to."""
    if r.op != "apply" or r.name != "Cast" or not is_float(r.dtype):
        return False
    whole = values.rows[r.args[0]]
    if whole.op != "apply" or whole.name != "Cast" or whole.dtype not in ("int32", "int64"):
        return False
    return carried(values.rows[whole.args[0]].dtype) == carried(r.dtype)


def masked(values: Values, r: Row) -> str | None:
    """A format string over its arguments for a product of an integer with a truth value; None for others. Few machines
    multiply vectors of 64 bits, all have masks of them."""
    if r.op != "apply" or r.name != "Mul" or is_float(r.dtype):
        return None
    for mask, other in ((0, 1), (1, 0)):
        made = values.rows[r.args[mask]]
        if made.op == "apply" and made.name == "Cast" and values.rows[made.args[0]].dtype == "bool":
            return f"(({CTYPES[r.dtype]})(-{{{mask}}} & {{{other}}}))"
    return None
