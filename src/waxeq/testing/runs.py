"""Running folds, drawn at random."""

from __future__ import annotations

import numpy as np

from waxeq.backend.call import axes_in, operand
from waxeq.basis.scalar import SCANS
from waxeq.ir.term import Term
from waxeq.ir.types import is_float

RUN = Term("Scan", "sum", "i", Term("Map", "tanh", operand(0, "i", "float32")))
"""One that every kernel for them computes, whatever functions it is there for."""
_LENGTHS = (1, 2, 7, 17, 129, 700, 3000, 70_000, 200_000), (1, 2, 5, 17, 64, 300), (1, 3, 8)
"""How long they are, and how many there are around them."""
_NARROW = 700
"""How long those of float16 are at most: NumPy's grow no more where an element is less than half of a unit."""
_DTYPES = ("float32", "float32", "float64", "bfloat16", "float16", "int32", "int64", "uint8", "bool")


def scanned(
    rng: np.random.Generator, most: int
) -> tuple[Term, dict[str, int], list[tuple[frozenset[str], str]], frozenset[str]]:
    """A running fold of rows that are long or many, of at most so many elements, with something before and after it:
    its meaning, sizes, (axes, dtype) of its operands, and no axes besides."""
    dtype = str(rng.choice(_DTYPES))
    sizes, longest = dict[str, int](), _NARROW if dtype == "float16" else most
    for k, lengths in zip("kij", _LENGTHS, strict=True):
        sizes[k] = int(rng.choice([n for n in lengths if n <= min(most, longest)]))
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

    def made() -> Term:
        low, high = (int(n) for n in rng.integers(0, 4, 2))
        if sizes["k"] <= low + high or rng.random() < 0.8:
            return leaf(every)
        sizes["l"] = sizes["k"] - low - high
        return Term("Pad", "l", "k", low, 0.0, leaf(every.replace("k", "l")))

    z = beside(Term("Scan", str(rng.choice(list(SCANS))), "k", beside(made())))
    used = axes_in(z)
    return z, {k: n for k, n in sizes.items() if k in used}, kinds, frozenset()
