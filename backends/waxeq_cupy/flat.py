"""Text of kernels without folds: every thread makes a few elements of the result that lie side by side.

Where something is read across the order in which the result lies, a block turns a square of it in shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import CTYPES, carried, var, variable
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Unsupported
from waxeq_cupy.text import Text
from waxeq_cupy.threads import side_by_side

BLOCK = 256
SQUARE = 32
"""Places along the shorter axis of what is turned at once."""
_SHARED = 48 << 10
"""Bytes of shared memory that a block may have without asking."""


def flat(text: Text) -> tuple[str, int, int]:
    """(kernel, blocks, threads of a block) of element-wise work."""
    space, values = text.space, text.values
    v = space.vector if space.vector in space.outer else None
    width = text.width if v is not None else 1
    groups = 1 if v is None else -(-values.sizes[v] // width)
    around = [k for k in space.outer if k != v]
    points = math.prod(values.sizes[k] for k in around) * groups
    blocks = -(-points // BLOCK)
    body = [f"const {text.integer} t = ({text.integer})blockIdx.x * {BLOCK} + ({text.integer})threadIdx.x;"]
    if points % BLOCK:
        body.append(f"if (t >= {points}) return;")
    if v is None:
        body += [*text.places("t", around, values.sizes), *_plain(text)]
    else:
        body.append(f"const {text.integer} {var(v)}_at = t % {groups} * {width}, t_over = t / {groups};")
        body += text.places("t_over", around, values.sizes)
        outside = [n for n in text.need([values.root], ()) if v not in values.rows[n].axes]
        body += [x for n in outside for x in text.declared(n)]
        body += _group(text, v, width, outside)
    return text.written(body), blocks, BLOCK


def _plain(text: Text) -> Iterator[str]:
    for n in text.need([text.values.root], ()):
        yield from text.declared(n)
    yield f"out[{text.index(text.values.out)}] = {text.stored};"


def _group(text: Text, v: str, width: int, outside: list[int]) -> Iterator[str]:
    """The elements of one thread: together, or one by one where the axis ends within them."""
    size, at = text.values.sizes[v], f"{var(v)}_at"
    need = text.need([text.values.root], outside)
    store = f"out[{text.index(text.values.out)}] = {text.stored};"
    single = [f"const {text.integer} {var(v)} = {at};", *(x for n in need for x in text.declared(n)), store]
    if width == 1:
        yield from single
        return
    together = list(_together(text, v, need))
    if size % width == 0:
        yield from together
        return
    single[0] = f"for ({text.integer} {var(v)} = {at}; {var(v)} < {size}; {var(v)}++) {{"
    yield f"if ({at} + {width} <= {size}) {{"
    yield from ("  " + x for x in together)
    yield "} else {"
    yield from ("  " + x for x in [single[0], *("  " + x for x in single[1:]), "}"])
    yield "}"


def _together(text: Text, v: str, need: list[int]) -> Iterator[str]:
    root, width = text.values.rows[text.values.root], text.width
    wide = [n for n in need if text.wide(n, v)]
    yield "{"
    yield f"  const {text.integer} {var(v)} = {var(v)}_at;"
    for n in wide:
        yield "  " + text.taken(n)
    if text.wide_result:
        yield f"  wx_group<{CTYPES[root.dtype]}, {width}> all;"
    yield "  #pragma unroll"
    yield f"  for (int u = 0; u < {width}; u++) {{"
    yield f"    const {text.integer} {var(v)} = {var(v)}_at + u;"
    for n in need:
        yield from ("    " + x for x in ([text.one(n, "u")] if n in wide else text.declared(n)))
    yield f"    {'all.at[u]' if text.wide_result else f'out[{text.index(text.values.out)}]'} = {text.stored};"
    yield "  }"
    if text.wide_result:
        yield f"  wx_given<{width}>(out, {text.index(text.values.out)}, all);"
    yield "}"


@dataclass(frozen=True)
class Square:
    """What a block turns at once: places of the vector axis `b`, each with a `line` of places along the axis `a`, of
    which neighbours are read side by side. `sizes`: of both axes, a's first; `item`: bytes of shared memory for each
    place."""

    a: str
    b: str
    sizes: tuple[int, int]
    item: int

    @property
    def line(self) -> int:
        """A long line is read better, where there is room for it and its axis has more places than a short one."""
        fits = self.item * SQUARE * (2 * SQUARE + 1) <= _SHARED
        return 2 * SQUARE if fits and self.sizes[0] > SQUARE else SQUARE

    @property
    def room(self) -> int:
        """Elements of shared memory: neighbours along either axis lie in different banks."""
        return SQUARE * (self.line + 1)

    @property
    def tiles(self) -> tuple[int, int]:
        """How many there are along both axes."""
        return -(-self.sizes[0] // self.line), -(-self.sizes[1] // SQUARE)

    @property
    def whole(self) -> bool:
        """Whether none reaches out of the array."""
        return self.sizes[0] % self.line == 0 and self.sizes[1] % SQUARE == 0

    def loop(self, integer: str, along: str, inside: Iterable[str]) -> Iterator[str]:
        """Each place of the square, threads side by side along one of its axes; `at` is its own in shared memory. What
        the turns of the loop read is on its way before the first of it is needed."""
        a, b = var(self.a), var(self.b)
        wide, (x, y) = (self.line, (a, b)) if along == self.a else (SQUARE, (b, a))
        at = f"{'q' if x == a else 'lane'} * {self.line + 1} + {'lane' if x == a else 'q'}"
        yield "#pragma unroll"
        yield f"for (int turn = 0; turn < {SQUARE * self.line // BLOCK}; turn++) {{"
        yield f"  const int lane = threadIdx.x % {wide}, q = threadIdx.x / {wide} + turn * {BLOCK // wide}, at = {at};"
        yield f"  const {integer} {x} = {x}_at + lane, {y} = {y}_at + q;"
        if self.whole:
            yield from ("  " + line for line in inside)
        else:
            yield f"  if ({a} < {self.sizes[0]} && {b} < {self.sizes[1]}) {{"
            yield from ("    " + line for line in inside)
            yield "  }"
        yield "}"


def turned(text: Text, across: str) -> tuple[str, int, int]:
    """(kernel, blocks, threads of a block) of element-wise work that reads along `across` what it writes along the
    vector axis. Raises Unsupported where the squares do not fit."""
    space, values, v = text.space, text.values, text.space.vector
    assert v is not None
    rows = sorted(space.turned)
    item = sum(numpy_dtype(carried(values.rows[n].dtype)).itemsize for n in rows)
    square = Square(across, v, (values.sizes[across], values.sizes[v]), item)
    if item * square.room > _SHARED:
        raise Unsupported("squares that are too large")
    around = [k for k in space.outer if k not in (v, across)]
    points = math.prod(values.sizes[k] for k in around)
    (down, side), a, b, i = square.tiles, var(across), var(v), text.integer
    body = [
        f"const {i} t = ({i})blockIdx.x;",
        f"const {i} {b}_at = t % {side} * {SQUARE}, {a}_at = t / {side} % {down} * {square.line};",
        f"const {i} t_over = t / {side * down};",
        *text.places("t_over", around, values.sizes),
        *(f"WX_SHARED({variable(values.rows[n].dtype)}, b{n}, {square.room});" for n in rows),
    ]
    read = [x for n in text.need(rows, ()) for x in text.declared(n)]
    body += square.loop(i, across, [*read, *(f"b{n}[at] = r{n};" for n in rows)])
    body.append("__syncthreads();")
    made = [text.known(n, f"b{n}[at]") for n in rows]
    made += [x for n in text.need([values.root], rows) for x in text.declared(n)]
    body += square.loop(i, v, [*made, f"out[{text.index(values.out)}] = {text.stored};"])
    return text.written(body), points * down * side, BLOCK


def width_of(space: Space) -> int:
    """How many elements of the vector axis a thread of a flat kernel moves at once."""
    v = space.vector
    if v is None or v not in space.outer:
        return 1
    sizes = [numpy_dtype(d).itemsize for _, d in side_by_side(space.values, v)]
    if not sizes:
        return 1
    width = min(8, 16 // min(sizes))
    while width > space.values.sizes[v]:
        width //= 2
    return max(1, width)
