"""Products of matrices by groups of four warps: tensor maps bring both sides to a ring in shared memory (TMA), and
wgmma multiplies them there, on GPUs of compute capability 9.0, which alone have it.

A side is an array as it lies, along the depth or across it; float16 and bfloat16 with sums in float32, float32 rounded
to tf32, of which both sides must lie along the depth. Anything element-wise comes after, as for `cupy.gemm`. Where
memory begins elsewhere than at 16 bytes a tensor map cannot say so, and the kernel's text is that of `cupy.gemm`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar

from waxeq.backend.call import Call
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import var
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Unsupported
from waxeq_cupy.gemm import PROCESSORS, Gemm, RoundedGemm, Tile, begun, beside, piece, pieces, split, summed_up
from waxeq_cupy.kernels import Launch, Slot, Work, library
from waxeq_cupy.products import Product, plain
from waxeq_cupy.sides import After, indented
from waxeq_cupy.tensormaps import ALIGNED, ARCHITECTURE, LINE, TensorMap, boxes
from waxeq_cupy.text import Text

GROUP = 128
"""Threads of a group of warps."""
_REGISTERS, PRODUCER = 1 << 16, 40
"""Registers of a processor; those that a thread keeps that multiplies nothing."""
PATTERN = 1024
"""Bytes at multiples of which boxes begin in shared memory."""
_SIDE_BY_SIDE = 16
"""Columns of a row that a thread has after its sums were turned."""
KINDS: Mapping[str, str] = MappingProxyType({"float16": "WX_F16", "bfloat16": "WX_BF16", "float32": "WX_TF32"})
"""What is multiplied, as hopper.cuh names it."""


def registers(threads: int, together: int = 1) -> int:
    """Of each thread that multiplies: what is left by the group that does not, in blocks of which a processor runs so
    many at one time."""
    each = _REGISTERS // (threads * together) // 8 * 8
    return (each * threads - PRODUCER * GROUP) // (threads - GROUP) // 8 * 8


def side(name: str, m: TensorMap) -> Iterator[str]:
    """Text of what has a box of a map brought: `name`, called with a place in shared memory, an mbarrier, and the
    places along its two axes, of the nearest first."""
    near, far = m.axes[0], next(k for k, n in zip(m.axes[1:], m.box[1:], strict=True) if n > 1)
    places = ", ".join({near: "x", far: "y"}.get(k) or f"(int){var(k)}" for k in m.axes)
    yield f"const auto {name} = [&](uint32_t to, uint32_t bar, int x, int y) {{"
    yield f"  wx_tma_load(to, {name}_map, bar, {places});"
    yield "};"


@dataclass(frozen=True, slots=True)
class GroupTile(Tile):
    """`depth` is of 16 bits. `stages`: tiles of both sides that are in shared memory. `ping_pong`: each of two groups
    has every other tile for itself."""

    together: int = 1
    stages: int = 4
    ping_pong: bool = False

    @property
    def threads(self) -> int:
        """Groups of 64 rows each, and one whose first thread asks for boxes."""
        return self.rows // 64 * GROUP + GROUP

    @property
    def ring(self) -> int:
        """Bytes of all stages."""
        return self.stages * (self.rows + self.columns) * LINE

    @property
    def registers(self) -> int:
        """Of a thread that multiplies."""
        return registers(self.threads, self.together)


TILES = (
    GroupTile(128, 256, 64, (64, 256), 1.0, stages=4),
    GroupTile(128, 128, 64, (64, 128), 0.94, stages=6),
    GroupTile(64, 128, 64, (64, 128), 0.83, stages=4, together=2),
)
"""The largest first; their paces are those of a product of 8,192 on an H200."""
PING_PONG = GroupTile(128, 128, 64, (64, 128), 0.94, stages=6, ping_pong=True)
"""That of two groups which take turns at tiles."""


@dataclass(frozen=True)
class Grouped:
    """The kernel of one product on one tile. `piece`: a tile has so many places of the depth; None where it has all."""

    product: Product
    tile: GroupTile
    dtypes: tuple[str, ...]
    replaced: frozenset[int]
    piece: int | None = None

    @cached_property
    def text(self) -> Text:
        p, t = self.product, self.tile
        space = Space(p.values, (*p.around, *p.rows, *p.columns), {}, (p.columns[-1],))
        return Text(
            space, library(), (), "", self.dtypes, self.replaced, threads=t.threads, together=t.together, counted=False,
            maps=("left_map", "right_map"),
        )  # fmt: skip

    @cached_property
    def maps(self) -> tuple[TensorMap, TensorMap]:
        """Of both sides. Raises Unsupported for what is no array as it lies, or none that a map can have."""
        p, t = self.product, self.tile
        return self._map(p.left, p.rows, t.rows), self._map(p.right, p.columns, t.columns)

    def _map(self, row: int, own: tuple[str, ...], extent: int) -> TensorMap:
        p = self.product
        if len(p.depths) != 1:
            raise Unsupported("a depth of several axes")
        read, (mine,), (k,) = plain(p.values, row), own, p.depths
        if read.dtype not in KINDS or read.dtype != p.dtype:
            raise Unsupported("a dtype that groups of warps do not multiply")
        deep = LINE // numpy_dtype(read.dtype).itemsize
        along, rounded = read.steps.get(k) == 1, read.dtype == "float32"
        if rounded and not along:
            raise Unsupported("tf32 that does not lie along the depth")
        box = {k: deep, mine: extent} if along else {mine: 64, k: deep}
        return boxes(read.operand, read.dtype, read.offset, read.steps, p.values.sizes, box, rounded=rounded)

    @property
    def shared(self) -> int:
        """Bytes of the ring, and what it takes to begin where a pattern does."""
        return self.tile.ring + PATTERN

    @property
    def _tiles(self) -> int:
        """How many of them there are, of all pieces."""
        return self.tile.blocks(self.product) * pieces(self.product, self.piece)

    def launch(self, reads: tuple[int | Slot, ...], to: Slot | None = None) -> Launch:
        """Raises Unsupported."""
        self.text.check()
        p, blocks = self.product, self._tiles
        if max(blocks, *map(p.size, (p.rows, p.columns, p.depths))) >= 1 << 30:
            raise Unsupported("more than is counted")
        few = min(blocks, PROCESSORS * self.tile.together)
        written = self.text.written(self._body())
        looked_up = bool(p.values.positions)
        return Launch(written, few, self.tile.threads, reads, to, looked_up, self.maps, self.shared, ARCHITECTURE)

    def _along(self, m: TensorMap) -> bool:
        return m.axes[0] == self.product.depths[0]

    def _body(self) -> Iterator[str]:
        p, t = self.product, self.tile
        left, right = self.maps
        flags = (str(self._along(m)).lower() for m in self.maps)
        own = ", ".join((*flags, "true") if t.ping_pong else flags)
        yield f"typedef wx_warpgroups<{KINDS[p.dtype]}, {t.rows}, {t.columns}, {t.stages}, {own}> tile;"
        yield f'static_assert(tile::ring + {PATTERN} == {self.shared} && tile::threads == {t.threads}, "");'
        yield "WX_RING(ring, tile::ring);"
        yield "WX_MBARRIERS(bars, tile::mbarriers);"
        yield "WX_SHARED(float, s, tile::turned);"
        yield "tile::begun(bars);"
        yield "tile::turn at;"
        yield "if (threadIdx.x >= tile::multiplying) {"
        yield f"  wx_registers_less<{PRODUCER}>();"
        yield "  if (threadIdx.x == tile::multiplying) {"
        yield "    wx_map_prefetch(left_map), wx_map_prefetch(right_map);"
        brought = "tile::brought(ring, bars, at, left, right, row, column, deep, steps);"
        sides = (*side("left", left), *side("right", right))
        yield from indented(indented(self._each((*sides, brought), "blockIdx.x", "gridDim.x")))
        yield "  }"
        yield "} else {"
        yield f"  wx_registers_more<{t.registers}>();"
        yield "  int own = 0;"
        first, step = "blockIdx.x + tile::later() * gridDim.x", "tile::sharing * gridDim.x"
        yield from indented(self._each(self._multiplied(), first, step))
        yield "}"

    def _each(self, lines: Iterable[str], first: str, step: str) -> Iterator[str]:
        """A loop over the tiles that a thread takes part in."""
        p, t, text = self.product, self.tile, self.text
        down, across = t.down(p), t.across(p)
        yield f"for (uint32_t number = {first}; number < {self._tiles}u; number += {step}) {{"
        yield "  int row, column;"
        yield f"  wx_placed(number % {down * across}u, {down}, {across}, &row, &column);"
        yield f"  row *= {t.rows}, column *= {t.columns};"
        yield from indented(begun(text, p, self.piece, f"(number / {down * across}u)", str(p.size(p.depths))))
        yield "  const int steps = (end - deep + tile::depth - 1) / tile::depth;"
        yield from indented(lines)
        yield "}"

    def _multiplied(self) -> Iterator[str]:
        yield "WX_SUMS_OF(c, tile::parts, tile::kept);"
        yield "tile::in_order(bars, at, own++, steps);"
        yield "tile::multiplied(ring, bars, at, c, steps);"
        after = After.of(self.text, self.product, _SIDE_BY_SIDE, aligned=True)
        yield f"tile::given<{after.width}>(c, s, row, column, [&](int m, int n, const auto &sums) {{"
        yield from indented(after.lines())
        yield "});"


class WgmmaGemm(Gemm):
    """Products of matrices by groups of warps, on the tile that suits their size. No variant of `cupy.gemm`: with few
    rows it takes a third of the time, and the choice hangs on that."""

    name = "gemm_wgmma"
    sought = "cuda product by groups of warps"
    otherwise: ClassVar[Gemm] = Gemm()
    """What makes a product in memory that a tensor map cannot have."""

    def tile(self, p: Product) -> GroupTile:
        """The tile for a product."""
        return TILES[self.which] if self.which is not None else min(TILES, key=lambda t: t.time(p))

    def differs(self, call: Call) -> bool:
        return self.tile(self.product(call)) != WgmmaGemm().tile(self.product(call))

    def find(self, call: Call) -> Product:
        found = super().find(call)
        if (found.dtype == "float32") != self.rounded:
            raise Unsupported("another dtype")
        # of several axes of a side one is that of its tiles, every place of the others has products of its own
        long = max(found.rows, key=lambda k: found.values.sizes[k])
        return replace(found, rows=(long,), columns=found.columns[-1:])

    def _work(self, call: Call, aligned: bool) -> Work | None:
        try:
            p = self.product(call)
            if call.out.elements == 0:
                return Work(())
            if any(v.offset * numpy_dtype(v.dtype).itemsize % ALIGNED for v in (*call.operands, call.out)):
                raise Unsupported("memory that begins elsewhere than at 16 bytes")
            found = self.launches(call, p)
        except Unsupported:
            return None
        return found if aligned else self.otherwise.work(call, aligned=False)

    def launches(self, call: Call, p: Product) -> Work:
        """Of a product in memory that tensor maps can have. Raises Unsupported."""
        dtypes = tuple(v.dtype for v in call.operands)
        made = Grouped(p, self.tile(p), dtypes, frozenset(self.in_place(call)))
        return Work((made.launch(tuple(range(len(dtypes)))),), operations=beside(p))


class LargeWgmmaGemm(WgmmaGemm):
    """The same on the largest tiles."""

    name = "gemm_wgmma_large"
    variant_of = WgmmaGemm.name
    which = 0


class MiddleWgmmaGemm(WgmmaGemm):
    """The same on square tiles."""

    name = "gemm_wgmma_middle"
    variant_of = WgmmaGemm.name
    which = 1


class SmallWgmmaGemm(WgmmaGemm):
    """The same on tiles of 64 rows, two blocks at a time on a processor."""

    name = "gemm_wgmma_small"
    variant_of = WgmmaGemm.name
    which = 2


class PingPongWgmmaGemm(WgmmaGemm):
    """The same with two groups that take turns at whole tiles: while one multiplies, the other one makes what comes
    after its sums. Source: CUTLASS, "Efficient GEMM in CUDA", warp-specialized persistent ping-pong kernels."""

    name = "gemm_wgmma_ping_pong"
    variant_of = WgmmaGemm.name

    def differs(self, call: Call) -> bool:
        return True

    def tile(self, p: Product) -> GroupTile:
        return PING_PONG


class SplitWgmmaGemm(WgmmaGemm):
    """The same where the tiles are few: the depth is cut in pieces, whose unrounded sums a second launch adds up. A few
    rows are such products: bringing a matrix to shared memory takes all processors."""

    name = "gemm_wgmma_split"
    variant_of = WgmmaGemm.name

    def differs(self, call: Call) -> bool:
        return True

    def tile(self, p: Product) -> GroupTile:
        return split(p, TILES)

    def launches(self, call: Call, p: Product) -> Work:
        tile, dtypes = self.tile(p), tuple(v.dtype for v in call.operands)
        width = piece(p, tile)
        assert width is not None

        def first(part: Product, reads: Sequence[int], to: Slot) -> Launch:
            return Grouped(part, tile, dtypes, frozenset(), width).launch((*reads,), to)

        return summed_up(p, width, dtypes, first, aligned=True)

    def in_place(self, call: Call) -> tuple[int, ...]:
        """None: threads of a fold share out what they read in another way than what they write."""
        return ()


class RoundedWgmmaGemm(WgmmaGemm):
    """The same for float32 that is rounded to tf32, of ten digits, on its way to shared memory."""

    name = "gemm_wgmma_tf32"
    sought = "cuda product in tf32 by groups of warps"
    rounded = True
    error = RoundedGemm.error
    otherwise = RoundedGemm()


KERNELS = (
    WgmmaGemm, LargeWgmmaGemm, MiddleWgmmaGemm, SmallWgmmaGemm, PingPongWgmmaGemm, SplitWgmmaGemm, RoundedWgmmaGemm,
)  # fmt: skip
