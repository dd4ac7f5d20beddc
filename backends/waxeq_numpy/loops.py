"""Fused loop nests: chains of ufuncs on tiles that stay in cache, every step bound to its arrays beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np

from waxeq.backend.call import Call, aligned, multiplies
from waxeq.backend.kernel import Instruction, Kernel
from waxeq.basis.scalar import REDUCERS, SCALARS, load
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq_numpy.nest import FOLDS, Nest, Stage, nest

HEADS = frozenset({"In", "Num", "Map", "Zip", "Add", "Mul", "Select", "Cast", "Sum", "Red", "Iota"})
_WHOLE = 1 << 62
_MOST_SCRATCH = 1 << 26
_CACHED = 1 << 19
"""Bytes that an intermediate may have and still be in cache when the next stage reads it."""
_MOST_TILES = 1 << 14


class Loops(Kernel):
    """Any nest of element-wise stages and folds, in tiles of about 16 Ki elements."""

    name = "loops"
    form = "loops"
    target = 1 << 14
    tiled = True

    def matches(self, meaning: Term) -> bool:
        return not multiplies(meaning)  # all products would lie in memory before they are summed

    def accepts(self, call: Call) -> bool:
        n = nest(call, self.target)
        if (
            any(t.head not in HEADS or t.args[:1] in (("argmax",), ("argmin",)) for t in n.terms)
            or not n.stages
            or set(n.call.out.axes) != n.kinds[n.call.meaning].axes
        ):
            return False
        if self.tiled and not n.steps:
            return False  # one tile: the untiled kernel is the same thing
        if n.tiles > _MOST_TILES or n.scratch > _MOST_SCRATCH:
            return False
        return self.fits(n)

    def fits(self, n: Nest) -> bool:
        """Whether every function takes the dtypes it is given."""
        return all(x.dtype != "bfloat16" for x in n.kinds.values()) or not any(_scipy(t) for t in n.terms)

    def passes(self, s: Stage) -> Mapping[str, int]:
        """How often each function runs over the tile for one stage."""
        if s.term.head not in ("Map", "Zip"):
            return {s.term.args[0] if s.term.head == "Red" else s.term.head: 1}
        name = s.term.args[0]
        return {name: len(_PARTS[name]) if name in _PARTS else 1}

    def steps(
        self, n: Nest, s: Stage, xs: list[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Iterator[Instruction]:
        """Instructions of a stage that applies a function to arrays of one tile."""
        return _scalar(s.term.args[0], xs, out)

    def workspace(self, call: Call) -> int:
        return nest(call, self.target).scratch

    def in_place(self, call: Call) -> tuple[int, ...]:
        n = nest(call, self.target)
        if n.bound or len(n.stages) != 1 or n.stages[0].term.head == "Select":
            return ()
        same = (call.out.axes, call.out.strides, call.out.dtype, call.out.offset)
        return tuple(i for i, v in enumerate(call.operands) if (v.axes, v.strides, v.dtype, v.offset) == same)

    def features(self, call: Call) -> Mapping[str, float]:
        n = nest(call, self.target)
        rows: dict[str, float] = {"tiles": float(n.tiles)}

        def more(key: str, value: float) -> None:
            rows[key] = rows.get(key, 0.0) + value

        for s in n.stages:
            axes = frozenset(s.axes | {k for x in s.source for k in n.kinds[x].axes})
            for name, times in self.passes(s).items():
                more("launches", float(times * (1 if s.hoisted else n.tiles)))
                more(f"map:{name}:{s.dtype}", float(times * n.elements(axes)))
            if s.slot is not None and math.prod(n.extent(s.axes)) * numpy_dtype(s.dtype).itemsize > _CACHED:
                more("spilled", 2.0 * n.elements(axes) * numpy_dtype(s.dtype).itemsize)
        inner = n.space[-1] if n.space else ""
        straight = all(v.stride(inner) in (0, 1) for v in (*call.operands, call.out))
        more("bytes" if straight else "strided_bytes", float(call.bytes_read + call.out.bytes))
        return rows

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        return tuple(_Binder(self, nest(call, self.target), call, operands, out, workspace).instructions())


class WideLoops(Loops):
    """The same in tiles of about 128 Ki elements: fewer steps, more cache."""

    name = "loops_wide"
    target = 1 << 17


class WholeLoops(Loops):
    """The same with no tiles: one step per stage."""

    name = "loops_whole"
    target = _WHOLE
    tiled = False


class _Binder:
    def __init__(
        self,
        kernel: Loops,
        n: Nest,
        call: Call,
        operands: Sequence[np.ndarray],
        out: np.ndarray,
        workspace: np.ndarray,
    ) -> None:
        self.kernel, self.n, self.workspace = kernel, n, workspace
        c = call.canonical
        self.leaves = [aligned(a, v, n.space) for a, v in zip(operands, c.operands, strict=True)]
        self.out = aligned(out, c.out, n.space)

    def instructions(self) -> Iterator[Instruction]:
        ranges = [
            [(i, min(i + s, self.n.call.sizes[k])) for i in range(0, self.n.call.sizes[k], s)]
            for k, s in self.n.steps.items()
        ]
        first = True
        for tile in product(*ranges):
            at = dict(zip(self.n.steps, tile, strict=True))
            arrays: dict[Term, np.ndarray] = {}
            for s in self.n.stages:
                arrays[s.term] = self._place(s, at)
                if first or not s.hoisted:
                    yield from self._stage(s, arrays, at)
            first = False

    def _place(self, s: Stage, at: Mapping[str, tuple[int, int]]) -> np.ndarray:
        if s.slot is None:
            return self._cut(self.out, at)
        shape = tuple(
            (at[k][1] - at[k][0] if k in at else self.n.call.sizes[k]) if k in s.axes else 1 for k in self.n.space
        )
        dtype = numpy_dtype(s.dtype)
        return np.ndarray(shape, dtype, self.workspace.data, s.slot)

    def _cut(self, a: np.ndarray, at: Mapping[str, tuple[int, int]]) -> np.ndarray:
        cuts = (slice(*at[k]) if k in at and a.shape[i] != 1 else slice(None) for i, k in enumerate(self.n.space))
        return a[(*cuts, ...)]  # without the ellipsis, a tensor of no axes would become a scalar, which takes no result

    def _value(self, t: Term, arrays: Mapping[Term, np.ndarray], at: Mapping[str, tuple[int, int]]) -> np.ndarray:
        if t.head == "In":
            return self._cut(self.leaves[int(t.args[0][1:])], at)
        if t.head == "Num":
            with np.errstate(all="ignore"):
                return np.asarray(t.args[0]).astype(numpy_dtype(t.args[1]))
        return arrays[t]

    def _stage(
        self, s: Stage, arrays: Mapping[Term, np.ndarray], at: Mapping[str, tuple[int, int]]
    ) -> Iterator[Instruction]:
        out = arrays[s.term]
        xs = [self._value(x, arrays, at) for x in s.source]
        head = s.term.head
        if head in FOLDS:
            yield from self._fold(s, xs[0], out)
        elif head in ("Add", "Mul"):
            yield partial(np.add if head == "Add" else np.multiply, *xs, out=out)
        elif head in ("Map", "Zip"):
            yield from self.kernel.steps(self.n, s, xs, out, self.workspace)
        elif head == "Select":
            yield partial(np.copyto, out, xs[2])
            yield partial(np.copyto, out, xs[1], where=xs[0])
        elif head == "Cast":
            yield partial(np.copyto, out, xs[0], casting="unsafe")
        else:
            k = s.term.args[0]
            start, stop = at.get(k, (0, self.n.call.sizes[k]))
            values = np.arange(start, stop).astype(out.dtype)
            shape = tuple(stop - start if a == k else 1 for a in self.n.space)
            yield partial(np.copyto, out, values.reshape(shape))

    def _fold(self, s: Stage, x: np.ndarray, out: np.ndarray) -> Iterator[Instruction]:
        have = self.n.kinds[s.source[0]].axes
        real = tuple(self.n.space.index(k) for k in s.folded if k in have)
        missing = math.prod(self.n.call.sizes[k] for k in s.folded if k not in have)
        name = "sum" if s.term.head == "Sum" else s.term.args[0]
        f = np.add if name == "sum" else load(REDUCERS[name][0])
        if real:
            yield partial(f.reduce, x, real, out.dtype, out, True)
        else:
            yield partial(np.copyto, out, x)
        if missing != 1 and name in ("sum", "prod"):
            again = np.multiply if name == "sum" else np.power
            yield partial(again, out, np.asarray(missing, _wide(out.dtype)), out=out, casting="unsafe")


def _wide(dtype: np.dtype) -> type[np.generic] | np.dtype:
    """A number type that holds a count, whatever the size of what is counted: whole numbers wrap around as they would
    if they were taken one by one."""
    kinds: Mapping[str, type[np.generic]] = {"i": np.int64, "u": np.uint64, "b": np.int64}
    return kinds.get(dtype.kind, np.float64) if dtype.kind in kinds or dtype.itemsize < 4 else dtype


def _scipy(t: Term) -> bool:
    return t.head in ("Map", "Zip") and SCALARS[t.args[0]].ufunc.startswith("scipy")


def _scalar(name: str, xs: list[np.ndarray], out: np.ndarray) -> Iterator[Instruction]:
    if name in _PARTS:
        one = np.asarray(1, dtype=xs[0].dtype)
        for f, args in _PARTS[name]:
            yield partial(f, *(xs[0] if a == "x" else one if a == "1" else out for a in args), out=out)
    else:
        yield partial(load(SCALARS[name].ufunc), *xs, out=out)


_PARTS: Mapping[str, tuple[tuple[Callable, tuple[str, ...]], ...]] = {
    "recip": ((np.divide, ("1", "x")),),
    "rsqrt": ((np.sqrt, ("x",)), (np.divide, ("1", "y"))),
    "sigmoid": ((np.negative, ("x",)), (np.exp, ("y",)), (np.add, ("y", "1")), (np.divide, ("1", "y"))),
    "square": ((np.multiply, ("x", "x")),),
}

KERNELS = (Loops, WideLoops, WholeLoops)
