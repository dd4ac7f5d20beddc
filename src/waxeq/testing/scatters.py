"""Updates at places along an axis, drawn at random."""

from __future__ import annotations

import numpy as np

from waxeq.backend.call import axes_in, operand
from waxeq.basis.scalar import SCATTERS
from waxeq.ir.term import Term

PUT = Term("Scatter", "set", "k", "p", operand(0, "p", "int64"), operand(1, "p", "float32"), operand(2, "k", "float32"))
"""One that every kernel for them computes."""
_LENGTHS = (1, 2, 7, 33, 300), (0, 1, 2, 17, 129, 700), (1, 3, 8), (1, 2, 17, 33, 130)
"""How many places and updates there are, how many of these around them, and how long each is."""
_DTYPES = ("float32", "float32", "float64", "bfloat16", "float16", "int32", "int64", "uint8", "bool")


def scattered(
    rng: np.random.Generator, most: int
) -> tuple[Term, dict[str, int], list[tuple[frozenset[str], str]], frozenset[str]]:
    """Updates put or added at places, of at most so many elements in all, with something before them: the meaning, its
    sizes, (axes, dtype) of its operands, and no axes besides."""
    dtype = str(rng.choice(_DTYPES))
    f = "set" if dtype == "bool" else str(rng.choice(SCATTERS))
    sizes = dict[str, int]()
    for k, lengths in zip("kpbc", _LENGTHS, strict=True):
        sizes[k] = int(rng.choice([n for n in lengths if n <= max(1, most)]))
        most //= max(1, sizes[k])
    around = "".join(a for a in "bc" if rng.random() < 0.5)
    kinds: list[tuple[frozenset[str], str]] = []

    def leaf(axes: str, dtype: str = dtype) -> Term:
        kinds.append((frozenset(axes), dtype))
        return operand(len(kinds) - 1, axes, dtype)

    def update() -> Term:
        x = leaf("p" + (around if rng.random() < 0.8 else ""))
        if rng.random() < 0.3:
            return Term("Gather", "q", leaf("p", "int64"), leaf("q" + around))
        return x if dtype == "bool" or rng.random() < 0.5 else Term(str(rng.choice(("Add", "Mul"))), x, leaf("p"))

    sizes["q"] = int(rng.integers(1, 9))
    index = leaf("p" + (around if rng.random() < 0.2 else ""), str(rng.choice(("int64", "int64", "int32", "uint8"))))
    x = Term("Num", 0.0, dtype) if rng.random() < 0.3 else leaf("k" + around)
    z = Term("Scatter", f, "k", "p", index, update(), x)
    used = axes_in(z)
    return z, {k: n for k, n in sizes.items() if k in used}, kinds, frozenset()
