"""Attention by groups of four warps on GPUs of compute capability 9.0: tensor maps bring queries, keys and values to
shared memory, and wgmma multiplies them there, the weights of the values out of registers (attention_hopper.cuh).

Queries and keys are arrays as they lie, along the depth; values lie along their columns; all are float16, or bfloat16.
What is done to scores, and what comes after, is anything element-wise, as for `cupy.attention`, whose text runs where
memory begins elsewhere than at 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from waxeq.backend.call import Call
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import NARROW
from waxeq_cfamily.values import Unsupported
from waxeq_cupy.attended import Attention
from waxeq_cupy.attention import FlashAttention
from waxeq_cupy.flash import Way, Written
from waxeq_cupy.kernels import Work
from waxeq_cupy.products import Product, plain
from waxeq_cupy.sides import indented
from waxeq_cupy.tensormaps import ALIGNED, ARCHITECTURE, TensorMap, boxes
from waxeq_cupy.text import Text
from waxeq_cupy.wgmma import GROUP, KINDS, PATTERN, PRODUCER, registers, side

_ROWS, _KEYS, _STAGES = 128, 128, 2
"""Queries of a block, keys that it takes at a time, and how many of those are in shared memory at one time."""
_LINE = 64
"""Elements of a line of a box."""
_DEEPEST = 128
"""Places of the depth, and columns of the values, for which there is room in shared memory and in registers."""


@dataclass(frozen=True)
class Grouped(Written):
    """The kernel of one attention."""

    @property
    def threads(self) -> int:
        return _ROWS // 64 * GROUP + GROUP

    @property
    def high(self) -> int:
        return _ROWS

    @property
    def long(self) -> int:
        return _KEYS

    @cached_property
    def columns(self) -> int:
        """Of the values, in whole lines. Raises Unsupported."""
        return _lines(self.attention.product.size(self.attention.product.columns))

    @cached_property
    def depth(self) -> int:
        """Of queries and keys, in whole lines. Raises Unsupported."""
        return _lines(self.attention.scores.size(self.attention.scores.depths))

    @cached_property
    def text(self) -> Text:
        own = self._text(self.threads, self.replaced, self.dtypes)
        return replace(own, together=1, maps=("query_map", "key_map", "value_map"))

    @cached_property
    def maps(self) -> tuple[TensorMap, TensorMap, TensorMap]:
        """Of queries, keys and values. Raises Unsupported for what is no array as it lies, or none that a map can
        have."""
        p, q = self.attention.product, self.attention.scores
        axes = (q.depths, p.rows, p.depths, p.columns)
        if any(len(x) != 1 for x in axes):
            raise Unsupported("several axes that are walked as one")
        (d,), (m,), (n,), (c,) = axes
        return (
            _map(q, q.left, {d: _LINE, m: _ROWS}), _map(q, q.right, {d: _LINE, n: _KEYS}),
            _map(p, p.right, {c: _LINE, n: _KEYS}),
        )  # fmt: skip

    @property
    def ring(self) -> int:
        """Bytes of queries, and of keys and values."""
        return 2 * (_ROWS * self.depth + _STAGES * _KEYS * (self.depth + self.columns))

    def work(self) -> Work:
        self.text.check()
        work = super().work()
        (x,) = work.launches
        asked = replace(x, maps=self.maps, shared=self.ring + PATTERN, architecture=ARCHITECTURE)
        return replace(work, launches=(asked,))

    def _body(self) -> Iterator[str]:
        kind, h = KINDS[self.attention.dtype], {"float16": "wx_f16", "bfloat16": "wx_bf16"}[self.attention.dtype]
        shape = f"{kind}, {h}, {self.columns}, {self.depth}, {_KEYS}, {_STAGES}"
        yield f"typedef wx_attention_groups<{shape}> tile;"
        yield f'static_assert(tile::ring == {self.ring} && tile::threads == {self.threads}, "");'
        yield "WX_RING(ring, tile::ring);"
        yield "WX_MBARRIERS(bars, tile::mbarriers);"
        yield "tile::begun(bars);"
        yield from self._begun()
        yield "if (threadIdx.x >= tile::multiplying) {"
        yield f"  wx_registers_less<{PRODUCER}>();"
        yield "  if (threadIdx.x == tile::multiplying) {"
        for name, m in zip(("query", "key", "value"), self.maps, strict=True):
            yield f"    wx_map_prefetch({name}_map);"
            yield from indented(indented(side(name, m)))
        yield "    tile::brought(ring, bars, query, key, value, begin, first, last);"
        yield "  }"
        yield "} else {"
        yield f"  wx_registers_more<{registers(self.threads)}>();"
        yield from indented(self._multiplied())
        yield "}"

    def _multiplied(self) -> Iterator[str]:
        yield "WX_SUMS(s, tile::scored);"
        yield "WX_SUMS(o, tile::kept);"
        yield "WX_FACTORS(u, tile::weights);"
        yield "wx_online<float> rows[2];"
        yield from self._scored()
        yield "tile::made(ring, bars, score, s, o, u, rows, begin, first, last);"
        yield from self._given("o, rows, begin", self._most)


def _lines(size: int) -> int:
    """A size in whole lines. Raises Unsupported."""
    if size > _DEEPEST:
        raise Unsupported("rows that are too long")
    return -(-size // _LINE) * _LINE


def _map(p: Product, row: int, box: dict[str, int]) -> TensorMap:
    """Raises Unsupported."""
    read = plain(p.values, row)
    if read.dtype not in NARROW:
        raise Unsupported("a dtype that groups of warps do not multiply")
    return boxes(read.operand, read.dtype, read.offset, read.steps, p.values.sizes, box, rounded=False)


class WgmmaAttention(FlashAttention):
    """Attention of many queries by groups of warps, with all keys in one piece."""

    name = "attention_wgmma"
    variant_of = FlashAttention.name
    sought = "cuda product of attention by groups of warps"
    otherwise: ClassVar[FlashAttention] = FlashAttention()
    """What makes it in memory that a tensor map cannot have."""

    def differs(self, call: Call) -> bool:
        return True

    def attention(self, call: Call) -> Attention:
        """Of several axes of queries one is that of its blocks, every place of the others has products of its own.
        Raises Unsupported."""
        a = super().attention(call)
        p = a.product
        own = (max(p.rows, key=lambda k: p.values.sizes[k]),)
        return replace(a, product=replace(p, rows=own), scores=replace(a.scores, rows=own))

    def _work(self, call: Call, aligned: bool) -> Work | None:
        try:
            a = self.attention(call)
            if call.out.elements == 0:
                return Work(())
            if a.dtype not in NARROW:
                raise Unsupported("another dtype")
            if any(v.offset * numpy_dtype(v.dtype).itemsize % ALIGNED for v in (*call.operands, call.out)):
                raise Unsupported("memory that begins elsewhere than at 16 bytes")
            dtypes = tuple(v.dtype for v in call.operands)
            made = Grouped(a, Way(few=False), dtypes, frozenset(self.in_place(call)), aligned=True).work()
        except Unsupported:
            return None
        return made if aligned else self.otherwise.work(call, aligned=False)


KERNELS = (WgmmaAttention,)
