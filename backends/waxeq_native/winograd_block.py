"""What a convolution with windows of 3 x 3 is, and the blocks that it is made in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.values import Index

_CHUNK = 32
"""Results that are made at a time: three tiles of a product with vectors of 64 bytes, which fetch what comes next."""
_TILE = 6
"""Rows of a tile with shorter vectors, of which there are 16: one of five takes as long (Zen 3)."""
_FULL = 64
"""Bytes of a vector with which 32 of them come, and tiles of any height."""


@dataclass(frozen=True)
class Convolution:
    """Fold number `fold`, of windows of operand `source` that lie at `where`, and of weights, operand `filter`. Results
    are written to `out`. `axes`: those of the batch, of results, of channels, down and across the result, and down and
    across the window."""

    fold: int
    dtype: str
    source: int
    filter: int
    where: Index
    weights: Index
    out: Index
    axes: tuple[str, ...]
    sizes: Mapping[str, int]

    @property
    def batch(self) -> tuple[str, ...]:
        return self.axes[:-6]

    @property
    def batches(self) -> int:
        return math.prod(self.sizes[k] for k in self.batch)

    @property
    def outputs(self) -> int:
        return self.sizes[self.axes[-6]]

    @property
    def channels(self) -> int:
        return self.sizes[self.axes[-5]]

    @property
    def height(self) -> int:
        return self.sizes[self.axes[-4]]

    @property
    def width(self) -> int:
        return self.sizes[self.axes[-3]]

    @property
    def elements(self) -> int:
        return self.batches * self.outputs * self.height * self.width

    @property
    def down(self) -> int:
        """Lines of squares."""
        return -(-self.height // 2)

    @property
    def across(self) -> int:
        """Squares in a line."""
        return -(-self.width // 2)

    def steps(self, index: Index) -> dict[str, int]:
        """How far a step leads along what it is called here: o, c, h, w, i, j."""
        return {n: index.stride(k) or 0 for n, k in zip("ochwij", self.axes[-6:], strict=True)}

    def at(self, index: Index) -> str:
        """Where the elements of a batch begin."""
        terms = [f"{k} * {index.stride(k) or 0}" for k in self.batch]
        return " + ".join([str(index.const), *terms])


@dataclass(frozen=True)
class Block:
    """`lines` of squares, `outputs` results for each place, of which `chunk` are made at a time; matrices have
    `columns` columns, whole vectors of `lanes` numbers of `item` bytes, and panels are twice as wide. `lying`: products
    of few results read matrices as they lie, and there are no panels."""

    lines: int
    outputs: int
    columns: int
    lanes: int
    item: int
    lying: bool = False

    @property
    def tall(self) -> bool:
        """Whether tiles have more sums than multipliers take at once, however high they are and however wide."""
        return self.lanes * self.item >= _FULL

    @property
    def chunk(self) -> int:
        """What is turned back is soon written over by the next, so that filters and inputs have most of the cache."""
        even = -(-self.outputs // -(-self.outputs // _CHUNK))
        return even if self.tall else min(self.outputs, -(-even // _TILE) * _TILE)

    @property
    def wide(self) -> int:
        """Columns of turned inputs, those of the last panel among them that are not used."""
        return self.columns if self.lying else -(-self.columns // (2 * self.lanes)) * 2 * self.lanes

    @property
    def work(self) -> float:
        """Columns of whole panels that take as long. A vector by itself takes more than half of the time of two side by
        side, and all of it where its sums are too few for the multipliers."""
        return self.columns + self.lanes / 4 * (self.columns // self.lanes % 2) if self.tall else self.wide

    def ahead(self, conv: Convolution) -> int:
        """Elements from one of 16 matrices of turned inputs to the next: these are written side by side, and
        would meet in the same few places of a cache, were they powers of two apart."""
        return self.wide * conv.channels + self.lanes

    @property
    def back(self) -> int:
        """The same of sums, which lie by rows."""
        return self.chunk * self.columns + self.lanes

    def pixels(self, conv: Convolution) -> int:
        """Results of a chunk for each filter."""
        return 2 * self.lines * conv.width

    def kept(self, conv: Convolution) -> int:
        """Elements from the results of a chunk for one filter to those for the next, where more is done with them."""
        return self.pixels(conv) + self.lanes

    def bytes(self, conv: Convolution) -> int:
        """What the 16 numbers of inputs and of results take, and results before anything else is done with them."""
        apart = 16 * (self.columns * (conv.channels + self.chunk + 1) + 2 * self.lanes)
        return (apart + self.chunk * self.kept(conv)) * numpy_dtype(conv.dtype).itemsize

    def frame(self, conv: Convolution) -> int:
        """What a block has on the stack: the same, the half of a panel that may be empty, and lines summed down."""
        item, down = numpy_dtype(conv.dtype).itemsize, 8 * self.lines * (conv.across + 1)
        return self.bytes(conv) + (16 * (self.wide - self.columns) * conv.channels + down) * item

    def tasks(self, conv: Convolution) -> int:
        return conv.batches * -(-conv.down // self.lines) * -(-conv.outputs // self.outputs)
