"""What is known of the signs of values from how they are made."""

from __future__ import annotations

from waxeq_cfamily.values import Values, chain


def at_most_zero(values: Values, row: int) -> bool:
    """Whether a row is known to be zero or less, or NaN: what the maximum of its like is subtracted from."""
    r = values.rows[row]
    if r.op != "apply" or r.name != "sub":
        return False
    x, top = r.args
    m = values.rows[_maximum(values, top)]
    return m.op == "fold" and m.name == "max" and chain(values, _maximum(values, top))[1] == x


def at_least_zero(values: Values, row: int) -> bool:
    """Whether a row is known to be zero or more, or NaN: a square, a size, a power; a sum of these, a part of that."""
    r = values.rows[row]
    if r.op == "fold":
        return r.name in ("sum", "max", "min") and at_least_zero(values, r.args[0])
    if r.op != "apply":
        return False
    factors = [a for a in r.args if values.rows[a].op != "number" or not float(values.rows[a].name) >= 0]
    if r.name in ("Mul", "div") and len(factors) == 1:
        return at_least_zero(values, factors[0])
    return r.name in ("square", "abs", "exp") or (r.name == "Mul" and len({*r.args}) == 1)


def _maximum(values: Values, row: int) -> int:
    """The maximum M of a row that is M, or 0 where M is -inf (`waxeq_cfamily.online`); else the row itself."""
    r = values.rows[row]
    if r.name != "Select":
        return row
    none, zero, _ = (values.rows[a] for a in r.args)
    least = {values.rows[a].name for a in none.args if a != r.args[2]}
    safe = none.name == "eq" and r.args[2] in none.args and least == {"-inf"} and zero.name == "0.0"
    return r.args[2] if safe else row
