"""Text of what becomes of the sums of attention: whatever comes after it, or pieces that a second launch joins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import carried
from waxeq_cfamily.values import Unsupported
from waxeq_cupy.attended import Attention
from waxeq_cupy.kernels import Slot
from waxeq_cupy.sides import GROUP, After, summed
from waxeq_cupy.text import Text


@dataclass(frozen=True)
class AttendedSums(After):
    """After attention, sums come with the `total` of their row."""

    of_row: Attention | None = None

    def known(self) -> tuple[int, ...]:
        assert self.of_row is not None
        return tuple(n for n in (self.product.fold, self.of_row.total) if n is not None)

    def _sum(self, place: str) -> str:
        a, text = self.of_row, self.text
        assert a is not None
        value = f"sums.at[{place}]" + " / total" * a.divides
        return text.known(self.product.fold, text.folded(self.product.fold, value))

    def before(self) -> Iterator[str]:
        a, text = self.of_row, self.text
        assert a is not None
        reads = {n for m in (*self.rows(), text.values.root) for n in text.values.reads(text.values.rows[m])}
        if a.total is not None and a.total in reads:
            yield text.known(a.total, text.folded(a.total, "total"))

    @staticmethod
    def attended(text: Text, a: Attention, most: int, *, aligned: bool) -> AttendedSums:
        """In groups of at most so many."""
        made = After.of(text, a.product, most, aligned=aligned)
        return AttendedSums(made.text, a.product, made.width, a)

    def whole(self) -> Iterator[str]:
        """The body of what is called with `m`, `n`, `sums` and what is known of the `row`."""
        assert self.of_row is not None
        yield f"const {summed(self.of_row.dtype)} total = row.whole();"
        yield "(void)total;"
        yield from self.lines()


@dataclass(frozen=True)
class Partial:
    """What becomes of the pieces of one attention until they are one: for each row and piece its columns, a maximum and
    a sum of exponentials, in a line of memory."""

    attention: Attention
    pieces: int

    @property
    def columns(self) -> int:
        return self.attention.product.size(self.attention.product.columns)

    @property
    def ends(self) -> int:
        """Where a line has its maximum and its sum."""
        return -(-self.columns // 4) * 4

    @property
    def line(self) -> int:
        return self.ends + 4

    @property
    def slot(self) -> Slot:
        """Raises Unsupported."""
        p = self.attention.product
        elements = p.many * p.size(p.rows) * self.pieces * self.line
        if elements >= 1 << 30:
            raise Unsupported("pieces that take too much memory")
        return Slot(0, elements, carried(self.attention.dtype))

    def width(self, most: int, *, aligned: bool) -> int:
        """Elements that are moved at once, at most so many."""
        width = min(most, GROUP // numpy_dtype(self.slot.dtype).itemsize) if aligned else 1
        while self.columns % width:
            width //= 2
        return width

    def given(self, width: int) -> Iterator[str]:
        """The body of what is called with `m`, `n`, `sums` and what is known of the `row`, for the piece `piece`."""
        p = self.attention.product
        rows = p.size(p.rows)
        yield f"if (m >= {rows} || n >= {self.columns}) return;"
        yield f"const int to = (((int)t * {rows} + m) * {self.pieces} + piece) * {self.line};"
        yield f"wx_given<{width}>(out, to + n, sums);"
        yield f"if (n == 0) out[to + {self.ends}] = row.top, out[to + {self.ends + 1}] = row.sum;"
