"""Places of extremes, drawn at random."""

from __future__ import annotations

import numpy as np

from waxeq.backend.call import operand
from waxeq.ir.term import Term
from waxeq.testing.rows import Found, Rows

PICK = Term("Red", "argmax", "i", Term("Map", "tanh", operand(0, "i", "float32")))
"""One that every kernel for them computes, whatever functions it is there for."""
_LENGTHS = (16, 17, 33, 129, 700, 3000, 70_000, 200_000)
_DTYPES = ("float32", "float32", "float64", "int32", "int64", "uint32")


def picked(rng: np.random.Generator, most: int) -> Found:
    """Places of extremes of rows that are long or many, of at most so many elements, with something before."""
    rows = Rows(rng, str(rng.choice(_DTYPES)), _LENGTHS, most)
    kind = str(rng.choice(("argmax", "argmin")))
    return rows.found(Term("Red", kind, "k", rows.beside(rows.leaf(rows.every))))
