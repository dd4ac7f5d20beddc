"""Products that are compared with themselves: they are made once, as a compiler rounds a product and a sum at once."""

from __future__ import annotations

from waxeq.ir.types import is_float
from waxeq_cfamily.values import Values

_SELECTS = frozenset({"max", "min", "fmax", "fmin"})
_SMOOTH = frozenset({"exp", "exp2"})


def compared(values: Values, row: int) -> bool:
    """Whether a row is a product of which a fold selects one, and of which sums are made too: where these are made in
    another loop, the product in them is not the one that was selected, and their difference is not nothing. A function
    that is smooth where both are equal takes no notice."""
    r, users = values.rows[row], values.users
    if r.op != "apply" or r.name not in ("Mul", "square") or not is_float(r.dtype):
        return False
    uses = [values.rows[u] for u in users.get(row, ())]
    sums = [u for u in users.get(row, ()) if values.rows[u].op == "apply" and values.rows[u].name in ("Add", "sub")]
    selected = any(u.op == "fold" and u.name in _SELECTS for u in uses)
    return selected and any(values.rows[v].name not in _SMOOTH for u in sums for v in users.get(u, (u,)))
