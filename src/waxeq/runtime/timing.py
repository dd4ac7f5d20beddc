"""Timing one call, on memory and data of its own, with its error against float64."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle

import numpy as np

from waxeq.backend.call import Call, operand_index
from waxeq.backend.kernel import Instruction, Kernel, join
from waxeq.basis.evaluate import Evaluator, Ideal, NamedArray
from waxeq.basis.heads import COMPUTED
from waxeq.basis.matrices import factored, make_regular
from waxeq.basis.typing import types
from waxeq.cost.key import TimingKey
from waxeq.cost.table import Timing
from waxeq.errors import BudgetError
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import is_float, numpy_dtype
from waxeq.runtime.arena import aligned
from waxeq.runtime.measure import Samples, counted, time_calls
from waxeq.runtime.neighbours import sample
from waxeq.runtime.rest import rest

_CHECKED = 1 << 20
"""Elements of the iteration space up to which a timed call is also checked against the meaning in float64."""
_PIECE = 1 << 16
"""Elements that are compared at a time."""
_USUAL = 200
"""Powers of two between which numbers are squared as they are."""
_SPREAD = 1 << 17
"""Elements of the iteration space of those that are checked of a larger one."""
_POINTWISE = COMPUTED | {"In", "Num", "Sum", "Red"}
"""Heads whose value at a place of the result's axes is made from the operands at that place."""

VALUELESS = (IndexError, np.linalg.LinAlgError)
"""What is raised where no operands were found for which a call has a value: a position, or a matrix, is computed."""
ROOMLESS = (MemoryError, BudgetError)
"""What is raised where a call cannot be timed for want of memory: it takes several times what a plan does."""


class Bench:
    """Times calls on random data, one after another, in memory that it keeps from call to call: filling fresh pages
    costs more than most kernels that are timed."""

    def __init__(self, cache_bytes: int = 0, seed: int = 0) -> None:
        """`cache_bytes`: of the last level of cache, 0 where it is not known."""
        self._rng = np.random.default_rng(seed)
        self._cache = min(cache_bytes or _CACHE, _MOST)
        self._kept: dict[tuple[int, int, str], np.ndarray] = {}

    def time(self, kernel: Kernel, call: Call, key: TimingKey, seconds: float) -> Timing:
        """Run `call` for about `seconds` (a much longer one once); raw samples, features, and the error against
        float64 (of large results that of some elements; NaN where even those would take long to evaluate)."""
        arrays, out = self.operands(call), self._result(call)
        scratch = np.zeros(max(1, kernel.workspace(call)), np.uint8)
        steps = tuple(kernel.bind(call, arrays, out, scratch))
        rest()
        with np.errstate(all="ignore"):
            first = sample(lambda: _run(steps))
            once = first[0]
            worst, rms = call_error(call, arrays, out)
            if once > _PATIENCE * seconds:
                samples = counted([first])
            elif once > _PAIR * seconds:
                samples = counted([first, sample(lambda: _run(steps))])
            elif once > seconds:  # its operands leave the cache by themselves
                samples = counted([sample(lambda: _run(steps)) for _ in range(2)])
            else:
                turns = [steps, *self._elsewhere(kernel, call, scratch)]
                samples = self._sampled(*_together(kernel, turns, once, _moved(kernel, call)), seconds)
        features = dict(kernel.features(call))
        return Timing(key, samples.seconds, worst, rms, features, time.time(), samples.disturbed)

    def _sampled(self, turns: list[tuple[Instruction, ...]], many: int, once: float, seconds: float) -> Samples:
        """Runs by turns on each memory of a call that takes about `once`, each of so many calls. Of a long one that has
        other memory the first run on each counts: what a run finds ready there is little of it."""
        new = len(turns) > 1 and once > seconds / _RUNS
        runs = cycle([*turns[1:], turns[0]])
        for _ in () if new else turns:
            _run(next(runs))
        found = time_calls(
            lambda: _run(next(runs)), min_seconds=seconds, max_samples=40, warmup=not new, once=once if new else None
        )  # fmt: skip
        return replace(found, seconds=tuple(s / many for s in found.seconds))

    def _elsewhere(self, kernel: Kernel, call: Call, scratch: np.ndarray) -> list[tuple[Instruction, ...]]:
        """The call on other memory, to take turns with: between two runs of a kernel in a plan others use the cache,
        and a kernel that always finds its operands there looks twice as fast as it is."""
        moved = _moved(kernel, call)
        turns = min(_TURNS, -(-self._cache // max(1, moved)))
        return [
            tuple(kernel.bind(call, self.operands(call, n), self._result(call, n), scratch)) for n in range(1, turns)
        ]

    def _result(self, call: Call, turn: int = 0) -> np.ndarray:
        """Where the result goes. It begins with a cache line, as results do in a plan; an operand may be anybody's."""
        place, size = (turn, -1, call.out.dtype), call.out.extent
        have = self._kept.get(place)
        if have is None or have.size < size:
            have = self._kept[place] = aligned(size, numpy_dtype(call.out.dtype))
            have[:] = 1
        return call.out.array(have[:size])

    def operands(self, call: Call, turn: int = 0) -> list[np.ndarray]:
        """Random operands, in buffers that are shared as the call says; other buffers for each turn."""
        return [v.array(flat) for v, flat in zip(call.operands, self.flats(call, turn), strict=True)]

    def flats(self, call: Call, turn: int = 0) -> list[np.ndarray]:
        """For each operand the flat array that it is a view of."""
        numbers = call.shared or tuple(range(len(call.operands)))
        buffers: dict[int, np.ndarray] = {}
        limits = call.remember("limits", lambda: _limits(call))  # of each turn the same
        for n, v, limit in zip(numbers, call.operands, limits, strict=True):
            size = max(x.extent for m, x in zip(numbers, call.operands, strict=True) if m == n)
            if n not in buffers:
                buffers[n] = self._buffer((turn, n, v.dtype), size, limit)
        for n, (i, j) in ((operand_index(a), ij) for a, ij in factored(call.meaning).items() if a.head == "In"):
            own = buffers[numbers[n]] = buffers[numbers[n]].copy()  # other calls are timed on what is kept
            make_regular(call.operands[n].array(own), call.operands[n].axes, i, j)
        return [buffers[n] for n in numbers]

    def _buffer(self, place: tuple[int, int, str], size: int, limit: range | None) -> np.ndarray:
        if limit is not None:
            return random_values(size, place[-1], self._rng, limit)
        have = self._kept.get(place)
        if have is None or have.size < size:
            block = random_values(min(size, _BLOCK), place[-1], self._rng)
            have = self._kept[place] = np.resize(block, size)
        return have[:size]


def _moved(kernel: Kernel, call: Call) -> int:
    """Bytes that a run of the call touches: fixed operands in the form in which it keeps them, if it does."""
    held = kernel.retained(call)
    fixed = sum(call.operands[i].footprint for i in call.fixed) if held else 0
    return max(0, call.bytes_read - fixed) + held + call.out.bytes


def _together(
    kernel: Kernel, turns: list[tuple[Instruction, ...]], once: float, moved: int
) -> tuple[list[tuple[Instruction, ...]], int, float]:
    """What to run on each memory, how often that makes the call, and what it takes: a short call so often as its kernel
    makes one start of, as of the steps of a plan. A call alone takes ten times as long to start as the smallest take.
    """
    if once < _RESTLESS * _SHORT and moved <= _NEAR:
        once = min(once, *(sample(partial(_run, turns[0]))[0] for _ in range(2)))
        many = min(_AGAIN, round(_SHORT / once))
        runs = [join([(kernel, steps)] * many) for steps in turns] if many > 1 else turns
        if many > 1 and len(runs[0]) < many * len(turns[0]):
            return runs, many, many * once
    return turns, 1, once


def _run(steps: tuple[Instruction, ...]) -> None:
    for f in steps:
        f()


_TURNS, _CACHE = 4, 32 << 20
"""Most copies of a call's memory that are used in turn, and the bytes of cache that are assumed where none are
known.
"""
_MOST = 64 << 20
"""Bytes of cache beyond which no other copies are needed: a call that moves as much puts its own operands out of the
caches of a core, and making copies would take longer than timing it."""
_PAIR, _RUNS = 2, 4
"""A call that takes so many times the seconds meant for it is run twice in all, and the faster run counts; one that has
room in them for fewer runs than that has none that does not count after its first."""
_SHORT, _AGAIN, _NEAR, _RESTLESS = 5e-5, 64, 1 << 18, 20
"""Seconds that a run takes at least where a call can be made again in it, up to so many times; the bytes that such a
call moves at most: on all its memories together they lie in the second cache as well; and how many times as long as
later ones its first run may take."""
_PATIENCE = 50
"""A call that takes this many times the seconds meant for it is run once: it is nobody's choice, and often minutes."""
_BLOCK = 100_003
"""Random values that are made; a longer buffer repeats them. A prime, so that rows are not all alike."""


def random_values(size: int, dtype: str, rng: np.random.Generator, limit: range | None = None) -> np.ndarray:
    """A flat array of values of about unit size, positive with one in four negative; whole numbers of `limit`."""
    if limit is not None:
        return rng.integers(limit.start, max(limit.start + 1, limit.stop), size).astype(numpy_dtype(dtype))
    if dtype == "bool":
        return rng.random(size) < 0.5
    if not is_float(dtype):
        return rng.integers(1, 5, size).astype(numpy_dtype(dtype))
    x = rng.random(size, dtype=np.float32) + np.float32(0.25)
    np.negative(x, out=x, where=rng.random(size, dtype=np.float32) < 0.25)
    return x.astype(numpy_dtype(dtype))


def _limits(call: Call) -> list[range | None]:
    """For operands that positions are made of: what they may be."""
    limits: dict[int, range | None] = dict.fromkeys(range(len(call.operands)))
    for t in postorder(call.meaning):
        if t.head in ("Gather", "Scatter"):
            axis, at = (t.args[0], t.args[1]) if t.head == "Gather" else (t.args[1], t.args[3])
            limits |= _inside(call, at, limits, call.sizes[axis])
    return list(limits.values())


def _inside(call: Call, t: Term, limits: Mapping[int, range | None], size: int) -> Mapping[int, range | None]:
    """What operands may be for positions that are computed of them to lie on an axis of so many: as much as there would
    be room for if it were added to them; or whole numbers as small as it takes, and floats as elsewhere; or one number.
    Never more than their `limits`, as positions may be made of the same operands elsewhere."""
    own = {operand_index(leaf) for leaf in postorder(t) if leaf.head == "In"}
    low, high = _ends(call, t, {i: _both(limits[i], range(1)) for i in own})
    first = max(0, -low)
    roomy = range(first, max(first, size - high - 1) + 1)
    counted = [i for i in own if not is_float(call.operands[i].dtype)]
    fewer = (dict.fromkeys(counted, range(size >> n)) for n in range(size.bit_length() * bool(counted)))
    for tried in (dict.fromkeys(own, roomy), *fewer):
        found = {i: _both(limits[i], tried.get(i)) for i in own}
        least = {i: limit and limit[:1] for i, limit in found.items()}
        most = {i: limit and limit[-1:] for i, limit in found.items()}
        drawn = [_ends(call, t, some) for some in (least, most, found)]
        if all(low >= 0 and high < size for low, high in drawn):
            return found
    return {i: _both(limits[i], roomy[:1]) for i in own}


def _both(a: range | None, b: range | None) -> range | None:
    """What lies within two limits; the first number of the first where that is nothing."""
    if a is None or b is None:
        return b if a is None else a
    return range(max(a.start, b.start), min(a.stop, b.stop)) or a[:1]


def _ends(call: Call, t: Term, limits: Mapping[int, range | None]) -> tuple[int, int]:
    """The least and the largest of the positions that are computed of random operands."""
    rng, leaves = np.random.default_rng(0), dict[str, NamedArray]()
    for i, limit in limits.items():
        v = call.operands[i]
        leaves[f"%{i}"] = NamedArray(v.axes, random_values(v.elements, v.dtype, rng, limit).reshape(v.shape))
    at = Evaluator(call.sizes).term(t, leaves).data
    return (int(at.min()), int(at.max())) if at.size else (0, 0)


def meaning_value(call: Call, arrays: list[np.ndarray], ideal: bool = True) -> np.ndarray:
    """What the call should compute, laid out as its result; floats in float64 when `ideal`."""
    leaves = {}
    for i, (v, a) in enumerate(zip(call.operands, arrays, strict=True)):
        leaves[f"%{i}"] = NamedArray(v.axes, a.astype(np.float64) if ideal and is_float(v.dtype) else a)
    e = Evaluator(call.sizes, Ideal() if ideal else None)
    return e.present(e.term(call.meaning, leaves), *call.out.axes).aligned(call.out.axes)


def call_error(call: Call, arrays: list[np.ndarray], out: np.ndarray) -> tuple[float, float]:
    """The error of a result: of all of it, or, where that is too much to evaluate in passing, of some elements spread
    over it; NaN where even one takes too long, or is not made from the operands at its own place alone."""
    if math.prod(call.sizes.values()) <= _CHECKED or _evaluated(call) <= _CHECKED:
        return relative_error(out, meaning_value(call, arrays))
    found = _spread(call)
    if found is None:
        return float("nan"), float("nan")
    few, at = found
    arrays = [_taken(a, v.axes, at) for a, v in zip(arrays, call.operands, strict=True)]
    return relative_error(_taken(out, call.out.axes, at), meaning_value(few, arrays))


def _evaluated(call: Call) -> int:
    """Elements of all that is made on the way to a result: of padded and of swept tensors less than all axes have."""
    kinds = types(call.meaning).values()
    return sum(math.prod(call.sizes[k] for k in t.axes) for t in kinds)


def _spread(call: Call) -> tuple[Call, Mapping[str, np.ndarray]] | None:
    """The call for some places only along the axes of its result, and these places; None where there are none."""
    if any(t.head not in _POINTWISE for t in postorder(call.meaning)):
        return None
    few = 1
    while math.prod(_at_most(call, 2 * few).values()) <= _SPREAD:
        few *= 2
    sizes = _at_most(call, few)
    if math.prod(sizes.values()) > _CHECKED:
        return None
    ends = {k: (n, call.sizes[k]) for k, n in sizes.items() if n < call.sizes[k]}
    return replace(call, sizes=sizes), {
        k: np.linspace(size - 1, 0, n).round().astype(np.intp)[::-1] for k, (n, size) in ends.items()
    }


def _at_most(call: Call, few: int) -> dict[str, int]:
    """The sizes of a call with so many places at most along each axis of its result. What is folded is so as a whole,
    though the result has the axis as well: that is what a softmax is made of."""
    folded = {t.args[0 if t.head == "Sum" else 1] for t in postorder(call.meaning) if t.head in ("Sum", "Red")}
    return {k: min(n, few) if k in call.out.axes and k not in folded else n for k, n in call.sizes.items()}


def _taken(array: np.ndarray, axes: Sequence[str], at: Mapping[str, np.ndarray]) -> np.ndarray:
    for n, k in enumerate(axes):
        if k in at:
            array = array.take(at[k], n)
    return array


def relative_error(got: np.ndarray, want: np.ndarray) -> tuple[float, float]:
    """(largest, root mean square) error where the reference is finite, each over the RMS of the reference; (inf, inf)
    where one is finite and the other is not."""
    got, want = got.ravel(), want.ravel()
    largest = rms = 0.0
    reference, finite = 0.0, 0
    unit = _unit(want)
    for begin in range(0, want.size, _PIECE):  # in pieces that stay in cache
        g, w = (a[begin : begin + _PIECE].astype(np.float64, copy=False) for a in (got, want))
        if not _all_finite(w):
            known = np.isfinite(w)
            if not np.array_equal(g[~known], w[~known], equal_nan=True):
                return float("inf"), float("inf")
            g, w = g[known], w[known]
        if not _all_finite(g):
            return float("inf"), float("inf")
        finite += w.size
        if unit != 1.0:
            g, w = g / unit, w / unit
        d = g - w
        largest = max(largest, float(d.max(initial=0.0)), -float(d.min(initial=0.0)))
        # no product of vectors: threads of BLAS would spin on the core of what is timed next
        rms += float(np.square(d, out=d).sum())
        reference += float(np.square(w, out=d).sum())
    scale = math.sqrt(reference / finite) if reference else 1.0 / unit
    return (largest / scale, math.sqrt(rms / finite) / scale) if finite else (0.0, 0.0)


def results_error(results: Sequence[np.ndarray], truth: Sequence[np.ndarray]) -> float:
    """The largest relative RMS error of any result; infinite when shapes or the number of results differ."""
    if [np.shape(r) for r in results] != [np.shape(t) for t in truth]:
        return math.inf
    pairs = zip(results, truth, strict=True)
    return max((relative_error(np.asarray(got), np.asarray(want))[1] for got, want in pairs), default=0.0)


def _all_finite(a: np.ndarray) -> bool:
    with np.errstate(all="ignore"):  # a sum tells of most at once; one that overflows tells nothing
        return bool(np.isfinite(a.sum())) or bool(np.isfinite(a).all())


def _unit(want: np.ndarray) -> float:
    """A power of two about as large as the largest finite value, where that is so far from 1 that squares have no place
    in a float64; else 1."""
    most = 0.0
    for a in np.array_split(want, -(-want.size // _PIECE) or 1):
        a = a if _all_finite(a) else a[np.isfinite(a)]
        most = max(most, float(a.max(initial=0)), -float(a.min(initial=0)))
    exponent = math.frexp(most)[1] - 1 if most else 0
    return math.ldexp(1.0, exponent) if abs(exponent) > _USUAL else 1.0
