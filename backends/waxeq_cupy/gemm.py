"""Products of matrices on tiles in shared memory, with anything element-wise before and after them.

float16 and bfloat16 are multiplied by tensor cores and added up in float32; float32 and float64 by every thread, in
their own precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar, TypeVar

from waxeq.backend.call import Call, multiplies
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import NARROW, carried, var
from waxeq_cfamily.spaces import space as walk
from waxeq_cfamily.stages import Space
from waxeq_cfamily.taken import replaceable
from waxeq_cfamily.values import Unsupported
from waxeq_cupy.kernels import MOST_BLOCKS, Launch, Loops, Slot, Work, launched, library, operations, resolved
from waxeq_cupy.pieces import WIDTHS, threaded
from waxeq_cupy.products import Product, in_pieces, only
from waxeq_cupy.sides import GROUP, After, Side, indented, loads, nearest, piece_of, product_of, summed
from waxeq_cupy.text import Text

PROCESSORS = 132
"""Of a large GPU."""


@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` x `columns` of the result for each block, `depth` of either side at a time. `own`: rows and columns of a
    thread, or of a warp on tensor cores. `pace`: how fast a full one is made, against the best. `together`: blocks that
    a processor runs at one time."""

    rows: int
    columns: int
    depth: int
    own: tuple[int, int]
    pace: float
    together: int = 2

    def blocks(self, p: Product) -> int:
        """How many of them a product has."""
        return p.many * self.down(p) * self.across(p)

    def down(self, p: Product) -> int:
        return -(-p.size(p.rows) // self.rows)

    def across(self, p: Product) -> int:
        return -(-p.size(p.columns) // self.columns)

    def time(self, p: Product) -> float:
        """Roughly how long they take, in any unit."""
        waves = -(-self.blocks(p) // PROCESSORS)
        return waves * self.rows * self.columns / self.pace


T = TypeVar("T", bound=Tile)
_THREADS = (Tile(128, 128, 8, (8, 8), 1.0), Tile(64, 64, 16, (4, 4), 0.7), Tile(32, 32, 16, (4, 4), 0.4))
_WARPS = (Tile(128, 128, 32, (64, 32), 1.0), Tile(64, 64, 32, (32, 32), 0.76), Tile(32, 32, 32, (16, 16), 0.44))
TILES: Mapping[str, tuple[Tile, ...]] = MappingProxyType(
    {
        "float16": _WARPS,
        "bfloat16": _WARPS,
        "float32": _THREADS,
        "float64": (Tile(128, 64, 8, (8, 4), 1.0), Tile(64, 64, 8, (4, 4), 0.8), Tile(32, 32, 16, (4, 4), 0.5)),
    }
)
"""The tiles for each dtype of what is multiplied, the largest first."""
TF32 = tuple(replace(t, depth=16) for t in _WARPS)
"""Those for float32 that is rounded."""


_DEEP = 2
"""Tiles of either side that a piece of the depth has at least."""


def piece(p: Product, t: Tile) -> int | None:
    """How much of the first axis of the depth a piece has, where a product has too few tiles to fill a GPU and depth
    enough to share out; None where it has not."""
    first, inner = p.values.sizes[p.depths[0]], p.size(p.depths[1:])
    pieces = min(-(-t.together * PROCESSORS // t.blocks(p)), p.size(p.depths) // (_DEEP * t.depth), first)
    if pieces < 2:
        return None
    step = t.depth if inner == 1 else 1
    width = -(-first // pieces // step) * step
    return width if width < first else None


def pieces(p: Product, width: int | None) -> int:
    """How many pieces of so many places the first axis of the depth has; one where it is in none."""
    return 1 if width is None else -(-p.values.sizes[p.depths[0]] // width)


def split(p: Product, tiles: Iterable[T]) -> T:
    """The tile with which a product that has its depth in pieces takes the least time. Raises Unsupported."""
    found = [t for t in tiles if piece(p, t) is not None]
    if not found:
        raise Unsupported("too little depth, or tiles enough")
    return min(found, key=lambda t: t.time(p) / pieces(p, piece(p, t)))


@dataclass(frozen=True)
class Written:
    """The kernel of one product on one tile. `rounded`: sides are rounded to tf32. `piece`: a block has so many places
    of the first axis of the depth; None where it has all."""

    product: Product
    tile: Tile
    dtypes: tuple[str, ...]
    replaced: frozenset[int]
    aligned: bool
    rounded: bool = False
    piece: int | None = None

    @property
    def narrow(self) -> bool:
        return self.product.dtype in NARROW

    @property
    def warps(self) -> bool:
        return self.narrow or self.rounded

    @property
    def threads(self) -> int:
        t = self.tile
        return t.rows // t.own[0] * (t.columns // t.own[1]) * (32 if self.warps else 1)

    @property
    def crowded(self) -> bool:
        """Whether what is on its way takes more registers than two blocks on a processor leave: on the largest tile of
        tensor cores a side that is made of several operands, on that of float32 one that comes element by element, and
        in a piece of the depth two that are made of several."""
        sides = ((self.product.left, self.product.rows), (self.product.right, self.product.columns))
        several = [len(loads(self.product, row)) > 1 for row, _ in sides]
        if self.warps:
            return self.tile.own == _WARPS[0].own and any(several)
        one_by_one = any(self._beside(*side) is None for side in sides)
        return self.tile.own == _THREADS[0].own and (one_by_one or (self.piece is not None and all(several)))

    @cached_property
    def _bare(self) -> Text:
        p = self.product
        space = Space(p.values, (*p.around, *p.rows, *p.columns), {}, (p.columns[-1],))
        return Text(space, library(), (), "", self.dtypes, self.replaced, threads=self.threads, counted=False)

    @cached_property
    def text(self) -> Text:
        return replace(self._bare, together=512 // self.threads // (2 if self.crowded else 1))

    def _beside(self, row: int, own: tuple[str, ...]) -> tuple[str, int] | None:
        """Along which axis a side lies in groups, and of how many elements; None where it comes one by one."""
        p, wide = self.product, GROUP // numpy_dtype(self.product.dtype).itemsize
        return nearest(self._bare, loads(p, row), (p.depths[-1], own[-1]), wide) if self.aligned else None

    def _side(self, row: int, own: tuple[str, ...], names: tuple[str, str]) -> Side:
        p, found = self.product, self._beside(row, own)
        return Side(self.text, p, row, own, p.dtype, names, found, "" if self.piece is None else "end")

    def launch(self, reads: tuple[int | Slot, ...], to: Slot | None = None) -> Launch:
        """Raises Unsupported."""
        self.text.check()
        p, blocks = self.product, self.tile.blocks(self.product) * pieces(self.product, self.piece)
        if blocks > MOST_BLOCKS or max(map(p.size, (p.rows, p.columns, p.depths))) >= 1 << 30:
            raise Unsupported("more than a launch has")
        written = self.text.written(self._body())
        return Launch(written, blocks, self.threads, reads, to, bool(p.values.positions))

    def _body(self) -> Iterator[str]:
        p, t, text = self.product, self.tile, self.text
        left = self._side(p.left, p.rows, ("m", "k"))
        right = self._side(p.right, p.columns, ("n", "k"))
        down, across = t.down(p), t.across(p)
        c = summed(p.dtype)
        shared = "uint16_t" if self.narrow else c
        own = f"{t.rows}, {t.columns}, {t.depth}, {t.own[0]}, {t.own[1]}"
        if self.narrow:
            kind, flags = {"float16": "wx_f16", "bfloat16": "wx_bf16"}[p.dtype], (left.along, right.along)
            yield f"typedef wx_tile_16<{kind}, {own}, {', '.join(str(f).lower() for f in flags)}> tile;"
        else:
            flags = (False, False)
            yield f"typedef wx_tile_tf32<{own}> tile;" if self.rounded else f"typedef wx_tile<{c}, {own}> tile;"
        yield f"WX_SHARED({shared}, a, 2 * tile::left::size);"
        yield f"WX_SHARED({shared}, b, 2 * tile::right::size);"
        if self.warps:
            yield "WX_SHARED(float, s, tile::turned);"
        yield f"WX_KEPT({c}, c, tile::kept);"
        yield "int row, column;"
        yield f"wx_placed(blockIdx.x % {down * across}u, {down}, {across}, &row, &column);"
        yield f"row *= {t.rows}, column *= {t.columns};"
        yield from begun(text, p, self.piece, f"(blockIdx.x / {down * across}u)", f"wx_opaque({p.size(p.depths)})")
        yield from left.lines("left", flags[0])
        yield from right.lines("right", flags[1])
        yield "tile::multiplied(left, right, a, b, c, row, column, deep, end);"
        after = After.of(text, p, self._most, aligned=self.aligned)
        scratch = "s" if self.warps else "a"
        yield f"tile::given<{after.width}>(c, {scratch}, row, column, [&](int m, int n, const auto &sums) {{"
        yield from indented(after.lines())
        yield "});"

    @property
    def _most(self) -> int:
        """How many columns of a row a thread has side by side."""
        if self.warps:
            return self.tile.own[1] // 4
        return 2 if self.product.dtype == "float64" else 4


def begun(text: Text, p: Product, width: int | None, number: str, end: str) -> Iterator[str]:
    """Of which product the sums with a number are, and of which piece of its depth, from `deep` to `end`: so many
    places of its first axis, or all of it, which ends as is said; the places within that axis go along."""
    if width is None:
        yield f"const int deep = 0, end = {end};"
    else:
        k, many = p.depths[0], pieces(p, width)
        step = width * p.size(p.depths[1:])
        yield from piece_of((f"{var(k)}_t", "deep", "end"), step, many, p.size(p.depths), number)
        number = f"({number} / {many}u)"
    yield from product_of(text, p, number)


def summed_up(
    p: Product, width: int, dtypes: tuple[str, ...], first: Callable[[Product, Sequence[int], Slot], Launch], *,
    aligned: bool,
) -> Work:  # fmt: skip
    """A product whose depth is in pieces of so many places of its first axis: `first` makes the launch of the pieces,
    from that product, what it reads and where its unrounded sums go; a second one adds them up. Raises Unsupported."""
    reads = tuple(range(len(dtypes)))
    part, last, slot = over_pieces(p, width, len(reads))
    second = launched(last, (*dtypes, slot.dtype), frozenset(), (*reads, slot), None, aligned)
    return Work((first(part, reads, slot), second), slot.room, beside(p) + 2.0 * slot.elements)


def over_pieces(p: Product, width: int, count: int) -> tuple[Product, Space, Slot]:
    """A product of each piece of so many places of the first axis of the depth, for a call with so many operands; the
    walk that adds up what comes of them, with all that comes after; and where they lie in between."""
    part, rest, elements = in_pieces(p, width, count)
    return part, threaded(walk(rest, WIDTHS)), Slot(0, elements, carried(p.values.rows[p.fold].dtype))


class Gemm(Loops):
    """Products of matrices with anything element-wise around them, on the tile that suits their size."""

    name = "gemm"
    sought: ClassVar[str] = "cuda product"
    which: ClassVar[int | None] = None
    rounded: ClassVar[bool] = False

    def matches(self, meaning: Term) -> bool:
        return multiplies(meaning)

    def product(self, call: Call) -> Product:
        """The product of a call. Raises Unsupported."""

        def find() -> Product | Unsupported:
            try:
                return self.find(call)
            except Unsupported as e:
                return e

        found = call.remember(self.sought, find)
        if isinstance(found, Unsupported):
            raise found
        return found

    def find(self, call: Call) -> Product:
        """The same, looked for."""
        return only(resolved(call))

    def tile(self, p: Product) -> Tile:
        """The tile for a product."""
        tiles = TF32 if self.rounded else TILES[p.dtype]
        return tiles[self.which] if self.which is not None else min(tiles, key=lambda t: t.time(p))

    def differs(self, call: Call) -> bool:
        p = self.product(call)
        return self.tile(p) != Gemm().tile(p)

    def _work(self, call: Call, aligned: bool) -> Work | None:
        try:
            p = self.product(call)
            if call.out.elements == 0:
                return Work(())
            dtypes = tuple(v.dtype for v in call.operands)
            made = Written(p, self.tile(p), dtypes, frozenset(self.in_place(call)), aligned, self.rounded)
            launch = made.launch(tuple(range(len(call.operands))))
            return Work((launch,), operations=beside(p))
        except Unsupported:
            return None

    def in_place(self, call: Call) -> tuple[int, ...]:
        """Operands that only what comes after the product reads, by the thread that writes there."""
        try:
            p = self.product(call)
        except Unsupported:
            return ()
        rows = p.values.rows
        sides = {rows[n].name[0] for n in p.cone(p.left) | p.cone(p.right) if rows[n].op == "load"}
        return tuple(n for n in replaceable(p.values, call.canonical) if n not in sides)

    def features(self, call: Call) -> Mapping[str, float]:
        return {**super().features(call), "flops": 2.0 * self.product(call).volume}


def beside(p: Product) -> float:
    """Operations of what comes before and after a product."""
    inside = (p.fold, p.values.rows[p.fold].args[0])
    return sum(operations(p.values, n) for n in range(len(p.values.rows)) if n not in inside)


class LargeGemm(Gemm):
    """The same on the largest tiles."""

    name = "gemm_large"
    variant_of = Gemm.name
    which = 0


class MiddleGemm(Gemm):
    """The same on middle-sized tiles."""

    name = "gemm_middle"
    variant_of = Gemm.name
    which = 1


class SmallGemm(Gemm):
    """The same on small tiles, of which there are more to share out."""

    name = "gemm_small"
    variant_of = Gemm.name
    which = 2


class SplitGemm(Gemm):
    """The same where the tiles are few: the depth is cut in pieces, whose unrounded sums a second launch adds up."""

    name = "gemm_split"
    variant_of = Gemm.name

    def differs(self, call: Call) -> bool:
        return True

    def tile(self, p: Product) -> Tile:
        """The largest that there are enough of with the depth in pieces."""
        return split(p, TILES[p.dtype])

    def _work(self, call: Call, aligned: bool) -> Work | None:
        try:
            p = self.product(call)
            if call.out.elements == 0:
                return Work(())
            tile, dtypes = self.tile(p), tuple(v.dtype for v in call.operands)
            width = piece(p, tile)
            assert width is not None

            def first(part: Product, reads: Sequence[int], to: Slot) -> Launch:
                return Written(part, tile, dtypes, frozenset(), aligned, piece=width).launch((*reads,), to)

            return summed_up(p, width, dtypes, first, aligned=aligned)
        except Unsupported:
            return None

    def in_place(self, call: Call) -> tuple[int, ...]:
        """None: threads of a fold share out what they read in another way than what they write."""
        return ()


class RoundedGemm(Gemm):
    """The same for float32 that is rounded to tf32, of ten digits, which tensor cores multiply; sums are float32."""

    name = "gemm_tf32"
    sought = "cuda product in tf32"
    rounded = True
    error = 1e-3

    def find(self, call: Call) -> Product:
        found = super().find(call)
        if found.dtype != "float32":
            raise Unsupported("no float32")
        return found


KERNELS = (Gemm, LargeGemm, MiddleGemm, SmallGemm, SplitGemm, RoundedGemm)
