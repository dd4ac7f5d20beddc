"""Random typed programs over all operators, with odd shapes and several dtypes. They are well-conditioned: a rewrite
that is right changes their results by rounding only, so what differs by more is a bug."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from waxeq.errors import TypeMismatch
from waxeq.ir.graph import Graph, GraphBuilder
from waxeq.ir.interpret import settle
from waxeq.ir.op import Op
from waxeq.ir.types import TensorType, is_float
from waxeq.ops import OPS
from waxeq.testing import draws

DTYPES = (*("float32",) * 8, *("float64",) * 4, "float16", "bfloat16", "int32", "int64", "int64", "uint8", "bool")
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
"""The relative distance of neighbouring numbers by dtype."""
_SIZES = (1, 2, 3, 4, 5, 7, 8)
_LARGEST, _DEEPEST = 4096, 6
"""Most elements and dimensions a value may have: programs are about shapes, not about speed."""
_OFTEN = (
    "Zip",
    "Zip",
    "Zip",
    "Map",
    "Matmul",
    "Einsum",
    "Reduce",
    "Transpose",
    "Reshape",
    "Concat",
    "Slice",
    "Softmax",
)

Rng = random.Random


@dataclass(frozen=True)
class RandomProgram:
    """A graph, with arrays for its inputs and for its weights, and the error that its results may have: relative RMS
    against float64, by output."""

    graph: Graph
    inputs: Mapping[str, np.ndarray]
    weights: Mapping[str, np.ndarray]
    allowed: Mapping[str, float]


@dataclass(frozen=True)
class RandomCall:
    """One op on arrays that fit it."""

    op: Op
    arrays: tuple[np.ndarray, ...]


def random_program(rng: Rng, ops: tuple[int, int] = (3, 40)) -> RandomProgram:
    """A program of `ops[0]` to `ops[1]` operators, with 1 to 6 outputs."""
    draft = Draft(rng)
    for _ in range(rng.randint(2, 4)):
        draft.leaf()
    names, want = list(OPS), round(ops[0] + (ops[1] - ops[0]) * rng.random() ** 3)  # small ones are cheap and find most
    for _ in range(20 * want):
        if len(draft.values) - len(draft.leaves) >= want:
            break
        draft.extend(rng.choice(_OFTEN if rng.random() < 0.5 else names))
    return draft.finish()


def random_call(rng: Rng, name: str) -> RandomCall:
    """An op of class `name` on random arrays that it takes."""
    for _ in range(2000):
        draft = Draft(rng, careful=False)
        for _ in range(3):
            draft.leaf()
        found = draft.attempt(name)
        if found is not None:
            op, xs, _ = found
            return RandomCall(op, tuple(draft.values[x].array for x in xs))
    raise AssertionError(f"no {name} fits random operands: say in {draws.__name__} how one is drawn")


@dataclass(frozen=True)
class Known:
    """A value under construction: its array, and the same computed in float64 from the start. `eps` is the coarsest
    rounding on the way to it."""

    type: TensorType
    array: np.ndarray
    ideal: np.ndarray
    eps: float


class Draft:
    """A program under construction whose values are all computed, so that what would be ill-conditioned is left out."""

    def __init__(self, rng: Rng, *, careful: bool = True) -> None:
        self.rng, self.careful = rng, careful
        self.noise = np.random.default_rng(rng.getrandbits(64))
        self.builder = GraphBuilder()
        self.values: dict[int, Known] = {}
        self.leaves: dict[int, str] = {}
        self.read: set[int] = set()
        self.inputs: dict[str, np.ndarray] = {}
        self.weights: dict[str, np.ndarray] = {}
        self.sizes = [*rng.sample(_SIZES, 3), *([0] if rng.random() < 0.05 else [])]

    # -- leaves

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """A shape of few different sizes, so that many fit."""
        n = self.rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)) if rank is None else rank
        return tuple(self.rng.choice(self.sizes) for _ in range(n))

    def content(self, type_: TensorType) -> np.ndarray:
        """Floats that are not near 0, small integers, bools."""
        if is_float(type_.dtype):
            a = self.noise.uniform(0.2, 2.0, type_.shape) * np.where(self.noise.random(type_.shape) < 0.4, -1.0, 1.0)
        else:
            low, high = (0, 2) if type_.dtype == "bool" else (-4 if type_.dtype.startswith("i") else 0, 6)
            a = self.noise.integers(low, high, type_.shape)
        return np.asarray(a).astype(type_.numpy)

    def leaf(self, type_: TensorType | None = None, array: np.ndarray | None = None) -> int:
        """A new input or weight; its type and content are random unless given."""
        t = type_ or TensorType(self.rng.choice(DTYPES), self.shape())
        a = self.content(t) if array is None else np.asarray(array).astype(t.numpy)
        kind = "weight" if self.rng.random() < 0.35 else "input"
        name = f"{kind[0]}{len(self.leaves)}"
        v = self.builder.leaf(name, t, kind)
        (self.weights if kind == "weight" else self.inputs)[name] = a
        self.leaves[v] = name
        wide = a.astype(np.float64) if is_float(t.dtype) else a
        self.values[v] = Known(t, a, wide, EPS.get(t.dtype, 0.0))
        return v

    def type(self, v: int) -> TensorType:
        return self.values[v].type

    def pick(self, fits: Callable[[TensorType], bool] = lambda t: True) -> int | None:
        """A value that fits: one that nothing reads yet, or any, of late ones more likely."""
        rows = [v for v, x in self.values.items() if fits(x.type)]
        fresh = [v for v in rows if v not in self.read]
        rows = fresh if fresh and self.rng.random() < 0.6 else rows
        return rows[max(self.rng.randrange(len(rows)), self.rng.randrange(len(rows)))] if rows else None

    def like(self, v: int) -> int:
        """An operand for beside v: of its dtype, of a shape that broadcasts with it."""
        t = self.type(v)

        def fits(o: TensorType) -> bool:
            pairs = zip(reversed(o.shape), reversed(t.shape), strict=False)
            return o.dtype == t.dtype and all(a == b or 1 in (a, b) for a, b in pairs)

        found = self.pick(fits) if self.rng.random() < 0.85 else None
        if found is not None and found != v:
            return found
        cut = self.rng.choice((0, 0, 0, t.rank // 2, t.rank))
        return self.leaf(TensorType(t.dtype, tuple(s if self.rng.random() < 0.8 else 1 for s in t.shape[cut:])))

    def index(self, shape: Sequence[int], n: int) -> int:
        """Positions along an axis of size n, of either sign. Raises TypeMismatch where there are none."""
        if n == 0 and 0 not in shape:
            raise TypeMismatch("nothing to index")
        t = TensorType(self.rng.choice(("int64", "int32")), tuple(shape))
        return self.leaf(t, self.noise.integers(-n, max(n, 1 - n), t.shape))

    # -- ops

    def attempt(self, name: str) -> tuple[Op, tuple[int, ...], Known] | None:
        """An op of a class on values of the draft; None when what was drawn does not fit."""
        try:
            op, xs = draws.DRAWERS.get(name, draws.generic)(self, OPS[name])
            type_ = op.infer(*(self.type(x) for x in xs))
        except TypeMismatch:
            return None
        if type_.elements > _LARGEST or type_.rank > _DEEPEST:
            return None
        try:
            known = self._computed(op, xs, type_)
        except ValueError:
            return None  # NumPy's own refusal of this content: an integer to a negative power
        return None if known is None else (op, tuple(xs), known)

    def extend(self, name: str) -> None:
        """Add an op of a class, if one is found that fits."""
        for _ in range(8):
            found = self.attempt(name)
            if found is not None:
                op, xs, known = found
                self.values.setdefault(self.builder(op, *xs), known)
                self.read |= set(xs)
                return

    def _computed(self, op: Op, xs: Sequence[int], type_: TensorType) -> Known | None:
        """The value of an op; None when it is large or ill-conditioned."""
        rows = [self.values[x] for x in xs]
        with np.errstate(all="ignore"):
            array = settle(op.reference(*(x.array for x in rows)), type_.numpy)
            wide = np.dtype(np.float64) if is_float(type_.dtype) else type_.numpy
            ideal = settle(op.ideal(*(x.ideal for x in rows)), wide)
            known = Known(type_, array, ideal, max((EPS.get(type_.dtype, 0.0), *(x.eps for x in rows))))
            return known if not self.careful or self._steady(op, rows, known) else None

    def _steady(self, op: Op, rows: Sequence[Known], y: Known) -> bool:
        """Whether the result is finite, near its float64 self, and moves little when the operands move a little."""
        if not is_float(y.type.dtype):
            large = y.type.dtype != "bool" and y.array.size and np.abs(y.array.astype(np.float64)).max() > 10_000
            tries = (op.reference(*map(self._moved, rows)) for _ in range(4))
            return not large and all(np.array_equal(y.array, z) for z in (y.ideal, *tries))
        again = settle(op.reference(*map(self._moved, rows)), y.array.dtype)
        size = np.abs(y.ideal)
        if not np.isfinite(y.ideal).all() or size.max(initial=0.0) > 1000:
            return False
        scale = rms(y.ideal)
        if size.size and scale < 1e-3:
            return False  # near 0 the error of a result has nothing to be measured against
        near = rms(y.array.astype(np.float64) - y.ideal) <= 100 * y.eps * scale
        return near and rms(again.astype(np.float64) - y.array.astype(np.float64)) <= 1000 * y.eps * scale

    def _moved(self, x: Known) -> np.ndarray:
        if not is_float(x.type.dtype):
            return x.array
        a = x.array.astype(np.float64)
        one, other = self.noise.uniform(-1.0, 1.0, (2, *a.shape))
        return (a * (1 + 32 * x.eps * one) + 32 * x.eps * rms(a) * other).astype(x.array.dtype)

    def finish(self) -> RandomProgram:
        """The program whose results are the last values that no other reads, at most six."""
        made = [v for v in self.values if v not in self.leaves] or list(self.values)
        ends = [v for v in made if v not in self.read][-6:] or made[-1:]
        graph = self.builder.finish([(f"y{i}", v) for i, v in enumerate(ends)]).check()
        kept = {x.name for x in graph.leaves}
        inputs, weights = ({n: a for n, a in s.items() if n in kept} for s in (self.inputs, self.weights))
        allowed = {f"y{i}": 2000 * self.values[v].eps for i, v in enumerate(ends)}
        return RandomProgram(graph, inputs, weights, allowed)


def rms(a: np.ndarray) -> float:
    """The root of the mean square; 0 of nothing."""
    return float(np.sqrt(np.mean(np.square(a, dtype=np.float64)))) if a.size else 0.0
