"""Products of matrices with what comes before and after them, on tiles that stay in cache.

A point makes a tile of rows: the register kernels of gemm.c multiply, everything else is the loops of a fused nest. One
product with its epilogue, or a chain of them with a softmax between (attention by blocks of rows: no matrix of all
scores ever lies in memory), are the same form. Where a tile's scores against all keys leave the cache, keys are taken
block by block too. Weights are packed once, when the call is bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

from waxeq.backend.call import Call, multiplies
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.functions import libm, own
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.online import Blocks, Online, online, walked
from waxeq_cfamily.parted import parted
from waxeq_cfamily.products import FILLED, Product, arranged
from waxeq_cfamily.scalars import CTYPES, var
from waxeq_cfamily.spaces import Tile, chained, collapsed, tiled
from waxeq_cfamily.stages import Space
from waxeq_cfamily.taken import NAME
from waxeq_cfamily.values import Unsupported, Values
from waxeq_native.gemm import entry
from waxeq_native.loops import limits, operations
from waxeq_native.products_text import BlockEmitter, ProductEmitter
from waxeq_native.work import OPERANDS, NativeKernel, Pack, Part, Work, kept, same

_SCRATCH = 1 << 20
FRAME = 2 * _SCRATCH
"""Bytes of buffers that a point may need: they lie on the stack, of which a thread has four times as much."""
_FEW = 32
"""Rows of a tile below which reading the right sides takes longer than multiplying."""
_NARROW = 64
"""Columns of the narrowest tiles: a multiple of a panel's."""
SHARES = 3
"""Tiles for each thread: one that is held up leaves some to the others."""
_BEGUN = 16
"""Columns that take as long as to begin a tile, for which its rows are packed."""
_LINE = 16
"""Rows of a tile that is turned: those of a line of memory, which two threads would else write to."""
_SHALLOW = 128
"""Depth from which a product gains nothing from more: its sums are made in runs of so many."""
_BLOCK = 256
"""Of an axis that is taken in blocks: a tile's scores against so many keys stay in the second-level cache."""


class Products(NativeKernel):
    """Sums of products of matrices, with any epilogue; with functions of our own."""

    name = "products"
    form = "loops"
    error = 5e-7
    most = Tile(64, 1024)
    through: ClassVar[int] = 128
    """Most rows of a tile that goes through several products: one that has all rows need not pack what it reads."""

    def matches(self, meaning: Term) -> bool:
        return multiplies(meaning)

    def work(self, call: Call) -> Work | None:
        c = call.canonical
        if any(v.dtype not in CTYPES for v in (c.out, *c.operands)) or 0 in c.sizes.values():
            return None
        try:
            values, products = self._arranged(call)
            if products is None or values.positions or values.scans or any(r.dtype not in CTYPES for r in values.rows):
                return None
            return self.walked(call, values, products)
        except Unsupported:
            return None

    def walked(self, call: Call, values: Values, products: tuple[Product, ...]) -> Work | None:
        """The work of a call along the walk that suits it: in blocks where what lies between products leaves too few
        rows to a tile, or needs too much memory. None where there is no walk, or only one that reads large right sides
        again for every few rows. Raises Unsupported."""
        room = self.room(values, products)
        if room < _FEW and values.sizes[products[-1].rows] > 2 * room:
            blocks = self.in_blocks(call, values)
            if blocks is not None or _right_bytes(values, products) > _SCRATCH:
                return blocks
        whole = self.written(call, tiled(values, products, self.tile(values, products, call.threads)))
        return whole if whole is not None else self.in_blocks(call, values)

    def in_blocks(self, call: Call, values: Values) -> Work | None:
        """The work of a call with a folded axis taken block by block; None where that cannot be. Raises Unsupported."""
        o = online(values)
        width = 0 if o is None else _block(o)
        if o is None or width >= o.values.sizes[o.axis]:
            return None
        cut = replace(o.values, sizes={**o.values.sizes, o.axis: width})
        whole = tiled(o.values, o.products, self.tile(cut, o.products, call.threads))
        return self.written(call, walked(o, whole, width))

    def _arranged(self, call: Call) -> tuple[Values, tuple[Product, ...] | None]:
        def make() -> tuple[Values, tuple[Product, ...] | None]:
            return products_of(self.values(call))

        return call.remember("products", lambda: kept(("arranged", *same(call)), make))

    def room(self, values: Values, products: tuple[Product, ...]) -> int:
        """Rows of a tile such that what lies between products stays in cache."""
        if not chained(values, products):
            return self.most.rows
        width = sum(values.sizes[q.columns] for q in products)
        return max(8, min(self.through, (_SCRATCH // 8) // (4 * width)))

    def tile(self, values: Values, products: tuple[Product, ...], threads: int) -> Tile:
        """Tiles as large as they may be while every thread has some."""
        p, sizes = products[-1], values.sizes
        m, n, most = sizes[p.rows], sizes[p.columns], self.room(values, products)
        turned = _LINE if values.out.stride(p.rows) == 1 else 1
        written = math.prod(sizes[k] for k in sizes if values.out.stride(k) and k not in (p.rows, p.columns))
        wanted = 1 if threads == 1 else SHARES * threads
        bands = written * -(-m // _even(m, most, turned))
        columns = n if chained(values, products) else shared_columns(n, self.most.columns, bands, wanted, threads)
        while written * -(-m // most) * -(-n // columns) < wanted and most > 24:
            most //= 2
        return Tile(_even(m, most, turned), columns)

    def written(self, call: Call, s: Space) -> Work | None:
        """The work of a call along a walk; None where it needs too much memory. Raises Unsupported."""
        packs, parts, workspace, texts, deeper = self._packed(call, s)
        operands = [f"args[{OPERANDS + i}]" for i in range(len(call.operands))]
        dtypes = [v.dtype for v in call.operands]
        functions = {**libm(), **own()}
        e = self.writer(call, s)(
            s, functions, operands, "args[2]", dtypes, limits=limits(), packs=texts, deeper=deeper, excess=True
        )  # fmt: skip
        room = max(self.scratch(s, p, p.fold in texts, deeper.get(p.fold)) for p in s.products)
        if s.scratch + room > FRAME:
            return None
        e.check()

        def write() -> tuple[Part, ...]:
            return (*parts, Part(self.function(e, room), e.space.points(), 1))

        return Work(write, workspace, packs=packs, library=self.library())

    def writer(self, call: Call, s: Space) -> Callable[..., ProductEmitter]:
        """What writes the text of a walk."""
        return BlockEmitter if isinstance(s, Blocks) else ProductEmitter

    def library(self) -> int | None:
        """What `wx_context.library` is for its functions, as an address."""
        return None

    def function(self, e: Emitter, room: int) -> str:
        """The text of a function that multiplies matrices with so many bytes of scratch."""
        return function(e, room)

    def scratch(self, s: Space, p: Product, packed: bool, deeper: str | None) -> int:
        """Bytes of scratch that a product needs."""
        return scratch(s, p, packed, deeper)

    def panel(self, s: Space, p: Product) -> int:
        """Columns of a panel."""
        return entry("nr", s.values.rows[p.fold].dtype)

    def pack(self, s: Space, p: Product) -> tuple[Pack, str | None]:
        """The panels of a right side, and the axis that is taken with its depth."""
        pack, axis = _pack(s, p), _deeper(s, p)
        return (pack if axis is None else pack.deeper(axis)), axis

    def as_it_lies(self, s: Space, p: Product) -> bool:
        """Whether to read a right side in place takes less than panels that are made in each call."""
        return _as_it_lies(s, p)

    def _worth_packing(self, s: Space, p: Product, fixed: bool) -> bool:
        """Whether all blocks are as deep, and the right side is a weight, or several points read its panels."""
        points = s.points(s.values.rows[p.right].axes)
        even = s.values.sizes[p.depth] % s.width(p.depth) == 0
        return even and (fixed or (points > 1 and not self.as_it_lies(s, p)))

    def _packed(
        self, call: Call, s: Space
    ) -> tuple[tuple[Pack, ...], tuple[Part, ...], int, dict[int, str], dict[int, str]]:
        """Right sides that are packed beforehand: weights when the call is bound, others in a phase of their own. Last
        the axes that are taken with the depths of these."""
        packs: list[Pack] = []
        parts: list[Part] = []
        texts: dict[int, str] = {}
        deeper: dict[int, str] = {}
        at = 0
        for p in s.products:
            r = s.values.rows[p.right]
            if r.op != "load" or not self._worth_packing(s, p, r.name[0] in call.fixed):
                continue
            pack, axis = self.pack(s, p)
            if pack.repeats or (r.name[0] in call.fixed and pack.varies):
                continue
            if axis is not None:
                deeper[p.fold] = axis
            place = f"args[{OPERANDS + len(call.operands) + len(packs)}]"
            if r.name[0] in call.fixed:
                packs.append(pack)
            else:
                place = f"(args[1] + {at})"
                parts.append(pack.part(at, call.sized))
                at += -(-pack.bytes // 64) * 64
            low = f"{var(p.columns)}_lo * {pack.tall}" if p.columns in s.tiles else "0"
            texts[p.fold] = f"(const {CTYPES[pack.dtype]} *){place} + {pack.offset()} + {low}"
        if any(s.tiles.get(p.columns, 0) % self.panel(s, p) and s.tiles[p.columns] != s.values.sizes[p.columns]
               for p in s.products if p.fold in texts):  # fmt: skip
            raise Unsupported("a tile of columns that cuts a panel")
        return tuple(packs), tuple(parts), at, texts, deeper

    def features(self, call: Call) -> Mapping[str, float]:
        values, products = self._arranged(call)
        rows = {"launches": 1.0, "bytes": float(call.bytes_read + call.out.bytes)}
        assert products is not None
        s = tiled(values, products, self.tile(values, products, call.threads))
        flops = 0.0
        inside: dict[str, float] = {}
        for p in products:
            axes = values.rows[p.left].axes | values.rows[p.right].axes
            volume = float(s.points(axes) * math.prod(values.sizes[k] for k in axes))
            flops += 2.0 * volume
            inside["operations"] = inside.get("operations", 0.0) + 2.0 * volume
            right = values.rows[p.right]
            if right.op == "load" and right.name[0] not in call.fixed and not self.as_it_lies(s, p):
                rows["packed"] = rows.get("packed", 0.0) + math.prod(values.sizes[k] for k in right.axes)
        for name, count in operations(s).items():
            rows[name] = max(0.0, count - inside.get(name, 0.0))
        return {**rows, "flops": flops}


def _even(size: int, most: int, unit: int) -> int:
    """The width of parts of an axis that are about as wide: a last one of few rows costs as much as one of many. One
    part is half as wide again, as `tiled` has it: panels that all rows share are no phase of their own."""
    if size <= most + most // 2:
        return size
    even = -(-size // -(-size // most))
    return min(size, -(-even // unit) * unit)


def shared_columns(n: int, most: int, bands: int, wanted: int, threads: int) -> int:
    """Columns of a tile such that `wanted` tiles of so many bands of rows are shared out, and the thread that has most
    to do is done soonest."""
    least = max(-(-n // most), -(-wanted // bands))
    widths = {-(-n // (parts * _NARROW)) * _NARROW for parts in range(least, 2 * least + 1)}
    return min(widths, key=lambda w: (-(-(bands * -(-n // w)) // threads) * (w + _BEGUN), -w))


def products_of(values: Values) -> tuple[Values, tuple[Product, ...] | None]:
    """The values as products are sought in them, and these. Raises Unsupported."""
    values = collapsed(parted(values))
    return values, arranged(values)


def _right_bytes(values: Values, products: tuple[Product, ...]) -> int:
    """Bytes of the right sides that one point reads, however few rows it has."""
    sides = ((values.rows[p.right].dtype, (p.columns, p.depth, *p.around)) for p in products)
    return sum(numpy_dtype(t).itemsize * math.prod(values.sizes[k] for k in axes) for t, axes in sides)


def _block(o: Online) -> int:
    """How much of its axis a block takes: equal blocks, two at least, that cut no panel."""
    size = o.values.sizes[o.axis]
    nr = max(entry("nr", o.values.rows[p.fold].dtype) for p in o.products)
    return -(-size // (max(2, -(-size // _BLOCK)) * nr)) * nr


def _as_it_lies(s: Space, p: Product) -> bool:
    """Whether all rows are so few that to read the right side in place takes less than panels that are made in each
    call: by dot products, or as rows that lie well."""
    left, right = (s.values.rows[n] for n in (p.left, p.right))
    if right.op != "load":
        return False
    own, dtype = right.name[1], s.values.rows[p.fold].dtype
    m, n, depth = s.values.sizes[p.rows], s.values.sizes[p.columns], s.width(p.depth)
    rbs, cbs = (int(own.stride(k) or 0) for k in (p.depth, p.columns))
    cas = int(left.name[1].stride(p.depth) or 0) if left.op == "load" else 0
    if left.op == "load" and entry("dots_pay", dtype)(m, depth, cas, rbs):
        return True
    return bool(entry("lies_well", dtype)(m, n, depth, rbs, cbs))


def _pack(s: Space, p: Product) -> Pack:
    """The panels of a right side; those of each block lie together."""
    r, width = s.values.rows[p.right], s.width(p.depth)
    pack = Pack.of(s.values, p, r.name[0], r.name[1])
    if width == pack.depth:
        return pack
    blocks = (f"{var(p.depth)}_t", pack.depth // width, width * pack.depth_step)
    return replace(pack, axes=(*pack.axes, blocks), depth=width)


def _deeper(s: Space, p: Product) -> str | None:
    """The axis around a shallow product that lies around its depth on the left side too: taken as one they are added to
    the tile less often."""
    left, size = s.values.rows[p.left], s.values.sizes[p.depth]
    if left.op != "load" or size >= _SHALLOW or s.width(p.depth) < size:
        return None
    step = (left.name[1].stride(p.depth) or 0) * size
    return next((k for k in p.around if step and left.name[1].stride(k) == step and k not in s.tiles), None)


def function(e: Emitter, room: int) -> str:
    """The text of a function that multiplies matrices with so many bytes of scratch."""
    return begun(e, f"WX_ALIGNED char scratch[{max(64, room)}];")


def begun(e: Emitter, more: str) -> str:
    """The text of a function that calls what multiplies matrices, with one more line at its beginning."""
    first = ("(void)thread;", "const wx_api *api = (const wx_api *)((wx_context *)args[0])->api;", more)
    return e.function(NAME).replace("  (void)thread;", "\n".join(f"  {x}" for x in first))


def scratch(s: Space, p: Product, packed: bool, deeper: str | None = None) -> int:
    """Bytes of scratch that a product needs; `packed`: its right side lies in panels, `deeper`: the axis that is taken
    with its depth."""
    need = entry("gemm_scratch" if packed else "gemm_any_scratch", s.values.rows[p.fold].dtype)
    depth = s.width(p.depth) * (1 if deeper is None else s.width(deeper))
    return int(need(s.width(p.rows), s.width(p.columns), depth))


class TallProducts(Products):
    """The same with more rows at a time."""

    name = "products_tall"
    usual = Products
    variant_of = usual.name
    most = Tile(128, 1024)


class SmallProducts(Products):
    """The same in narrower tiles, and with fewer rows where products are chained: more of them to share out."""

    name = "products_small"
    usual = Products
    variant_of = usual.name
    most = Tile(96, 256)
    through = 48


class OnlineProducts(Products):
    """The same with a folded axis taken block by block where that can be: attention with an online softmax."""

    name = "products_online"
    usual = Products
    variant_of = usual.name

    def walked(self, call: Call, values: Values, products: tuple[Product, ...]) -> Work | None:
        return self.in_blocks(call, values)


class ExchangedProducts(Products):
    """The same with the sides exchanged where many columns that lie along the depth meet few rows: these are made to
    panels, the others are read where they lie, and a tile is turned before it is written."""

    name = "products_exchanged"
    usual = Products
    variant_of = usual.name

    def _arranged(self, call: Call) -> tuple[Values, tuple[Product, ...] | None]:
        values, products = super()._arranged(call)
        if products is None or len(products) != 1 or not _lopsided(call, values, products[0]):
            return values, None
        (p,) = products
        return values, (replace(p, left=p.right, right=p.left, rows=p.columns, columns=p.rows),)


def _lopsided(call: Call, values: Values, p: Product) -> bool:
    """Whether a right side has twice as many columns as there are rows, lies along the depth, and is no weight. Tiles
    of four bytes an element are turned."""
    left, right = (values.rows[n] for n in (p.left, p.right))
    if left.op != "load" or right.op != "load" or values.rows[p.fold].dtype != "float32" or p.columns in values.folded:
        return False
    few, many = values.sizes[p.rows], values.sizes[p.columns]
    return right.name[0] not in call.fixed and right.name[1].stride(p.depth) == 1 and FILLED <= few <= many // 2


KERNELS = (Products, TallProducts, SmallProducts, OnlineProducts, ExchangedProducts)
