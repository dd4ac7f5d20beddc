"""Convolutions with windows of 3 x 3 by fewer products: the minimal filtering F(2 x 2, 3 x 3).

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016), after Winograd, "Arithmetic Complexity
of Computations" (1980): four results that lie in a square take 16 products for each channel instead of 36. Squares of
4 x 4 inputs are turned into 16 numbers each, products of matrices sum those over the channels, and 16 sums are turned
back into four results. Each result is made of its own 9 inputs alone, but of sums and differences of them: an input
that is much larger than others leaves its rounding where its weight is nearly zero, and one that is not finite makes
NaN of infinities. Blocks with such inputs, or such weights, are computed as the convolution is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from waxeq.backend.caches import cache_bytes
from waxeq.backend.call import Call, multiplies
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.functions import DTYPES
from waxeq_cfamily.products import Found, found
from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.spaces import space
from waxeq_cfamily.split import apart
from waxeq_cfamily.taken import NAME
from waxeq_cfamily.values import Index, Unsupported, Values
from waxeq_native.gemm import entry
from waxeq_native.loops import FastLoops, operations
from waxeq_native.products import FRAME, Products
from waxeq_native.winograd_block import Block, Convolution
from waxeq_native.winograd_filters import filtered, filters
from waxeq_native.winograd_tail import tail
from waxeq_native.winograd_text import multiplied
from waxeq_native.work import OPERANDS, NativeKernel, Part, Work

_WINDOW = 3
_LEAST = 4
"""Channels on either side from which a sum over channels is a product of matrices."""
_MOST = FRAME // 4 * 3
"""Bytes of a block before and after its products, where there are so many channels that few columns would be left: the
rest of a frame is the products'."""
_NEAR = min(max(512 << 10, cache_bytes(2)) // 16 * 15, _MOST)
"""The same else, if that takes no more work: it stays in the second-level cache."""
_FAR = 1.1
"""How much longer a block takes that does not (Zen 3: 1.02 where it takes 0.8 MB, 1.2 where it takes 1.1)."""
_WIDE = 24
"""Columns from which products of matrices are quick."""
_BEGUN = 4
"""Columns that take as long as to read the filters for a block."""
_NARROW = 32
"""Results of a block below which turning its inputs takes longer than multiplying."""
_SHARES = 3
"""Blocks for each thread: one that is held up leaves some to the others."""


class Winograd(NativeKernel):
    """Convolutions with windows of 3 x 3 and steps of 1, and any epilogue."""

    name = "winograd"
    form = "loops"
    error = 1e-6
    usual = Products
    variant_of = usual.name

    def matches(self, meaning: Term) -> bool:
        return multiplies(meaning)

    def work(self, call: Call) -> Work | None:
        c = call.canonical
        if any(v.dtype not in CTYPES for v in (c.out, *c.operands)) or 0 in c.sizes.values():
            return None
        try:
            values = self.values(call)
            conv = None if values.positions or values.scans else convolution(values)
            return None if conv is None else self._written(call, values, conv)
        except Unsupported:
            return None

    def _written(self, call: Call, values: Values, conv: Convolution) -> Work | None:
        """The phases: filters where weights may change, the convolution, and what comes after it. None where a block
        needs too much memory. Raises Unsupported."""
        b = _block(conv, call.threads)
        if not _fits(conv, b, FRAME):
            return None
        weights = filters(values, conv)
        operands = [f"args[{OPERANDS + i}]" for i in range(len(call.operands))]
        dtypes = [v.dtype for v in call.operands]
        fixed, at = weights.operand in call.fixed, 0
        turned = f"args[{OPERANDS + len(operands)}]"
        if not fixed:
            turned, at = "(args[1] + 0)", -(-weights.bytes // 64) * 64
        result, rest, after, last = "args[2]", _rest(values, conv, len(operands)), None, None
        if rest is not None:
            result, dtypes = f"(args[1] + {at})", [*dtypes, conv.dtype]
            last = tail(rest, conv, b, [*operands, result], dtypes)
        if rest is not None and last is None:
            (out,) = (r.name[1] for r in rest.rows if r.op == "load" and r.name[0] == len(operands))
            conv, at = replace(conv, out=out), at + conv.elements * numpy_dtype(conv.dtype).itemsize
            loops = FastLoops()
            s = space(rest, loops.widths)
            after = loops.emitter(call, s, [*operands, result], "args[2]", dtypes, frozenset())
            after.check()

        def write() -> tuple[Part, ...]:
            parts = [Part(multiplied(conv, b, turned, result, _scratch(conv, b), last), b.tasks(conv), 1)]
            if not fixed:
                parts.insert(0, Part(filtered(conv, turned), conv.outputs, max(1, conv.outputs // (4 * call.threads))))
            if after is not None:
                grain = FastLoops().grain(after, call.threads)
                parts.append(Part(after.function(NAME), after.space.points(), grain))
            return tuple(parts)

        return Work(write, at, packs=(weights,) if fixed else ())

    def features(self, call: Call) -> Mapping[str, float]:
        values = self.values(call)
        conv = convolution(values)
        assert conv is not None
        b = _block(conv, call.threads)
        squares = conv.batches * conv.down * conv.across
        turned = squares * (32 * conv.channels * -(-conv.outputs // b.outputs) + 24 * conv.outputs)
        rows = {"launches": 1.0, "bytes": float(call.bytes_read + call.out.bytes)}
        rest = _rest(values, conv, len(call.operands))
        if rest is not None:
            rows |= operations(space(rest, FastLoops.widths))
        rows["operations"] = rows.get("operations", 0.0) + turned
        if filters(values, conv).operand not in call.fixed:
            rows["packed"] = 16.0 * conv.outputs * conv.channels
        return {**rows, "flops": 32.0 * squares * conv.channels * conv.outputs}


def convolution(values: Values) -> Convolution | None:
    """The one sum of products of a nest, where it is over windows of 3 x 3 with steps of 1, and over channels."""
    sums = found(values)
    if len(sums) != 1 or values.rows[sums[0].fold].dtype not in DTYPES:
        return None
    f = sums[0]
    return _convolution(values, f, 0) or _convolution(values, f, 1)


def _convolution(values: Values, f: Found, side: int) -> Convolution | None:
    """The same with the windows on that side of the product."""
    x, w = (values.rows[f.sides[i]] for i in (side, 1 - side))
    if any(r.op != "load" or r.guards or any(r.name[1].stride(k) is None for k in r.axes) for r in (x, w)):
        return None
    if len(f.own[1 - side]) != 1 or (x.axes & w.axes) - {*f.folded}:
        return None
    (o,), where = f.own[1 - side], x.name[1]
    pairs = _windows(values, f, side, where)
    channels = [k for k in f.folded if k not in {j for _, j in pairs}]
    if len(pairs) != 2 or len(channels) != 1:
        return None
    (h, i), (v, j) = sorted(pairs, key=lambda p: -abs(where.stride(p[0]) or 0))
    batch = tuple(sorted(f.own[side] - {h, v}))
    axes = (*batch, o, channels[0], h, v, i, j)
    conv = Convolution(f.fold, x.dtype, x.name[0], w.name[0], where, w.name[1], values.out, axes, values.sizes)
    return conv if min(conv.channels, conv.outputs) >= _LEAST else None


def _windows(values: Values, f: Found, side: int, where: Index) -> list[tuple[str, str]]:
    """Axes of the result with the axis of the windows that move along each: one step leads as far along both."""
    moving = [k for k in f.own[side] if where.stride(k) and values.sizes[k] > 1]
    inside = [k for k in f.folded if values.sizes[k] == _WINDOW]
    pairs = [(k, i) for k in moving for i in inside if where.stride(k) == where.stride(i)]
    alone = len({k for k, _ in pairs}) == len(pairs) == len({i for _, i in pairs})
    return pairs if alone else []


def _rest(values: Values, conv: Convolution, operand: int) -> Values | None:
    """What is done with the convolution as a further operand; None where it is the result as it is."""
    written = {a for a, _ in values.out.terms}
    if conv.fold == values.root and written <= values.rows[conv.fold].axes:
        return None
    return apart(values, conv.fold, FastLoops.widths, operand)[1]


def _block(conv: Convolution, threads: int) -> Block:
    """As many lines of squares, and as many results for each, as stay in cache, while every thread has some blocks."""
    nr = int(entry("nr", conv.dtype))
    lanes, outputs = nr // 2, conv.outputs

    def of(lines: int, outputs: int) -> Block:
        item = numpy_dtype(conv.dtype).itemsize
        b = Block(lines, outputs, -(-lines * conv.across // lanes) * lanes, lanes, item)
        return replace(b, lying=_lies(conv, b))

    def work(lines: int) -> float:
        """Of the products of the thread that has most of them, which waits for half a block in the end."""
        b = of(lines, outputs)
        turns = -(-b.tasks(conv) // threads) + (threads > 1) / 2
        return turns * (b.work + _BEGUN) * (1 if _fits(conv, b, _NEAR) else _FAR)

    least = min(conv.down, -(-_WIDE // conv.across))
    more = [of(n, outputs) for n in range(least + 1, conv.down + 1)]
    shared = 0 if threads == 1 else _SHARES * threads
    more = [b.lines for b in more if _fits(conv, b, _MOST) and b.tasks(conv) >= shared]
    lines = min([least, *more], key=lambda n: (work(n), n))
    while outputs > _NARROW and of(lines, outputs).bytes(conv) > _MOST:
        outputs = -(-outputs // 2)
    while outputs > _NARROW and of(lines, outputs).tasks(conv) < threads:  # each turns the same inputs
        outputs = -(-outputs // 2)
    return of(lines, outputs)


def _lies(conv: Convolution, b: Block) -> bool:
    """Whether so few results are made at a time that a product with care reads its right side in place."""
    far = 1 << 20  # from one row to the next: then it is the number of rows alone that tells
    return bool(entry("lies_well", conv.dtype)(b.chunk, far, far, far, 1))


def _fits(conv: Convolution, b: Block, most: int) -> bool:
    """Whether a block takes no more than so many bytes, and with what its products need no more than a frame has."""
    return b.bytes(conv) <= most and b.frame(conv) <= FRAME - _scratch(conv, b)


def _scratch(conv: Convolution, b: Block) -> int:
    """Bytes for the products of a block either way."""
    packed, plainly = (entry(name, conv.dtype) for name in ("gemm_scratch", "gemm_any_scratch"))
    need = plainly if b.lying else packed
    return max(64, int(need(b.chunk, b.columns, conv.channels)), int(plainly(b.chunk, conv.width, conv.channels)))


KERNELS = (Winograd,)
