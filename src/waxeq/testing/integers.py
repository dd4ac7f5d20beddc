"""Random products of whole numbers that are widened to be summed, as quantized layers have them."""

from __future__ import annotations

import numpy as np

from waxeq.backend.call import operand
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.testing.rows import Found

_DTYPES = ("int8", "uint8", "int16", "int32", "bool")
_SIZES = (1, 2, 5, 16, 17, 33, 70)


def _widened(n: int, axes: str, dtype: str) -> Term:
    x = operand(n, axes, dtype)
    return x if dtype == "int32" else Term("Cast", "int32", x)


QUANTIZED = Term("Sum", "k", Term("Mul", _widened(0, "mk", "int8"), _widened(1, "kn", "int8")))


def quantized(rng: np.random.Generator, most: int) -> Found:
    """A product of matrices, stacks of them, or one with a vector, perhaps less a zero point and scaled; of at most so
    many elements of its iteration space."""
    while True:
        sizes = {k: int(rng.choice(_SIZES)) for k in ("m", "n", "k")} | {"b": int(rng.integers(1, 4))}
        if np.prod(list(sizes.values())) <= most:
            break
    batch, rows = "b" if rng.random() < 0.3 else "", "m" if rng.random() < 0.7 else ""
    axes = (batch + rows + "k", (batch if rng.random() < 0.5 else "") + "kn")
    kinds = [(frozenset(a), str(rng.choice(_DTYPES))) for a in axes]
    x, y = (_widened(n, "".join(a), dtype) for n, (a, dtype) in enumerate(kinds))
    if rng.random() < 0.3:
        x = Term("Zip", "sub", x, Term("Num", 3.0, "int32"))
    z = Term("Sum", "k", Term("Mul", x, y) if rng.random() < 0.5 else Term("Mul", y, x))
    if rng.random() < 0.5:
        kinds.append((frozenset("n"), "float32"))
        z = Term("Mul", Term("Cast", "float32", z), operand(2, "n", "float32"))
    used = {k for t in types(z).values() for k in t.axes}
    return z, {k: n for k, n in sizes.items() if k in used}, kinds, frozenset()
