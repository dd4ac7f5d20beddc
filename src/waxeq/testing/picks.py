"""Places of extremes, drawn at random."""

from __future__ import annotations

import numpy as np

from waxeq.backend.call import axes_in, operand
from waxeq.ir.term import Term
from waxeq.ir.types import is_float

PICK = Term("Red", "argmax", "i", Term("Map", "tanh", operand(0, "i", "float32")))
"""One that every kernel for them computes, whatever functions it is there for."""
_LENGTHS = (16, 17, 33, 129, 700, 3000, 70_000, 200_000), (1, 2, 5, 17, 64, 300), (1, 3, 8)
"""How long they are, and how many there are around them."""
_DTYPES = ("float32", "float32", "float64", "int32", "int64", "uint32")


def picked(
    rng: np.random.Generator, most: int
) -> tuple[Term, dict[str, int], list[tuple[frozenset[str], str]], frozenset[str]]:
    """Places of extremes of rows that are long or many, of at most so many elements, with something before: their
    meaning, sizes, (axes, dtype) of its operands, and no axes besides."""
    dtype, sizes = str(rng.choice(_DTYPES)), dict[str, int]()
    for k, lengths in zip("kij", _LENGTHS, strict=True):
        sizes[k] = int(rng.choice([n for n in lengths if n <= most]))
        most //= sizes[k]
    every = "ijk" if rng.random() < 0.4 else "ik"
    kinds: list[tuple[frozenset[str], str]] = []

    def leaf(axes: str) -> Term:
        kinds.append((frozenset(axes), dtype))
        return operand(len(kinds) - 1, axes, dtype)

    def beside(x: Term) -> Term:
        if rng.random() < 0.5:
            return x
        if is_float(dtype) and rng.random() < 0.5:
            return Term("Map", str(rng.choice(("tanh", "arctan", "square"))), x)
        return Term(str(rng.choice(("Add", "Mul"))), x, leaf(str(rng.choice(("k", "i", every)))))

    z = Term("Red", str(rng.choice(("argmax", "argmin"))), "k", beside(leaf(every)))
    used = axes_in(z)
    return z, {k: n for k, n in sizes.items() if k in used}, kinds, frozenset()
