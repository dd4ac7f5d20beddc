"""Running folds, drawn at random."""

from __future__ import annotations

import numpy as np

from waxeq.backend.call import operand
from waxeq.basis.scalar import SCANS
from waxeq.ir.term import Term
from waxeq.testing.rows import Found, Rows

RUN = Term("Scan", "sum", "i", Term("Map", "tanh", operand(0, "i", "float32")))
"""One that every kernel for them computes, whatever functions it is there for."""
_LENGTHS = (1, 2, 7, 17, 129, 700, 3000, 70_000, 200_000)
_NARROW = 700
"""How long those of float16 are at most: NumPy's grow no more where an element is less than half of a unit."""
_DTYPES = ("float32", "float32", "float64", "bfloat16", "float16", "int32", "int64", "uint8", "bool")


def scanned(rng: np.random.Generator, most: int) -> Found:
    """A running fold of rows that are long or many, of at most so many elements, with something before and after
    it."""
    dtype = str(rng.choice(_DTYPES))
    rows = Rows(rng, dtype, _LENGTHS, most, _NARROW if dtype == "float16" else None)
    kind = str(rng.choice(list(SCANS)))
    return rows.found(rows.beside(Term("Scan", kind, "k", rows.beside(_made(rows)))))


def _made(rows: Rows) -> Term:
    """What is folded: an operand, or a shorter one with a border."""
    low, high = (int(n) for n in rows.rng.integers(0, 4, 2))
    if rows.sizes["k"] <= low + high or rows.rng.random() < 0.8:
        return rows.leaf(rows.every)
    rows.sizes["l"] = rows.sizes["k"] - low - high
    return Term("Pad", "l", "k", low, 0.0, rows.leaf(rows.every.replace("k", "l")))
