"""What every member of the C family asks of a call (whether loops can compute it, what its result may replace), and how
the text of its functions is named."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from waxeq.backend.call import Call
from waxeq_cfamily.products import DTYPES, Found, found
from waxeq_cfamily.values import Values

NAME = "WX_FUNCTION"
"""Stands for a function's name in its text; the name is a hash of the text."""
_MATRIX, _ROWS = 4, 8
"""Rows and columns from which a sum of products is a product of matrices, which loops are no way to compute; and rows
below which they are, where the other side lies along what is folded: each line of it is folded with all of them while
it is in the first cache."""


@dataclass(frozen=True)
class Named:
    """The text of one function, with NAME for its name."""

    text: str

    @cached_property
    def name(self) -> str:
        return "wx_" + hashlib.sha256(self.text.encode()).hexdigest()[:20]

    @property
    def source(self) -> str:
        return self.text.replace(NAME, self.name)


def bare_hash(text: str) -> str:
    """A hash of C without its comments, however it is laid out."""
    bare = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    return hashlib.sha256(" ".join(bare.split()).encode()).hexdigest()


def matrices(values: Values, dtypes: Sequence[str] = DTYPES) -> bool:
    """Whether some sum of products, of these dtypes, is a product of matrices."""
    return any(
        any(min(values.sizes[k] for k in own) >= _MATRIX for own in f.own) and not _few(values, f)
        for f in found(values, dtypes)
    )


def _few(values: Values, f: Found) -> bool:
    """Whether a product has few rows, and its other side lies along what is folded."""
    rows, side = min((math.prod(values.sizes[k] for k in own), side) for own, side in zip(f.own, f.sides, strict=True))
    (other,) = {*f.sides} - {side} or {side}
    r = values.rows[other]
    return rows < _ROWS and r.op == "load" and any(r.name[1].stride(k) == 1 for k in f.folded)


def empty(values: Values) -> bool:
    """Whether something is folded or looked up that has no elements."""
    folded = any(values.sizes[k] == 0 and r.name in ("max", "min") for r in values.rows for k in r.folded)
    return folded or any(0 in sizes for sizes in values.positions.values())


def astray(values: Values) -> bool:
    """Whether a position that is known lies outside its axis: the kernel would have nothing to look at when it runs."""
    return any(
        values.rows[n].op == "number" and not all(-size <= float(values.rows[n].name) < size for size in sizes)
        for n, sizes in values.positions.items()
    )


def replaceable(values: Values, c: Call) -> tuple[int, ...]:
    """Operands of a canonical call that are read only where the result is written, and lie as it does."""
    reads: dict[int, bool] = {}
    for r in values.rows:
        if r.op == "load":
            reads[r.name[0]] = reads.get(r.name[0], True) and r.name[1] == values.out and not r.guards
    out = (c.out.axes, c.out.strides, c.out.dtype, c.out.offset)
    return tuple(
        i for i, v in enumerate(c.operands)
        if reads.get(i) and (v.axes, v.strides, v.dtype, v.offset) == out and not c.shared
    )  # fmt: skip
