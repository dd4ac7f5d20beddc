"""Rows that are long or many, drawn at random, with something element-wise beside what is made of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from waxeq.backend.call import axes_in, operand
from waxeq.ir.term import Term
from waxeq.ir.types import is_float

Found = tuple[Term, dict[str, int], list[tuple[frozenset[str], str]], frozenset[str]]
"""A meaning, its sizes, (axes, dtype) of its operands, and axes that only its result has."""
_AROUND = (1, 2, 5, 17, 64, 300), (1, 3, 8)
"""How many rows there are, along the axes `i` and `j`."""


class Rows:
    """Operands of one dtype along `k`, as long as one of `lengths`, no longer than `longest`, and of at most `most`
    elements."""

    def __init__(
        self, rng: np.random.Generator, dtype: str, lengths: Sequence[int], most: int, longest: int | None = None
    ) -> None:
        self.rng, self.dtype, self.sizes = rng, dtype, dict[str, int]()
        longest = most if longest is None else longest
        for k, ways in zip("kij", (lengths, *_AROUND), strict=True):
            self.sizes[k] = int(rng.choice([n for n in ways if n <= min(most, longest)]))
            most //= self.sizes[k]
        self.every = "ijk" if rng.random() < 0.4 else "ik"
        self.kinds: list[tuple[frozenset[str], str]] = []

    def leaf(self, axes: str) -> Term:
        """Another operand."""
        self.kinds.append((frozenset(axes), self.dtype))
        return operand(len(self.kinds) - 1, axes, self.dtype)

    def beside(self, x: Term) -> Term:
        """A value as it is, or with something that is made of each element."""
        rng = self.rng
        if rng.random() < 0.5:
            return x
        if is_float(self.dtype) and rng.random() < 0.5:
            return Term("Map", str(rng.choice(("tanh", "arctan", "square"))), x)
        return Term(str(rng.choice(("Add", "Mul"))), x, self.leaf(str(rng.choice(("k", "i", self.every)))))

    def found(self, z: Term) -> Found:
        """A meaning with what belongs to it; its result has no axes of its own."""
        used = axes_in(z)
        return z, {k: n for k, n in self.sizes.items() if k in used}, self.kinds, frozenset()
