"""Products of matrices whose sizes are known only when they are bound: one text for all, compiled once.

Tiles are of one size, whatever the rows and columns come to: of few rows there is one tile along them, so that columns
are shared out as if there were never more. What lies between products has room for the largest sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from waxeq.backend.call import Call
from waxeq.backend.extent import Extent
from waxeq_cfamily.products import Product
from waxeq_cfamily.sized import SizedEmitter
from waxeq_cfamily.spaces import Tile, chained
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Values
from waxeq_native import products
from waxeq_native.products_text import ProductEmitter
from waxeq_native.sized import Sized
from waxeq_native.work import Work


@dataclass(frozen=True)
class SizedProductEmitter(ProductEmitter, SizedEmitter):
    """Calls of the register kernels whose sizes are expressions over the sizes."""


class _Products(Sized, products.Products):
    """What all of them have in common."""

    def _arranged(self, call: Call) -> tuple[Values, tuple[Product, ...] | None]:
        if not call.sized:
            return super()._arranged(call)
        return call.remember("products", lambda: products.products_of(self.values(call)))

    def in_blocks(self, call: Call, values: Values) -> Work | None:
        """Blocks are equal parts of an axis, which is another length at other sizes."""
        return None if call.sized else super().in_blocks(call, values)

    def tile(self, values: Values, found: tuple[Product, ...], threads: int) -> Tile:
        """Where rows or columns may be few, threads share out the columns of one tile of rows."""
        sizes, last = values.sizes, found[-1]
        if not isinstance(sizes[last.rows], Extent) and not isinstance(sizes[last.columns], Extent):
            return super().tile(values, found, threads)
        rows, columns = self.room(values, found), int(sizes[last.columns])
        if threads == 1 or chained(values, found):
            return Tile(rows, self.most.columns)
        wanted = products.SHARES * threads
        return Tile(rows, products.shared_columns(columns, self.most.columns, 1, wanted, threads))

    def writer(self, call: Call, s: Space) -> Callable[..., ProductEmitter]:
        return partial(SizedProductEmitter, sizes=call.sized) if call.sized else super().writer(call, s)


class SizedProducts(_Products):
    """Products of matrices of any sizes."""


class SizedTallProducts(_Products, products.TallProducts):
    """The same with more rows at a time."""


class SizedSmallProducts(_Products, products.SmallProducts):
    """The same in narrower tiles."""


KERNELS = (SizedProducts, SizedTallProducts, SizedSmallProducts)
"""By name those that take the calls of the kernel of that name."""
