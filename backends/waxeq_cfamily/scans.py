"""Running folds with anything element-wise around them, as the C family sees them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from waxeq_cfamily.scalars import NARROW, carried, expression, rounded, rounds
from waxeq_cfamily.spaces import Widths, collapsed
from waxeq_cfamily.split import Nest, cut
from waxeq_cfamily.values import Index, Row, Unsupported, Values, kept

_STEPS = {"sum": "Add", "prod": "Mul"}
"""The functions of two numbers that scans are made of, where they have another name."""


@dataclass(frozen=True)
class Scan:
    """`row` is the one scan of some values; it runs along `axis`."""

    values: Values
    row: int
    axis: str

    @staticmethod
    def of(values: Values) -> Scan:
        """The scan that a meaning is. Raises Unsupported."""
        if len(values.scans) != 1 or any(r.op == "fold" for r in values.rows):
            raise Unsupported("no scan, or other folds as well")
        values = collapsed(values)
        n = values.scans[0]
        r = values.rows[n]
        if r.name == "prod" and r.dtype in NARROW:
            raise Unsupported("a float32 does not underflow where a narrow float does")
        return Scan(values, n, r.folded[0])

    @property
    def around(self) -> tuple[str, ...]:
        """Axes of which every place has a scan of its own, the slowest first."""
        own = (k for k in self.values.sizes if k != self.axis)
        return tuple(sorted(own, key=lambda k: (-abs(self.values.out.stride(k) or 0), k)))

    @property
    def points(self) -> int:
        return math.prod(self.values.sizes[k] for k in self.around)

    @property
    def size(self) -> int:
        return self.values.sizes[self.axis]

    @property
    def beside(self) -> bool:
        """Whether what is read or written lies side by side along the axis, and nothing does along another one."""
        steps = {k: self.values.out.stride(k) for k in self.values.sizes if self.values.sizes[k] > 1}
        return steps.get(self.axis) == 1 or 1 not in steps.values()

    @property
    def kind(self) -> str:
        return self.values.rows[self.row].name

    @property
    def dtype(self) -> str:
        """Of what is kept while it runs: sums of narrow floats are not rounded there."""
        return carried(self.values.rows[self.row].dtype)

    def totals(self, width: int, widths: Widths, operand: int, dtype: str) -> Nest:
        """The walk that folds every piece of such a width in some dtype, as partial result number `operand`."""
        values, n = self.values, self.row
        r, rows = values.rows[n], values.rows[:n]
        if dtype != self.dtype:
            rows = (*rows, Row("apply", "Cast", r.args, dtype, rows[r.args[0]].axes))
            r = replace(r, args=(n,))
        rows = (*rows, replace(r, op="fold", axes=r.axes - {self.axis}, dtype=dtype))
        rows = kept(rows, len(rows) - 1)
        used = {k for x in rows for k in (*x.axes, *x.folded)}
        own = Values(rows, {k: size for k, size in values.sizes.items() if k in used}, Index())
        return cut(own, own.root, self.axis, width, widths, operand)[0]


def longest(values: Values) -> int:
    """How long the scan is that a meaning is; 0 for other meanings."""
    try:
        return Scan.of(values).size if values.scans else 0
    except Unsupported:
        return 0


def stepped(r: Row, last: str, x: str) -> str:
    """What a scan has come to with one more value."""
    name = str(_STEPS.get(r.name, r.name))
    text = expression(name, r.dtype, r.dtype, {})
    assert text is not None
    step = text.format(last, x)
    return rounded(step, r.dtype) if rounds(name, r.dtype) else step
