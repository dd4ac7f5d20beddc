"""Quotients and remainders of signed whole numbers by a positive one that is known, rounded down as NumPy has them: a
shift, or a product with the reciprocal (T. Granlund and P. Montgomery, Division by invariant integers using
multiplication, 1994). Compilers divide numbers of 64 bits one by one, and round towards zero first. Of fewer bits they
make such products themselves, where nothing is asked but whether the remainder is negative."""

from __future__ import annotations

from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.values import Row, Values

_SIGNED = frozenset({"int8", "int16", "int32", "int64"})


def divided(values: Values, r: Row) -> str | None:
    """A format string over its arguments for a quotient or a remainder by such a number; None for others."""
    if r.op != "apply" or r.name not in ("floordiv", "mod") or r.dtype not in _SIGNED:
        return None
    by = values.rows[r.args[1]]
    c = int(float(by.name)) if by.op == "number" else 0
    if c <= 0:
        return None
    if c & (c - 1) == 0:
        return f"({{0}} >> {c.bit_length() - 1})" if r.name == "floordiv" else "({0} & {1} - 1)"
    if r.dtype != "int64":
        less = "({0} / {1} - ({0} % {1} < 0))" if r.name == "floordiv" else "({0} % {1} + ({0} % {1} < 0 ? {1} : 0))"
        return f"(({CTYPES[r.dtype]}){less})"
    bits = (c - 1).bit_length()
    quotient = f"wx_over_i64({{0}}, {(1 << 63 + bits) // c + 1}ull, {bits - 1})"
    return f"((int64_t){quotient})" if r.name == "floordiv" else f"((int64_t)({{0}} - {quotient} * {{1}}))"
