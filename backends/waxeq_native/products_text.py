"""C text of products of matrices inside a nest: calls of the register kernels of gemm.c, and walks in which a folded
axis is taken block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.asked import LINE
from waxeq_cfamily.functions import DTYPES
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.nest import Loop
from waxeq_cfamily.online import Blocks
from waxeq_cfamily.products import Product
from waxeq_cfamily.scalars import CTYPES, combine, expression, start, var, variable
from waxeq_cfamily.stages import Stage
from waxeq_cfamily.values import Index, Unsupported

_FETCHED = 1 << 16
"""Bytes of a tile whose lines are fetched before it is made: they leave the second-level cache to what is read."""


@dataclass(frozen=True)
class ProductEmitter(Emitter):
    """`packs`: for products whose right side is packed beforehand, the text of the pointer to its panels. `deeper`: of
    these the axis around that is taken with the depth, as the panels have it."""

    packs: Mapping[int, str] = field(default_factory=dict)
    deeper: Mapping[int, str] = field(default_factory=dict)

    def multiplied(self, p: Product) -> Iterator[str]:
        deeper = [self.deeper[p.fold]] if p.fold in self.deeper else []
        m, n, *depth = (self._length(a) for a in (p.rows, p.columns, p.depth, *deeper))
        target, step = self._target(p)
        left, ras, cas = self.side(p.left, p.rows, p.depth)
        yield from self._fetched(p)
        for a in (a for a in p.around if a not in deeper):
            yield f"for (int64_t {var(a)} = 0; {var(a)} < {self.values.sizes[a]}; {var(a)}++)"
        yield "{"
        for a in (p.rows, p.columns, p.depth, *deeper):
            low = f"{var(a)}_lo" if a in self.space.tiles else "0"
            yield f"  const int64_t {var(a)} = {low};"
        adds = self.adds(p) + " | WX_OF_SEVERAL" * len(deeper)
        yield from self.call(p, f"{m}, {n}, {' * '.join(depth)}, {left}, {ras}, {cas}", f"{target}, {step}, {adds}")
        yield "}"
        if p.fold in self.space.crossed:
            yield f"wx_turned({target}, {step}, {m}, {n}, b{p.fold}, {self._buffer_step(p.fold, p.columns)});"

    def _fetched(self, p: Product) -> Iterator[str]:
        """Has the lines come that a tile is written to once it is turned: short pieces far apart, which no machine
        expects, and a core that writes to lines it waits for soon waits itself."""
        out, size = self.values.out, numpy_dtype(self.values.rows[self.values.root].dtype).itemsize
        known = self.space.written == {p.rows, p.columns} and out.stride(p.rows) == 1
        if p.fold not in self.space.crossed or not known or self.space.bytes_of(p.fold) > _FETCHED:
            return
        for a, step in ((p.columns, 1), (p.rows, LINE // size)):
            low, high = (f"{var(a)}_lo", f"{var(a)}_hi") if a in self.space.tiles else ("0", self.values.sizes[a])
            yield f"for (int64_t {var(a)} = {low}; {var(a)} < {high}; {var(a)} += {step})"
        yield f"  {self.ahead}(out + {self.index(out)}, 0, 2);"

    def _buffers(self) -> Iterator[str]:
        yield from super()._buffers()
        for n in sorted(self.space.crossed):
            size = int(math.prod(self.space.width(k) for k in self.space.buffered[n]))
            yield f"WX_ALIGNED {variable(self.values.rows[n].dtype)} across{n}[{max(1, size)}];"

    def adds(self, p: Product) -> str:
        """Whether the product is added to what is there."""
        first = " | ".join(var(a) for a in p.around if a != self.deeper.get(p.fold))
        return f"(({first}) != 0)" if first else "0"

    def call(self, p: Product, left: str, target: str) -> Iterator[str]:
        """The call of the product's function: `left` are sizes and the left side, `target` is where the result goes."""
        s = DTYPES[self.values.rows[p.fold].dtype]
        if p.fold in self.packs:
            right = f"(const {CTYPES[self.values.rows[p.fold].dtype]} *)({self.packs[p.fold]})"
            yield f"  api->gemm_{s}({left}, {right}, {target}, scratch);"
        else:
            right, rbs, cbs = self.side(p.right, p.depth, p.columns)
            yield f"  api->gemm_any_{s}({left}, {right}, {rbs}, {cbs}, {target}, scratch);"

    def _length(self, axis: str) -> str:
        return f"{var(axis)}_hi - {var(axis)}_lo" if axis in self.space.tiles else str(self.values.sizes[axis])

    def _target(self, p: Product) -> tuple[str, int]:
        if self.space.direct(p):
            return f"out + {self.index(self.values.out)}", self.values.out.stride(p.rows) or 0
        if p.fold in self.space.crossed:
            return f"across{p.fold}", self.space.width(p.columns)
        return f"b{p.fold}", self._buffer_step(p.fold, p.rows)

    def _buffer_step(self, row: int, axis: str) -> int:
        """How far apart elements along an axis lie in a buffer."""
        axes = self.space.buffered[row]
        return math.prod(self.space.width(k) for k in axes[axes.index(axis) + 1 :])

    def side(self, row: int, first: str, second: str) -> tuple[str, int, int]:
        """A side as a matrix: its place, and the steps along two axes."""
        r = self.values.rows[row]
        if r.op == "load":
            where: Index = r.name[1]
            return f"x{r.name[0]} + {self.index(where)}", where.stride(first) or 0, where.stride(second) or 0
        ras, cas = (self._buffer_step(row, k) for k in (first, second))
        around = [
            f"{var(k)} * {self._buffer_step(row, k)}" for k in self.space.buffered[row] if k not in (first, second)
        ]
        return f"b{row} + {' + '.join(around) or '0'}", ras, cas


@dataclass(frozen=True)
class BlockEmitter(ProductEmitter):
    """The same for a walk in blocks. `all5` is what fold 5 has come to before a block, `left5` the part that is left of
    sums when the maximum 5 has grown."""

    @property
    def walk(self) -> Blocks:
        assert isinstance(self.space, Blocks)
        return self.space

    def check(self) -> None:
        super().check()
        if self.limited:
            raise Unsupported("functions that end, in blocks")

    def point(self) -> list[str]:
        before, inside, after = self.walk.phases
        k, width = var(self.walk.axis), self.walk.width(self.walk.axis)
        size = self.values.sizes[self.walk.axis]
        high = f"{k}_lo + {width}"
        done: set[int] = set()
        first = self._staged(before, done)
        blocks = [
            f"for (int64_t {k}_t = 0; {k}_t < {-(-size // width)}; {k}_t++) {{",
            f"  const int64_t {k}_lo = {k}_t * {width};",
            f"  const int64_t {k}_hi = {high if size % width == 0 else f'{high} < {size} ? {high} : {size}'};",
            *("  " + x for x in self._staged(inside, set(done))),
            "}",
        ]
        return [*self.place(), *self._buffers(), *self._begun(), *first, *blocks, *self._staged(after, done)]

    def _staged(self, stages: tuple[Stage, ...], done: set[int]) -> list[str]:
        lines: list[str] = []
        for s in stages:
            if s.product is not None:
                lines += [*self._rescaled(s.product.fold), *self.multiplied(s.product)]
            else:
                lines += [*self._scalars(s, done), *Loop(self, s).text()]
                lines += [x for f in s.folds if f in self.walk.carried for x in self._merged(f)]
        return lines

    def _begun(self) -> Iterator[str]:
        """Places for what has been folded so far, and what that is before the first block."""
        for name, rows in (("all", self.walk.running), ("left", self.walk.maxima)):
            for f in rows:
                yield f"WX_ALIGNED {variable(self.values.rows[f].dtype)} {name}{f}[{self._places(f)}];"
        for f in self.walk.carried:
            r = self.values.rows[f]
            name = f"all{f}" if f in self.walk.running else f"b{f}"
            yield f"for (int64_t z = 0; z < {self._places(f)}; z++) {name}[z] = {start(str(r.name), r.dtype)};"

    def _places(self, f: int) -> int:
        return math.prod(self.space.width(k) for k in self.space.buffered[f])

    def _element(self, name: str, f: int) -> str:
        """The element for fold f at the loops' places, in a buffer that lies as that of the fold."""
        return name + self.buffer(f)[1:]

    def _each(self, f: int, body: list[str]) -> Iterator[str]:
        """Loops over the elements of a fold, the innermost as vectors."""
        axes = self.space.buffered[f]
        for i, k in enumerate(axes):
            low, high = (f"{var(k)}_lo", f"{var(k)}_hi") if k in self.space.tiles else ("0", self.values.sizes[k])
            last = i == len(axes) - 1
            yield from ["#pragma omp simd"] * last
            yield f"for (int64_t {var(k)} = {low}; {var(k)} < {high}; {var(k)}++)" + " {" * last
        yield from ("  " + x for x in body)
        yield "}"

    def _merged(self, f: int) -> Iterator[str]:
        """What a fold has come to with a block, from what it was before and what it is of the block."""
        r, m = self.values.rows[f], self.walk.carried[f]
        t, so_far, own = variable(r.dtype), self._element("all", f), self.buffer(f)
        body = [f"const {t} last = {so_far}, own = {own};"]
        left = f"last * {self._element('left', m)}" if m is not None else "last"
        total = combine(str(r.name), r.dtype, left, "own")
        if r.name != "sum":  # that of a NaN is NaN
            total = f"own != own ? own : ({total})"
        body.append(f"const {t} total = {total};")
        if f in self.walk.maxima:
            text = expression("exp", r.dtype, r.dtype, self.functions)
            assert text is not None, "sums of exponentials hang on it"
            bottom = start("max", r.dtype)
            body.append(f"{self._element('left', f)} = {text.format(f'last - (total == {bottom} ? 0 : total)')};")
        body.append(f"{so_far} = {own} = total;")
        yield from self._each(f, body)

    def _rescaled(self, f: int) -> Iterator[str]:
        """Has what a product is added to follow the maximum."""
        m = self.walk.carried.get(f)
        if m is not None:
            yield from self._each(f, [f"{self.buffer(f)} *= {self._element('left', m)};"])

    def adds(self, p: Product) -> str:
        return "1" if p.fold in self.walk.carried else super().adds(p)
